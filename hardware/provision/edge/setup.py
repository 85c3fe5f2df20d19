"""The distribution `auscult-edge`: what a device or a hospital's box needs of this repository, and no more.

    pip install ./hardware/provision/edge            or, in a kit without network, hardware/provision/collect.sh

It brings the one package `edge_sdk`, without the rooms of a workstation, and the command `auscult`. Name, version,
requirements and the rest are those of the pyproject.toml at the top, so that nothing is said twice. A machine has
either this or the whole distribution `auscult`: the files of both have the same names.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_packages, setup

HERE = Path(__file__).parent
WHOLE = HERE / "auscult.toml"
"""The pyproject.toml at the top, in an sdist; `make dist` puts it and edge_sdk/ beside this file."""
TOP = "." if WHOLE.exists() else "../../.."
WORKSTATION = ("replay", "simulation", "research", "models")
"""Rooms of `edge_sdk` that no device and no hospital loads."""
EXTRAS = ("serial", "ble", "i2c", "secure", "native")

settings = tomllib.loads((WHOLE if WHOLE.exists() else HERE / TOP / "pyproject.toml").read_text())
whole, data = settings["project"], settings["tool"]["setuptools"]["package-data"]
left_out = [pattern for room in WORKSTATION for pattern in (f"edge_sdk.{room}", f"edge_sdk.{room}.*")]

scratch = TemporaryDirectory()  # nothing is left behind that a later wheel would take up
setup(
    name="auscult-edge",
    version=whole["version"],
    description=f"{whole['description']}: what a device or a hospital's box needs",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license_expression=whole["license"],
    license_files=whole["license-files"],
    python_requires=whole["requires-python"],
    install_requires=whole["dependencies"],
    extras_require={name: whole["optional-dependencies"][name] for name in EXTRAS},
    entry_points={"console_scripts": [f"{name} = {place}" for name, place in whole["scripts"].items()]},
    package_dir={} if TOP == "." else {"": TOP},
    packages=find_packages(TOP, include=["edge_sdk", "edge_sdk.*"], exclude=left_out),
    package_data={"edge_sdk": ["py.typed"], "edge_sdk.hardware": data["edge_sdk.hardware"]},
    include_package_data=False,
    options={"build": {"build_base": scratch.name}, "egg_info": {"egg_base": scratch.name}},
)
