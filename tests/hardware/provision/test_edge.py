"""The distribution for devices and hospitals: only what they need, under names that are in nobody's way.

That it takes part in runs is told by the application of the README, which is played from it (tests/system/test_app.py).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.hardware.provision.edge import REPOSITORY, SOURCE, Installed, install

BUNDLE = REPOSITORY / "models" / "shipped" / "wrist.bundle"
ROOMS = {"algebra", "contract", "data", "delivery", "hardware", "live", "methods", "model", "nodes", "tools", "wire"}
LOAD_ALL = """
import importlib, pkgutil, sys, edge_sdk
for one in pkgutil.walk_packages(edge_sdk.__path__, "edge_sdk."):
    importlib.import_module(one.name)
print(len([name for name in sys.modules if name.startswith("edge_sdk.")]), "torch" in sys.modules)
"""
COMMANDS = {
    "replay traces --rounds 3": "replay is not in auscult-edge",
    "--log info simulate --help": "simulate is not in auscult-edge",
    "bundle compile signal --help": "edge_sdk.models.cli is not in auscult-edge",
    "aggregator cloud.toml": "aggregator.run_command is not in auscult-edge",
    "serve --demo": "aggregator.service.server.command is not in auscult-edge",
}
CALL_ALL = """
import sys
from edge_sdk.cli import main
for line in sys.argv[1:]:
    print(main(line.split()), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("edge"))


def test_it_has_no_aggregator_and_no_tools_of_a_workstation(edge: Installed) -> None:
    own = {path.name for path in edge.site.iterdir() if not path.is_symlink()}
    assert {name for name in own if not name.endswith(".dist-info")} == {"edge_sdk"}
    assert {path.name for path in (edge.site / "edge_sdk").iterdir() if path.is_dir()} == ROOMS
    profiles = {path.name for path in (edge.site / "edge_sdk/hardware/boards/profiles").iterdir()}
    assert profiles == {path.name for path in (REPOSITORY / "hardware/boards/profiles").glob("*.toml")}
    assert (edge.site / "edge_sdk/py.typed").exists() and [*edge.site.glob("auscult_edge-*.dist-info/licenses/LICENSE")]


def test_it_is_what_the_project_says(edge: Installed) -> None:
    whole = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needs = [need for need in edge.about.requires or () if "extra ==" not in need]
    assert len(needs) == len(whole["dependencies"]) == 4
    assert (edge.about.name, edge.about.version) == ("auscult-edge", whole["version"])
    assert [(one.name, one.value) for one in edge.about.entry_points] == [*whole["scripts"].items()]


def test_making_it_leaves_nothing_behind(edge: Installed) -> None:
    """A folder `build` here would be part of the next wheel, and what was removed since then with it."""
    assert {path.name for path in SOURCE.iterdir()} == {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    assert not [*edge.site.glob("edge_sdk/**/provision")]


def test_all_of_it_can_be_imported_there(edge: Installed) -> None:
    done = edge.run("-c", LOAD_ALL)
    assert done.returncode == 0, done.stderr
    count, torch = done.stdout.split()
    assert int(count) > 300 and torch == "False"


def test_its_doctor_finds_it_in_health(edge: Installed, tmp_path: Path) -> None:
    done = edge.run("-m", "edge_sdk.cli", "doctor", "--json", "--bundle", BUNDLE, "--directory", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["what"]: one["good"] for one in json.loads(done.stdout)}["bundle"] is True


def test_what_needs_a_workstation_says_so(edge: Installed) -> None:
    done = edge.run("-c", CALL_ALL, *COMMANDS)
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert lines[1::2] == ["2"] * len(COMMANDS) and len(lines) == 2 * len(COMMANDS), done.stderr
    for line, says in zip(lines[::2], COMMANDS.values(), strict=True):
        assert line.startswith(f"auscult: {says}, which is for devices and hospitals")
