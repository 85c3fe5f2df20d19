"""Trials of the packages with the oldest and the newest versions that pyproject.toml allows.

    python requirements/ranges.py                        a device's, oldest and newest, with this Python
    python requirements/ranges.py newest --python python3.13
    python requirements/ranges.py --whole                the whole of Auscult with torch, as a workstation has it

Oldest is exactly what stands behind >=, newest what the package index has. For each end an environment is made and the
checkout installed there; the tests of tests/fast.txt are run, of a device those of the rooms that it loads, without
torch, and of a workstation also all tests of the compiler. It ends with 1 if one fails, and where an end has no wheels
for this Python.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENDS = ("oldest", "newest")
ROOMS = ("algebra", "contract", "data", "delivery", "hardware", "live", "methods", "model", "nodes", "wire")
WORKSTATION = ("models", "aggregator", "replay", "simulation", "research", "tools")
EXTRAS = ("aggregator", "replay", "service", "postgres", "secure", "serial", "ble", "i2c", "files")
TOOLS = (
    *("pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.7", "hypothesis>=6.114", "tomli-w>=1.0", "amqtt>=0.11.4"),
    *("httpx2>=2", "httpx"),
)
"""What the tests need beside the package."""
COMPILER = "tests/models"
OLD = ("websockets.legacy", "uvicorn.protocols.websockets.websockets_impl", "starlette.testclient")
"""Modules that the oldest versions use of newer ones beside them, which warn of it."""
TELL = "from importlib.metadata import version as v; print(', '.join(f'{n} {v(n)}' for n in %s))"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("end", nargs="*", choices=[[], *ENDS], help="which end (both)")
    parser.add_argument("--python", default=sys.executable, help="of the environments (this one)")
    parser.add_argument("--whole", action="store_true", help="with torch and the service, as a workstation has it")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "ranges", help="for them (build/ranges)")
    options = parser.parse_args()
    failed = [end for end in options.end or ENDS if not holds(end, options.python, options.folder, options.whole)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def needs(whole: bool = False) -> dict[str, str]:
    """Package of the device, or of a workstation -> its oldest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"]]
    for extra in EXTRAS if whole else ():
        every += project["optional-dependencies"][extra]
    found = [re.fullmatch(r"([\w-]+(?:\[\w+\])?)>=([\d.]+).*", need) for need in every]
    return {one[1]: one[2] for one in found if one}


def holds(end: str, python: str, folder: Path, whole: bool) -> bool:
    """Makes the environment of an end, runs the tests in it, and says what was there."""
    place = folder / f"{end}-{Path(python).name}{'-whole' * whole}"
    subprocess.run([python, "-m", "venv", "--clear", place], check=True)
    inside, wanted = str(place / "bin" / "python"), needs(whole)
    pins = [f"{name}=={oldest}" if end == "oldest" else name for name, oldest in wanted.items()]
    install = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    ours = f".[{','.join(EXTRAS)}]" if whole else "./hardware/provision/edge[serial,ble,i2c,secure]"
    install += ["--no-binary=auscult-edge,auscult", *pins, *TOOLS, ours]
    if subprocess.run(install, cwd=ROOT, check=False).returncode:
        return False
    names = [name.partition("[")[0] for name in wanted]
    print(f"{end}: {said_by(inside, '--version')}, {said_by(inside, '-c', TELL % names)}", flush=True)
    rooms = (*ROOMS, *WORKSTATION) if whole else ROOMS
    files = [line for line in (ROOT / "tests" / "fast.txt").read_text().split() if line.split("/")[1] in rooms]
    files = [file for file in files if not file.startswith(COMPILER)] + [COMPILER] if whole else files
    tests = [inside, "-m", "pytest", "-n1", "--hypothesis-profile=ci", *files]  # ci: no deadline, the same draws
    quiet = [f"-Wignore::DeprecationWarning:{module}" for module in OLD]
    return subprocess.run([*tests, *quiet], cwd=ROOT, check=False).returncode == 0


def said_by(python: str, *words: str) -> str:
    """What an interpreter prints."""
    return subprocess.run([python, *words], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
