"""A replay whose devices settle, one of which joins when the run is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.refusals import refused
from tests.system.test_replay_of_data import auscult

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

COMMON = ("breast-cancer", "--hospitals", 2, "--devices", 2, "--method", "fedavg", "--rounds", 2, "--set", "eta_l=0.1")
SETTLE = ("--settle", "rate=0.01", "--settle", "steps=[0, 10, 40]", "--settle", "local_steps=[40]")


def test_devices_settle_and_a_newcomer_joins(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = auscult("replay", *COMMON, *SETTLE, "--no-neighbours", "--newcomers", "h2-1", "--out", out, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    devices = {d["device"]: d for d in found["devices"]}
    assert [name for name, d in devices.items() if d["newcomer"]] == ["h2-1"]
    assert [line["devices"] for line in found["curve"] if line["kind"] == "round"] == [3, 3]
    (choice,) = [line for line in found["curve"] if line["kind"] == "settling"]
    members = [d for name, d in devices.items() if name != "h2-1"]
    assert choice["devices"] == 3 and choice["samples"] == sum(d["validation"] for d in members)
    assert choice["correct"] > choice["samples"] / 2
    groups = {name: group["devices"] for name, group in found["statistics"].items()}
    assert groups == {"all": 3, "two_classes": 3, "newcomers": 1}
    for d in devices.values():
        assert d["metrics"]["personalised"]["accuracy"] > 0.7
    # It received one model and sent none: less than a message of theta's size.
    assert devices["h2-1"]["bytes"]["sent"] < 4000 < min(d["bytes"]["sent"] for d in members)
    assert found["chosen"] == {key: choice[key] for key in found["chosen"]} and "weight" in found["chosen"]
    assert {"local", "mixed_in"} <= {*found["accuracy"]} and "local" not in found["auc"] and "mixed_in" in found["auc"]
    assert "<td>settled</td>" in (out / "report.html").read_text()
    assert found["settle"]["steps"] == [0, 10, 40]
    passes, mean = 2 * found["settings"]["local_epochs"], sum(d["samples"] for d in members) / 3
    assert found["gradients"]["rounds"] == pytest.approx(passes * mean)
    assert found["gradients"]["phases"] == pytest.approx(sum(d["gradients"]["phases"] for d in members) / 3)
    assert [d["gradients"]["rounds"] for d in devices.values() if d["newcomer"]] == [0]
    assert all(d["gradients"]["phases"] >= 40 + 40 for d in devices.values())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--newcomers", "h9-1"), "--newcomers h9-1: is no device; there are: h1-1, h1-2, h2-1, h2-2"),
        (("--newcomers", "h1-1,h1-2"), "all devices of hospital-1 are"),
        (("--settle", "pace=1"), "pace is no setting"),
        (("--augment", "shift=0.1"), "windows of channels x samples"),
        (("--augment", "blur=0.1"), "blur is no setting"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    tmp_path: Path, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "replay", *COMMON, *more, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_methods_with_a_global_model_have_newcomers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("breast-cancer", "--method", "hsgd", "--hospitals", 1, "--out", tmp_path / "out", "--newcomers", "h1-1")
    assert "has no global model that a newcomer could begin with" in refused(capsys, "replay", *given)
