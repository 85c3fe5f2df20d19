"""A method and a network of another package: by their names in commands, and in the cache under their own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.model.bundle import read_bundle
from edge_sdk.plugins import entries_of, hash_package
from edge_sdk.research.runs.simulate import jobs_of

pytest.importorskip("torch", reason="a network is compiled")
MODULE = """
import edge_sdk


def local(device, w, own):
    v = w if own is None else own
    return device.sgd(w), device.sgd(v, epochs=5, near=w, pull=0.1)


DITTO = edge_sdk.method("their-ditto", local=local, settings={"local_epochs": 5})
"""
NETWORK = """
from torch import nn


class Flat(nn.Sequential):
    def __init__(self, input, classes):
        super().__init__(nn.Linear(*input, 5), nn.Tanh(), nn.Linear(5, classes))
"""
OFFERED = "[auscult.methods]\ntheir-ditto = their_methods:DITTO\n[auscult.networks]\nflat = their_network:Flat\n"
SMALL = ["--rounds=3", "--hospitals=2", "--devices=2", "--no-neighbours", "--plain"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one in it."""
    folder = tmp_path / "site"
    about = folder / "their_methods-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "their_methods.py").write_text(MODULE)
    (folder / "their_network.py").write_text(NETWORK)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-methods\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(OFFERED)
    return folder


def result_of(method: str, out: Path, path: Path | None = None, *more: str) -> dict:
    given = [str(path)] if path else []
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([*given, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "edge_sdk.cli", "simulate", "breast-cancer", f"--method={method}", *SMALL, *more]
    done = subprocess.run([*command, "--json", f"--out={out}"], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_knows_it_by_name(site, tmp_path, ditto):
    """Ditto with its recommended settings, by another package: the same figures as of ours, run from Python."""
    theirs, ours = result_of("their-ditto", tmp_path / "theirs", site), ditto.results[0]
    assert [d["accuracy"] for d in theirs["devices"]] == [d["accuracy"] for d in ours["devices"]]
    assert theirs["method"] == "their-ditto"


def test_a_run_has_their_network_by_its_name(site, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result_of("fedavg", tmp_path / "run", site, "--bundle=flat")
    (bundle,) = (tmp_path / "auscult" / "bundles").glob("flat-*.bundle")
    assert read_bundle(bundle).manifest["classes"] == 2


def test_other_code_is_another_run(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    entries_of.cache_clear()
    command = ["simulate", "breast-cancer", "--method=their-ditto", "--bundle=flat"]
    found = [jobs_of(command, [0], "")[0][1]]
    (site / "their_methods.py").write_text(MODULE.replace("0.1", "0.2"))
    found.append(jobs_of(command, [0], "")[0][1])
    (site / "their_network.py").write_text(NETWORK.replace("5", "6"))
    found.append(jobs_of(command, [0], "")[0][1])
    assert len({*found}) == 3
    assert hash_package("their_methods") != hash_package("no_such_package")
    sys.modules.pop("their_methods", None)
    entries_of.cache_clear()
