"""A data set in place of traces: dealt out to devices, trained on over a broker, told with the same report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import warm

pytestmark = pytest.mark.long

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

BUNDLES = Path(__file__).parents[2] / "models" / "shipped"


def auscult(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.auscult(*arguments)
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
        assert {mine["x"].shape, other["x"].shape} <= {(85, 30), (86, 30)} and len(mine["validation_x"]) in (28, 29)
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
        ("breast-cancer", ("--held-out", 2), "held_out = 2"),
        (".", ("--devices", 3), "--devices is for a data set"),
        ("breast-cancer", ("--bundle", BUNDLES / "wrist.bundle"), "these data need x 30 and 2"),
    ],
)
def test_mistakes_are_told_before_anything_starts(data: str, arguments: Any, said: str, tmp_path: Path) -> None:
    done = auscult("replay", data, "--method", "fedavg", "--out", tmp_path / "out", *arguments, code=2)
    assert said in done.stderr
    assert not (tmp_path / "out" / "logs").exists()


def test_devices_with_a_clock_of_their_own_end_with_the_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = replayed("breast-cancer", out, "--method", "fedbcd-i", "--rounds", 3, "--set", "offline_every=0.1")
    assert set(found["accuracy"]) == {"local", "global", "personalised"}
    logs = "".join(path.read_text() for path in (out / "logs").glob("device-*.log"))
    assert "the run is over" in logs and "have not been acknowledged" not in logs


# HSGD -----------------------------------------------------------------------------------------------------------
def test_breast_cancer_with_hsgd(tmp_path: Path) -> None:
    """Features are divided: each holder has a file of its own, and no features of another in it."""
    out = tmp_path / "out"
    settings = ("--set", "eta=0.3", "--set", "P=4", "--set", "Q=2", "--rounds", 10)
    found = replayed("breast-cancer", out, "--method", "hsgd", *settings)
    assert set(found["accuracy"]) == set(found["auc"]) == {"global"}
    assert found["auc"]["global"] > 0.9
    assert sum(d["held_out"] for d in found["devices"]) == 113
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-2]["kind"] == "evaluation" and lines[-2]["auc"]["test_global"] == found["auc"]["global"]
    assert not [name for line in lines for name in line.get("sums", {}) if "auc:" in name]
    with np.load(out / "data" / "hospital-1.npz") as hospital, np.load(out / "data" / "h1-2.npz") as device:
        assert hospital["x"].shape == (171, 15) and device["x"].shape in ((85, 15), (86, 15))
        assert len(hospital["validation_x"]) == 57
        mine = hospital["device"] == "h1-2"
        assert (hospital["labels"][mine] == device["labels"]).all()
        values = {value.tobytes() for value in device["x"].ravel()}
        shared = np.mean([value.tobytes() in values for value in hospital["x"].ravel()])
        assert shared < 0.05  # coincidences of single numbers
    assert "data.samples" not in (out / "config" / "aggregator.toml").read_text()


def test_a_plan_is_told_when_it_is_chosen_anew(tmp_path: Path) -> None:
    known = [f"{key}={value}" for key, value in {"f0": 0.7, "rho": 1.0, "delta": 0.1, "eta": 0.05}.items()]
    chosen = ["strategies=['rate']", "P=2", "Q=1", *known]
    settings = [word for pair in chosen for word in ("--set", pair)]
    found = replayed("breast-cancer", tmp_path / "out", "--method", "hsgd", "--rounds", 3, *settings)
    plans = [line for line in found["curve"] if line["kind"] == "plan"]
    assert [plan["round"] for plan in plans] == [0, 1, 2] and plans[0]["eta"] == 0.05 and plans[1]["eta"] <= 1 / 16


def test_a_split_model_and_a_whole_one_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    for method, bundle, said in (
        ("hsgd", "wrist", "input x 3 x 64 and classes 14; these data need x.hospital 15, x.device 15 and 2"),
        ("hsgd", "split-tabular", "these data need x.hospital 15, x.device 15 and 2"),
        ("fedavg", "split-breast-cancer", "these data need x 30 and 2"),
    ):
        arguments = ("--method", method, "--bundle", BUNDLES / f"{bundle}.bundle", "--out", tmp_path / "out")
        assert said in auscult("replay", "breast-cancer", *arguments, code=2).stderr
    cifar = auscult("replay", "cifar10:x.npz", "--method", "hsgd", "--out", tmp_path / "out", code=2)
    assert "x.npz" in cifar.stderr
