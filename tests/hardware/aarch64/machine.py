"""An emulated aarch64 machine: how its interpreter is called, and how Auscult is installed on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EMULATOR = "qemu-aarch64-static"
PROCESSOR = "cortex-a72"  # of a Raspberry Pi 4
READY = ".ready"
REPOSITORY = Path(__file__).parents[3]
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
PIP_PLATFORMS = ["--implementation", "cp", *(word for name in PLATFORMS for word in ("--platform", name))]
EDGE = REPOSITORY / "hardware" / "provision" / "edge"


@dataclass(frozen=True)
class Aarch64:
    """The machine.

    Attributes:
        directory: as `prepare` has made it.
        site: folder with the installed packages.
    """

    directory: Path
    site: Path

    def command(self, *arguments: object) -> list[str]:
        """Command line of its Python."""
        root = self.directory / "root"
        return [EMULATOR, "-cpu", PROCESSOR, "-L", str(root), str(find_python(root)), *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of its processes: one thread, and no packages but its own."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return kept | {"PYTHONPATH": str(self.site), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}

    def run(self, *arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs its Python to the end, in a directory without the repository's sources."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=self.site,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )


def find_python(root: Path) -> Path:
    """Finds the interpreter in the root: /usr/bin/python3.11 or the like."""
    found = sorted((root / "usr" / "bin").glob("python3.[0-9]*[0-9]"))
    if not found:
        raise FileNotFoundError(f"{root}: no usr/bin/python3.N in it")
    return found[0]


def find_directory() -> Path:
    """The prepared directory, which AUSCULT_AARCH64 names."""
    return Path(os.environ.get("AUSCULT_AARCH64", "")).absolute()


def find_obstacle() -> str:
    """Why there is no emulated machine here; "" if there is one."""
    if shutil.which(EMULATOR) is None:
        return f"{EMULATOR} is not installed (apt install qemu-user-static)"
    if not (find_directory() / READY).exists():
        return "AUSCULT_AARCH64 names no arm64 root (make test-aarch64 makes one and runs this)"
    return ""


def install(directory: Path, scratch: Path) -> Aarch64:
    """Installs what devices get of this repository, as pip does it on such a machine, from the folder of wheels."""
    site, pip = scratch / "site", [sys.executable, "-m", "pip", "--quiet"]
    run_quietly([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, EDGE])
    version = find_python(directory / "root").name.removeprefix("python")
    only = ["--only-binary", ":all:", "--no-index", "--find-links", directory / "wheels", "--python-version", version]
    run_quietly([*pip, "install", *PIP_PLATFORMS, *only, "--target", site, next(scratch.glob("auscult_edge-*.whl"))])
    return Aarch64(directory, site)


def run_quietly(command: Sequence[object]) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stderr}")
