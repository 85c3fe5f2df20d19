"""Writes LICENCES.md: under which licence each locked package is, as it says itself.

`make licences`, where development.txt is installed. Packages for other systems only (Windows) are left out.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import Marker

HERE = Path(__file__).parent
LOCKS = ("device", "aggregator", "development")
LONGEST = 60  # characters; some packages give the text of their licence in place of its name
HEAD = """# Licences of what is installed beside Auscult

Auscult itself is under the Apache License 2.0 ([LICENSE](../LICENSE)). The packages of the lock files, as they say
themselves; written by `make licences`. `aggregator-cuda.txt` has NVIDIA's libraries too (`nvidia-...`, `cuda-...`),
which are under NVIDIA's own terms, and triton (MIT). mosquitto and openssl are not installed by us: the first is under
EPL-2.0 or EDL-1.0, the second under Apache-2.0.

| package | licence | needed by |
|---|---|---|
"""


def main() -> None:
    needed: dict[str, list[str]] = {}
    for lock in LOCKS:
        for name in list_packages((HERE / f"{lock}.txt").read_text()):
            if lock not in needed.setdefault(name, []):
                needed[name].append(lock)
    rows, missing = [], []
    for name, locks in sorted(needed.items()):
        try:
            rows.append(f"| {name} | {licence_of(distribution(name))} | {', '.join(locks)} |\n")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        sys.exit(
            f"not installed here: {', '.join(missing)}: pip install --require-hashes -r requirements/development.txt"
        )
    (HERE / "LICENCES.md").write_text(HEAD + "".join(rows))


def list_packages(text: str) -> list[str]:
    """Names of the packages that a lock file asks for on this system."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==\S+(?: ; (.*?))? *\\?$", text, re.MULTILINE)
    return [name for name, marker in found if not marker or Marker(marker).evaluate()]


def licence_of(package: Distribution) -> str:
    """The licence's name: by the new field, by the old one, by the classifiers, or as its own file begins."""
    found = package.metadata
    classified = [c.rpartition(" :: ")[2] for c in found.get_all("Classifier", []) if c.startswith("License :: ")]
    files = [path.read_text() for path in package.files or () if ".dist-info/licenses/" in str(path)]
    plain = (found.get("License") or "".join(files[:1])).strip()
    short = plain if plain and "\n" not in plain and len(plain) <= LONGEST else ""
    name = found.get("License-Expression") or short or ", ".join(c for c in classified if c != "OSI Approved")
    return name or plain.splitlines()[0][:LONGEST] if name or plain else "not said"


if __name__ == "__main__":
    main()
