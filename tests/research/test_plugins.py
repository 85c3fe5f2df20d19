"""A method of another package that is installed: by its name in the command, and in the cache under its own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.research.cache import hash_package
from edge_sdk.research.simulate import jobs_of

pytest.importorskip("torch", reason="a network is compiled")
MODULE = """
import edge_sdk


def local(device, w, own):
    v = w if own is None else own
    return device.sgd(w), device.sgd(v, epochs=5, near=w, pull=0.1)


DITTO = edge_sdk.method("their-ditto", local=local, settings={"local_epochs": 5})
"""
SMALL = ["--rounds=2", "--hospitals=2", "--devices=2", "--no-neighbours", "--plain"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one in it."""
    folder = tmp_path / "site"
    about = folder / "their_methods-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "their_methods.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-methods\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[auscult.methods]\ntheir-ditto = their_methods:DITTO\n")
    return folder


def result_of(method: str, out: Path, path: Path | None = None) -> dict:
    given = [str(path)] if path else []
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([*given, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "edge_sdk.cli", "simulate", "breast-cancer", f"--method={method}", *SMALL]
    done = subprocess.run([*command, "--json", f"--out={out}"], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_knows_it_by_name(site, tmp_path):
    """Ditto with its recommended settings, by another package: the same figures."""
    theirs, ours = result_of("their-ditto", tmp_path / "theirs", site), result_of("ditto", tmp_path / "ours")
    assert [d["accuracy"] for d in theirs["devices"]] == [d["accuracy"] for d in ours["devices"]]
    assert theirs["method"] == "their-ditto"


def test_other_code_is_another_run(site, tmp_path, monkeypatch):
    from edge_sdk.methods import METHODS

    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(METHODS.__dict__, "plugins", raising=False)
    before = jobs_of(["simulate", "breast-cancer", "--method=their-ditto"], [0], "")
    (site / "their_methods.py").write_text(MODULE.replace("0.1", "0.2"))
    after = jobs_of(["simulate", "breast-cancer", "--method=their-ditto"], [0], "")
    assert before[0][1] != after[0][1]
    assert hash_package("their_methods") != hash_package("no_such_package")
    sys.modules.pop("their_methods", None)
    METHODS.__dict__.pop("plugins", None)
