"""Trials of the device's package with the oldest and the newest versions that pyproject.toml allows.

    python requirements/ranges.py                        oldest and newest, with this Python
    python requirements/ranges.py newest --python python3.13

Oldest is exactly what stands behind >=, newest what the package index has. For each end an environment is made and
`auscult-edge` installed there from the checkout; the tests of tests/fast.txt of the rooms that a device loads are run,
without torch. It ends with 1 if one fails, and where an end has no wheels for this Python.
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
TOOLS = ("pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.7", "hypothesis>=6.114", "tomli-w>=1.0", "amqtt>=0.11.4")
"""What the tests need beside the package."""
TELL = "from importlib.metadata import version as v; print(', '.join(f'{n} {v(n)}' for n in %r))"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("end", nargs="*", choices=[[], *ENDS], help="which end (both)")
    parser.add_argument("--python", default=sys.executable, help="of the environments (this one)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "ranges", help="for them (build/ranges)")
    options = parser.parse_args()
    failed = [end for end in options.end or ENDS if not holds(end, options.python, options.folder)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def needs() -> dict[str, str]:
    """Package of the device -> its oldest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+).*", need) for need in project["dependencies"]]
    return {one[1]: one[2] for one in found if one}


def holds(end: str, python: str, folder: Path) -> bool:
    """Makes the environment of an end, runs the tests in it, and says what was there."""
    place = folder / f"{end}-{Path(python).name}"
    subprocess.run([python, "-m", "venv", "--clear", place], check=True)
    inside = str(place / "bin" / "python")
    pins = [f"{name}=={oldest}" if end == "oldest" else name for name, oldest in needs().items()]
    install = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    install += ["--no-binary=auscult-edge", *pins, *TOOLS, "./hardware/provision/edge[serial,ble,i2c,secure]"]
    if subprocess.run(install, cwd=ROOT, check=False).returncode:
        return False
    told = subprocess.run([inside, "-c", TELL % ([*needs()],)], check=True, capture_output=True, text=True).stdout
    version = subprocess.run([inside, "--version"], check=True, capture_output=True, text=True).stdout
    print(f"{end}: {version.strip()}, {told.strip()}", flush=True)
    files = [line for line in (ROOT / "tests" / "fast.txt").read_text().split() if line.split("/")[1] in ROOMS]
    tests = [inside, "-m", "pytest", "-n1", "--hypothesis-profile=ci", *files]  # ci: no deadline, the same draws
    return subprocess.run(tests, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
