"""The last release before this checkout, in an environment of its own: built from the commit of its tag or, where there
are no tags, from that which wrote its heading into CHANGELOG.md.

A checkout whose CHANGELOG.md begins with a version is that version, or will be: its last release is the one before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACE = "import edge_sdk; print(edge_sdk.__file__)"


@dataclass(frozen=True)
class Release:
    """A release that is installed.

    Attributes:
        version: its number. python: the interpreter of its environment. source: what it was built from.
    """

    version: str
    python: Path
    source: Path

    @property
    def bundle(self) -> Path:
        """The bundle that it ships."""
        return self.source / "models" / "shipped" / "wrist.bundle"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its processes: none of them leads to the checkout."""
        return {**{key: value for key, value in os.environ.items() if key != "PYTHONPATH"}, "OMP_NUM_THREADS": "1"}

    def start(self, log: Path, *words: str, more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """`auscult WORDS` of the release, in the folder of the file that it logs to."""
        command = [str(self.python), "-P", "-m", "edge_sdk.cli", *words]
        with log.open("ab") as file:
            own = self.environment | dict(more or {})
            return subprocess.Popen(command, cwd=log.parent, env=own, stdout=file, stderr=subprocess.STDOUT)

    def ask(self, folder: Path, *words: str, more: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and output of `auscult WORDS` of the release."""
        command = [str(self.python), "-P", "-m", "edge_sdk.cli", *words]
        own = self.environment | dict(more or {})
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def last_version(changelog: str) -> str:
    """The version under the first heading: what stands there, "Unreleased" or a version, is this checkout's."""
    return re.findall(r"^## (\S+)", changelog, re.MULTILINE)[1]


def find_release() -> tuple[str, str]:
    """Version and commit of the last release: that of its tag or, where it has none, that which wrote its heading."""
    version = last_version((ROOT / "CHANGELOG.md").read_text())
    tagged = git("rev-parse", "--verify", "--quiet", f"v{version}^{{commit}}")
    written = git("log", "--format=%H", f"-S## {version}", "--", "CHANGELOG.md").splitlines()
    return version, tagged or (written[-1] if written else "")


def install_release(folder: Path) -> Release:
    """Builds the release's wheel and installs it in a new environment, which shares other people's packages."""
    version, commit = find_release()
    if not commit:
        pytest.skip(f"this is no checkout with the history of {version}")
    source, made = folder / "source", folder / "wheels"
    source.mkdir()
    with (folder / "source.tar").open("wb") as file:
        subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=file, check=True)
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(source, filter="data")
    pip = [sys.executable, "-m", "pip"]
    build = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(made), "."]
    subprocess.run([*pip, *build], cwd=source, check=True, capture_output=True)
    [wheel] = made.glob("auscult-*.whl")
    place = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    site = next((place / "lib").glob("python*")) / "site-packages"
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # behind its own; their .pth are not read
    release = Release(version, place / "bin" / "python", source)
    ask = [str(release.python), "-P", "-c", PLACE]
    found = subprocess.run(ask, cwd=folder, env=release.environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(site), found
    return release
