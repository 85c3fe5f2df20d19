"""What a device gets of this repository: the wheel of `auscult-edge`, and of others what it asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "hardware" / "provision" / "edge"


@dataclass(frozen=True)
class Installed:
    """An installation. `site`: the only folder, beside Python's own, in which its processes look for packages."""

    site: Path

    def command(self, *arguments: object) -> list[str]:
        """Command line of its Python; -S: without the packages of the Python that runs the tests."""
        return [sys.executable, "-S", *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of its processes."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return kept | {"PYTHONPATH": str(self.site), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}

    @property
    def about(self) -> Distribution:
        """What is said of it."""
        [found] = self.site.glob("auscult_edge-*.dist-info")
        return Distribution.at(found)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs its Python to the end, in a folder without the repository's sources."""
        command = self.command(*arguments)
        return subprocess.run(
            command, env=self.environment, cwd=self.site, capture_output=True, text=True, check=False, timeout=120
        )


def build_wheel(folder: Path) -> Path:
    """Builds the wheel as pip does. Without a network, so by the setuptools that is installed here."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words = [*command, "--no-build-isolation", "--wheel-dir", str(folder), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def install(folder: Path) -> Installed:
    """Installs the wheel, and links to what it needs."""
    site = folder / "site"
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(site)
    made = Installed(site)
    for needed in {one.name: one for one in list_needed(made.about)}.values():
        for name in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            (site / name).symlink_to(Path(str(needed.locate_file(name))))
    return made


def list_needed(one: Distribution) -> Iterator[Distribution]:
    """Distributions that this one needs without its extras, and those that they need."""
    for text in one.requires or ():
        if "extra ==" not in text:
            needed = distribution(re.match(r"[\w.-]+", text)[0])  # type: ignore[index]
            yield needed
            yield from list_needed(needed)
