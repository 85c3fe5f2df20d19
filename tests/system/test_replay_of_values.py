"""A newcomer's heart-rate regressor, from a module of their own to an error in bpm: by the command line only."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.samples import Samples, store_samples
from tests.system.test_replay_of_data import auscult
from tests.values import draw

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")
pytest.importorskip("sklearn", reason="the strongest neighbour needs scikit-learn")

MODULE = """
from torch import nn

class Pulse(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(4, 8, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.body(x))
"""
CUT = ("--window", 128, "--stride", 64, "--hospitals", 1, "--method", "fedavg", "--rounds", 2, "--set", "eta_l=0.02")


def test_from_a_module_to_an_error_in_bpm(tmp_path: Path) -> None:
    (tmp_path / "pulse.py").write_text(MODULE)
    bundle, module = tmp_path / "pulse.bundle", f"{tmp_path / 'pulse.py'}:Pulse"
    said = ("--input", "4,128", "--task", "value", "--unit", "bpm", "--range", "40,180", "--search", 0)
    auscult("bundle", "compile", module, *said, "--loss", "huber", "-o", bundle)
    assert "predicts value 1 (bpm, 40 to 180)" in auscult("bundle", "inspect", bundle).stdout
    auscult("traces", "synth", tmp_path / "heart", "--kind", "heart-rate", "--devices", 3, "--minutes", 2)
    target = ("--target", "heart_rate", "--unit", "bpm", "--newcomers", "heart-03")
    done = auscult("replay", tmp_path / "heart", *target, *CUT, "--bundle", bundle, "--out", tmp_path / "out")
    for words in (
        "task value: they label samples with classes",
        "heart_rate (bpm, 40 to 180): `global` and `personal` are mean absolute errors in these units",
        "mean absolute error of heart_rate in bpm, test samples",
        "mean of the training targets",
        "alone, linear model on features",
    ):
        assert words in done.stdout, words
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["values"]["task"] == {
        "kind": "value", "units": ["bpm"], "names": ["heart_rate"], "low": [40.0], "high": [180.0],
    }  # fmt: skip
    models = result["values"]["models"]
    assert {"mean", "local", "alone", "alone_linear", "alone_trees", "global", "personalised", "pooled"} <= {*models}
    fleet = [d for d in result["devices"] if not d["newcomer"]]
    for name, found in models.items():
        own = [d["errors"][name]["heart_rate"]["mae"] for d in fleet]
        assert found["heart_rate"]["mae"] == pytest.approx(np.mean(own)) and 0 < np.mean(own) < 150
    assert result["values"]["newcomers"] and result["accuracy"] == {} and result["classes"] == ["heart_rate"]
    rounds = [line["errors"]["global"]["heart_rate"] for line in result["curve"] if line["kind"] == "round"]
    assert len(rounds) == 2 and all(0 < error < 150 for error in rounds)
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Errors of heart_rate (bpm) on test samples" in report and "Mean absolute error of heart_rate" in report
    table = tomllib.loads((tmp_path / "out" / "config" / "heart-01.toml").read_text())["data"]
    assert table["target"] == ["heart_rate"] and "heart_rate" in table["channels"]


@pytest.mark.long
def test_samples_that_are_ready_and_a_network_of_the_zoo(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for k in range(3):
        x, y = draw(160, k)
        parts = [Samples(x[at], tuple(y[at].tolist())) for at in (slice(0, 80), slice(80, 120), slice(120, 160))]
        store_samples(data / f"d{k}.npz", *parts)
    more = (
        "--target",
        "rate",
        "--unit",
        "bpm",
        "--hospitals",
        1,
        "--method",
        "fedavg",
        "--bundle",
        "mlp",
        "--rounds",
        5,
    )
    done = auscult("replay", data, *more, "--out", tmp_path / "out", "--json")
    result = json.loads(done.stdout)
    task, models = result["values"]["task"], result["values"]["models"]
    assert task["names"] == ["rate"] and task["units"] == ["bpm"] and task["low"][0] < 60 and task["high"][0] > 140
    assert models["global"]["rate"]["mae"] < 0.8 * models["mean"]["rate"]["mae"]
    assert models["alone_linear"]["rate"]["rmse"] == pytest.approx(2, abs=0.4), "the noise of the targets"
