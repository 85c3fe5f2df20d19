"""Takes the pictures of docs/service.md from a console that is running: python docs/picture_console.py URL RUN ROLLOUT

It needs playwright, pillow and chromium. The pictures in the repository are of `auscult serve --demo`, after the model
of its first run was promoted and rolled out, and then the bundle that nobody has trained, which comes back by itself:

    auscult models promote HASH && auscult models rollout HASH --to 100%
    auscult models rollout HASH_OF_THE_BUNDLE --to 100% --id untrained
    auscult fleet token --hospital north    # and auscult enrol with it
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SCREEN, PHONE = (1400, 900), (400, 850)
SETTLE = 500  # milliseconds


def main(url: str, run: str, rollout: str) -> None:
    """Take all pictures. Those of a phone show the beginning of a page, the others all of it."""
    wanted: list[tuple[str, str, tuple[int, int], str]] = [
        ("console-overview", "/", SCREEN, "light"),
        ("console-run", f"/runs/{run}", SCREEN, "light"),
        ("console-rollout", f"/rollouts/{rollout}", SCREEN, "dark"),
        ("console-enrolment", "/enrolment", SCREEN, "light"),
        ("console-settings", "/settings", SCREEN, "dark"),
        ("console-phone", "/fleet", PHONE, "light"),
        ("console-phone-run", f"/runs/{run}", PHONE, "dark"),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path, (width, height), scheme in wanted:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(url + path)
            page.wait_for_timeout(SETTLE)
            take(page, HERE / f"{name}.png", (width, height) == SCREEN)
            page.close()
        browser.close()


def take(page: Any, path: Path, whole: bool) -> None:
    """Save a picture, with fewer colours than the browser draws."""
    image = Image.open(BytesIO(page.screenshot(full_page=whole))).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
