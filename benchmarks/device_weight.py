"""What a device installs and loads of Auscult, beside the last release: nothing for a workstation makes it heavier.

    python benchmarks/device_weight.py [--before COMMIT] [--times 5]

Of each the wheel of `auscult-edge` is built and unpacked, and processes import from there. Seconds are of the
processor, the least of some times; modules are those of Auscult.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
LOADED = "; import sys; print(sum(name.partition('.')[0] == 'edge_sdk' for name in sys.modules))"
IMPORTS = {
    "import edge_sdk": "import edge_sdk",
    "edge_sdk.Device": "import edge_sdk; edge_sdk.Device",
    "a device's service": "import edge_sdk.nodes.daemon.device_service",
}


def main() -> None:
    from tests.system.last_release import find_release

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", help="a commit (that of the last release)")
    parser.add_argument("--times", type=int, default=5, help="processes of each import (5)")
    options = parser.parse_args()
    version, commit = find_release()
    with tempfile.TemporaryDirectory() as place:
        trees = {options.before or version: unpack(options.before or commit, Path(place) / "before")}
        trees["this checkout"] = unpack("", Path(place) / "now")
        print(f"{'':26}" + "".join(f"{name:>18}" for name in trees))
        wheels = [describe(tree) for tree in trees.values()]
        for row in wheels[0]:
            print(f"{row:26}" + "".join(f"{wheel[row]:>18}" for wheel in wheels))
        for row, code in IMPORTS.items():
            told = {name: [load(tree, code) for _ in range(options.times)] for name, tree in trees.items()}
            print(f"{row:26}" + "".join(f"{f'{n[0][0]} in {min(s for _, s in n):.3f} s':>18}" for n in told.values()))


def unpack(commit: str, place: Path) -> Path:
    """The folder with what the wheel of `auscult-edge` puts beside other packages; of a commit, or "" for this tree."""
    source, wheels, site = (place / name for name in ("source", "wheels", "site"))
    source.mkdir(parents=True)
    if commit:
        with (place / "source.tar").open("wb") as file:
            subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=file, check=True)
        with tarfile.open(place / "source.tar") as archive:
            archive.extractall(source, filter="data")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    where = (source if commit else ROOT) / "hardware" / "provision" / "edge"
    subprocess.run([*command, "-w", str(wheels), str(where)], check=True)
    [wheel] = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def describe(site: Path) -> dict[str, str]:
    """Size and number of the files, and the number of packages that are required beside extras."""
    files = [path for path in site.rglob("*") if path.is_file()]
    [metadata] = site.glob("*.dist-info/METADATA")
    needs = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist") or []
    needed = sum("extra ==" not in need for need in needs)
    size = f"{sum(path.stat().st_size for path in files) / 1e6:.2f}"
    return {"MB unpacked": size, "files": str(len(files)), "packages it requires": str(needed)}


def load(site: Path, code: str) -> tuple[int, float]:
    """Modules that a process has loaded, and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", code + LOADED]
    told = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(told.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
