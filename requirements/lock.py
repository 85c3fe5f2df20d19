"""Writes the lock files of this folder: every package that is installed, with the hashes of all its files.

    make lock                       what the files pin is kept, where it still fits pyproject.toml
    make lock UPGRADE=--upgrade     the newest versions that fit

    device.txt            devices and hospitals
    aggregator-cuda.txt   the aggregator, with torch as the package index has it: on Linux it brings NVIDIA's libraries
    aggregator.txt        the aggregator with a CPU build of torch, which other indexes and folders have
    development.txt       what `make test` and `make lint` need, with a CPU build of torch

The CPU builds whose hashes are noted are those in the folder --cpu-wheels; pip finds them where its own settings say.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
EXTRAS = {"device": "", "aggregator-cuda": "aggregator", "aggregator": "aggregator", "development": "dev"}
WITH_CPU_TORCH = ("aggregator", "development")
CUDA_ONLY = re.compile(r"(nvidia-|cuda-|triton\b)")
HEADER = """# Written by `make lock`; do not edit.{what}
#     pip install --require-hashes -r requirements/{name}.txt
#     pip install --no-deps .
"""
CPU = """
# Its CPU build of torch is for {builds};
# pip must find that (--find-links, or an index of CPU builds)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu-wheels", type=Path, required=True, help="folder with CPU builds of torch")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    options = parser.parse_args()
    wheels = sorted(options.cpu_wheels.glob("torch-*+cpu-*.whl"))
    if not wheels:
        sys.exit(f"{options.cpu_wheels}: there is no CPU build of torch (torch-*+cpu-*.whl)")
    for name, extra in EXTRAS.items():
        lock(name, extra, options.upgrade)
        if name in WITH_CPU_TORCH:
            use_cpu_torch(HERE / f"{name}.txt", wheels)
        add_header(name, wheels)
        print(f"requirements/{name}.txt")


def lock(name: str, extra: str, upgrade: bool) -> None:
    """Resolve the project with one extra for all systems and versions of Python that it supports."""
    command = ["uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-sources", "--quiet", "--output-file", f"requirements/{name}.txt"]
    command += (["--extra", extra] if extra else []) + (["--upgrade"] if upgrade else [])
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def use_cpu_torch(path: Path, wheels: list[Path]) -> None:
    """Leave out what only torch with CUDA needs, and let the CPU builds take its place."""
    blocks = re.split(r"^(?=\S)", path.read_text(), flags=re.MULTILINE)
    kept = [block for block in blocks if not CUDA_ONLY.match(block)]
    path.write_text("".join(cpu_block(block, wheels) if block.startswith("torch==") else block for block in kept))


def cpu_block(block: str, wheels: list[Path]) -> str:
    """The lines of torch, of these files only: pip would rather take one whose hash the index tells it."""
    version = block.split("==")[1].split()[0].partition("+")[0]
    fitting = [wheel for wheel in wheels if wheel.name.startswith(f"torch-{version}+cpu-")]
    if not fitting:
        sys.exit(f"torch {version} is locked, and there are only {', '.join(wheel.name for wheel in wheels)}")
    comment = block[block.index("    #") :]
    return (
        " \\\n    ".join([f"torch=={version}+cpu", *(f"--hash=sha256:{hash_of(one)}" for one in fitting)])
        + "\n"
        + comment
    )


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def add_header(name: str, wheels: list[Path]) -> None:
    builds = ", ".join(wheel.stem.partition("+cpu-")[2] for wheel in wheels)
    what = CPU.format(builds=builds) if name in WITH_CPU_TORCH else ""
    path = HERE / f"{name}.txt"
    path.write_text(HEADER.format(name=name, what=what).replace(" \n", "\n") + path.read_text())


if __name__ == "__main__":
    main()
