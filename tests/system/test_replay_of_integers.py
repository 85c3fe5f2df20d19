"""A replay whose vectors travel as integers, beside the same with floats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_replay_of_data import auscult

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")


@pytest.mark.long
def test_fewer_bytes_and_a_model_as_good(tmp_path: Path) -> None:
    common = (
        "breast-cancer",
        "--hospitals",
        2,
        "--devices",
        2,
        "--method",
        "fedavg",
        "--rounds",
        12,
        "--bundle",
        "mlp",
    )
    found: dict[str, dict[str, Any]] = {}
    for name, more in {"floats": (), "integers": ("--bits", 4)}.items():
        done = auscult("replay", *common, *more, "--no-local-only", "--out", tmp_path / name, "--json")
        found[name] = json.loads(done.stdout)
    floats, integers = found["floats"], found["integers"]
    assert (floats["uploads"], integers["uploads"]) == ({}, {"bits": 4})
    assert integers["accuracy"]["global"] > floats["accuracy"]["global"] - 0.03
    for hop, count in integers["bytes"].items():
        assert count < 0.7 * floats["bytes"][hop], hop


@pytest.mark.long
def test_noise_under_masks_over_a_broker(tmp_path: Path) -> None:
    common = ("breast-cancer", "--hospitals", 2, "--devices", 3, "--method", "fedavg", "--rounds", 4, "--bundle", "mlp")
    noise = ("--epsilon", 30, "--clip", 1.0, "--privacy", "cohort=3", "--secret")
    done = auscult("replay", *common, *noise, "--settle", "--no-local-only", "--out", tmp_path / "noisy", "--json")
    found = json.loads(done.stdout)
    spent = found["privacy"]["spent"]
    assert spent["epsilon"] == pytest.approx(30, rel=0.01) and spent["epsilon_model"] < spent["epsilon"]
    epsilons = [line["epsilon"] for line in found["curve"] if line["kind"] == "round"]
    assert epsilons == sorted(epsilons) and len(epsilons) == 4
    assert max(epsilons) < 0.95 * spent["epsilon"], "settling comes after the last round, and has its share"
    assert all(line.get("sums", {}) == {} for line in found["curve"]), "no scores have left"
    assert all(d["accuracy"]["global"] is not None for d in found["devices"]), "each device has judged for itself"
