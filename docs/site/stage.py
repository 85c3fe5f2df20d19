"""Lays out the pages of the site in build/pages, as they lie in the repository, with those that are made of the code.

python docs/site/stage.py [FOLDER]      then: mkdocs build --strict -f docs/site/mkdocs.yml; `make docs` does both
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.commands import commands_page  # noqa: E402
from docs.site.python import examples_page, python_page  # noqa: E402
from docs.site.rest import rest_document, rest_page  # noqa: E402
from docs.site.settings import settings_page  # noqa: E402

PAGES = (
    *("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
    *("models/README.md", "models/native/README.md", "requirements/LICENCES.md"),
)
KINDS = ("*.md", "*.svg", "*.png", "decisions/*.md", "examples/*.py")
MADE = {
    "api.md": python_page,
    "examples.md": examples_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "rest.md": rest_page,
    "openapi.json": rest_document,
}
"""Page in docs/ -> what makes it."""


def stage(folder: Path) -> None:
    """Copies the pages and what they show, at the same places, so that their links lead where they did."""
    shutil.rmtree(folder, ignore_errors=True)
    docs = [path.relative_to(ROOT) for kind in KINDS for path in (ROOT / "docs").glob(kind)]
    for name in (*map(Path, PAGES), *docs):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for page, make in MADE.items():
        (folder / "docs" / page).write_text(make(), encoding="utf-8")
    for beside in ("site.css", "iframe-worker.js"):
        shutil.copy(ROOT / "docs" / "site" / beside, folder)


if __name__ == "__main__":
    stage(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "pages")
