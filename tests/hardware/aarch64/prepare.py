"""Makes the arm64 root in which the tests run a device as a process of an emulated processor.

python -m tests.hardware.aarch64.prepare DIRECTORY        apt's and pip's servers are needed, root's rights are not

DIRECTORY/root     python3 and libstdc++6 of Debian arm64, unpacked, and the /proc and /sys files of a Raspberry Pi 4
DIRECTORY/wheels   aarch64 wheels of what a device needs
DIRECTORY/.ready   written last
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.hardware.aarch64.machine import PIP_PLATFORMS, READY, find_python

PACKAGES = ("python3", "libstdc++6")
REPOSITORY = Path(__file__).parents[3]
CORES = 4
CORE = """processor\t: {number}
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

"""
BOARD = "Hardware\t: BCM2835\nRevision\t: c03111\nModel\t\t: Raspberry Pi 4 Model B Rev 1.1\n"


def prepare(directory: Path) -> None:
    """Makes everything anew."""
    shutil.rmtree(directory, ignore_errors=True)
    unpack_debian(directory / "apt", directory / "root")
    lay_board(directory / "root")
    download_wheels(directory / "wheels", find_python(directory / "root").name.removeprefix("python"))
    shutil.rmtree(directory / "apt")
    (directory / READY).touch()


def unpack_debian(state: Path, root: Path) -> None:
    """Downloads Debian's packages for arm64 beside the machine's own state, and unpacks them without installing."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Dir::State": state.resolve(),
        "Dir::State::status": (state / "status").resolve(),
        "Dir::Cache": (state / "cache").resolve(),
        "Dir::Log": state.resolve(),
    }
    apt = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "-y", "--no-install-recommends", "--download-only", *PACKAGES], check=True)
    root.mkdir()
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)


def lay_board(root: Path) -> None:
    """Lays a Raspberry Pi's files into the root: without them onnxruntime ends its process at import."""
    cores = root / "sys" / "devices" / "system" / "cpu"
    cores.mkdir(parents=True)
    for name in ("possible", "present", "online"):
        (cores / name).write_text(f"0-{CORES - 1}\n")
    (root / "proc").mkdir(exist_ok=True)
    text = "".join(CORE.format(number=number) for number in range(CORES)) + BOARD
    (root / "proc" / "cpuinfo").write_text(text)


def download_wheels(folder: Path, version: str) -> None:
    """Downloads the wheels of a device's packages, for aarch64 and that version of Python."""
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder, "--only-binary", ":all:"]
    subprocess.run([*command, *PIP_PLATFORMS, "--python-version", version, *wanted], check=True)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
