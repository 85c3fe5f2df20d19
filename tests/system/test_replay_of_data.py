"""A data set in place of traces: dealt out to devices, trained on over a broker, told with the same report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

BUNDLES = Path(__file__).parents[2] / "models" / "bundles"


def auscult(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_sdk.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def replayed(data: object, out: Path, *more: object) -> dict[str, Any]:
    fixed = ("--hospitals", 2, "--devices", 2, "--seed", 5, "--out", out, "--json")
    found: dict[str, Any] = json.loads(auscult("replay", data, *fixed, *more).stdout)
    return found


def test_breast_cancer_with_fedavg(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = replayed("breast-cancer", out, "--method", "fedavg", "--rounds", 3, "--set", "eta_l=0.1")
    assert found["data"] == {"name": "breast-cancer", "generated": False, "devices": 2}
    assert found["accuracy"]["global"] > 0.85 and found["auc"]["global"] > 0.95
    assert [d["device"] for d in found["devices"]] == ["h1-1", "h1-2", "h2-1", "h2-2"]
    assert sum(d["held_out"] for d in found["devices"]) == 113
    page = (out / "report.html").read_text()
    assert "breast-cancer" in page and "AUC" in page
    with np.load(out / "data" / "h1-1.npz") as mine, np.load(out / "data" / "h2-2.npz") as other:
        assert mine["x"].shape == other["x"].shape == (114, 30)
        assert not {row.tobytes() for row in mine["x"]} & {row.tobytes() for row in other["x"]}
    assert 'samples = "' in (out / "config" / "h1-1.toml").read_text()


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        ("breast-cancr", (), "neither a folder of traces nor a data set"),
        ("esr", (), "esr:PATH"),
        ("mnist:nowhere.npz", (), "nowhere.npz"),
        ("breast-cancer", ("--window", 32), "--window is for a folder of traces"),
        ("breast-cancer", ("--deal", "classes=3"), "2 labels"),
        ("breast-cancer", ("--deal", "even"), "deal = 'even': one of iid"),
        ("breast-cancer", ("--devices", 0), "--devices 0: at least 1"),
        ("breast-cancer", ("--judge", "all"), "--judge all: own or global"),
        ("breast-cancer", ("--held-out", 2), "held out"),
        (".", ("--devices", 3), "--devices is for a data set"),
        ("breast-cancer", ("--bundle", BUNDLES / "wrist.bundle"), "its input is"),
    ],
)
def test_mistakes_are_told_before_anything_starts(data: str, arguments: Any, said: str, tmp_path: Path) -> None:
    done = auscult("replay", data, "--method", "fedavg", "--out", tmp_path / "out", *arguments, code=2)
    assert said in done.stderr
    assert not (tmp_path / "out" / "logs").exists()
