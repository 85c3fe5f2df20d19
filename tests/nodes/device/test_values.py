"""A device whose model predicts values: targets, predictions with units, and runs that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from torch import nn

from edge_sdk import Device, Samples, UsageError
from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Scores
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.run_env import parts_of
from tests.nodes.device.output_tasks import make_device, make_run
from tests.values import RATE, compile_linear, draw


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_linear(tmp_path_factory.mktemp("values") / "linear.bundle")


def make(bundle: Path, directory: Path) -> Device:
    parts = [Samples(x, tuple(y.tolist())) for x, y in (draw(200), draw(100, 1), draw(60, 2))]
    return make_device(bundle, directory, parts)


def run_of(bundle: Path, **more: Any) -> Run:
    return make_run(bundle, ("rate",), more)


def best(seed: int = 0) -> np.ndarray:
    """Parameters of the least squares on what a device trains on."""
    x, y = draw(200, seed)
    rows = np.concatenate([x, np.ones((len(x), 1))], 1)
    return np.linalg.lstsq(rows, RATE.scaled(y[:, None])[:, 0], rcond=None)[0].astype(np.float32)


def test_a_device_learns_and_predicts_with_unit_and_interval(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path)
    initial = device.predict(draw(1)[0])[0].value
    assert initial.unit == "bpm" and initial.low is None
    run = run_of(bundle, rounds=1)
    device.part.assemble(run)
    env, theta = device.part.env(run), device.part.model.theta0.copy()
    for _ in range(300):
        theta -= 0.3 * env.grad_fn(theta, None)[1]
    assert theta == pytest.approx(best(), abs=1e-3), "the gradient is of mean squares, in halves of the range"
    device.part.receive_event(1, Scores(1, {"samples": 60.0, "global_squared:0": 60.0 * (2 / 70) ** 2}))
    device.part.receive_event(1, Models(1, {"global": theta}))
    device.part.receive_event(2, Finished(1))
    x, y = draw(500, 7)
    found = device.predict(x)
    assert np.abs(found.values[:, 0] - y).mean() < 2 and found[0].label is None and found.labels[:2] == (None, None)
    value = found[3].value
    assert (
        str(value).endswith(" bpm") and value.name == "rate" and value.high - value.low == pytest.approx(2 * 1.645 * 2)
    )
    inside = np.mean([low.value.low <= true <= low.value.high for low, true in zip(found, y, strict=True)])
    assert 0.85 < inside < 0.95, "noise is 2 bpm, and normal"
    assert device.predict(x, smooth=2).values[1, 0] == pytest.approx(found.values[:2, 0].mean())
    for wrong, said in (({"abstain": 0.5}, "no probability"), ({"smooth": 0}, "at least 1")):
        with pytest.raises(UsageError, match=said):
            device.predict(x, **wrong)
    with pytest.raises(UsageError, match="no probabilities"):
        device.log_probabilities(x)


def test_scores_are_sums_in_halves_of_the_range(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path)
    env = device.part.env(run_of(bundle))
    x, y = draw(60, 2)
    for theta, score, (inputs, true) in ((best(), env.score, (x, y)), (best(), env.test, draw(100, 1))):
        d = np.concatenate([inputs, np.ones((len(inputs), 1))], 1) @ theta - (true - 110) / 70
        assert score is not None
        sums = score(theta)
        assert sums["samples"] == len(true) and sums["absolute:0"] == pytest.approx(np.abs(d).sum(), rel=1e-4)
        assert sums["error:0"] == pytest.approx(d.sum(), abs=1e-3) and sums["loss"] == pytest.approx(
            (d**2).sum(), rel=1e-4
        )
        assert "correct" not in sums


def test_labels_that_are_no_numbers(bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = make(bundle, tmp_path)
    x, y = draw(3)
    device.train_on(Samples(x, (72.0, "walk", float(y[0]))))
    assert parts_of(device.part, run_of(bundle), cancellable=False).x.shape == (2, 3) and "walk" in caplog.text
    with pytest.raises(UsageError, match="expected a finite number in bpm"):
        device.part.own_model.task.write("walk")


def test_a_model_in_another_range_is_no_warm_start(bundle: Path, tmp_path: Path) -> None:
    other = compile_linear(tmp_path / "other.bundle", type(RATE)(("bpm",), (), (0.0,), (300.0,)))
    device = make(bundle, tmp_path / "a")
    device.part.assemble(run_of(bundle))
    device.part.receive_event(1, Models(1, {"global": best()}))
    device.part.receive_event(2, Finished(1))
    again = make(other, tmp_path / "a")
    assert again.part.env(run_of(other, id="next", method="ditto")).earlier == {}
    same = make(bundle, tmp_path / "a")
    assert {*same.part.env(run_of(bundle, id="next", method="ditto")).earlier} == {"global"}


# Live -----------------------------------------------------------------------------------------------------------
def test_what_is_observed_gets_numbers_as_labels(tmp_path: Path) -> None:
    signal = SignalSpec(("ppg",), ("",), 10.0, 10, 10)
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 1)).eval()
    spec = Spec("live", (1, 10), loss="huber", task=RATE, signal=signal)
    compile_module(net, spec).save(tmp_path / "live.bundle")
    place = {
        "broker": "mqtt://127.0.0.1:1",
        "directory": tmp_path / "a",
        "training": LocalTraining(recording=Recording(least=5)),
    }
    device = Device("a", hospital="h", bundle=tmp_path / "live.bundle", **place)  # type: ignore[arg-type]
    for minute in range(20):  # recordings of their own: some of them are held out
        began = 1_700_000_000.0 + 3600 * minute
        device.observe(np.full((600, 1), minute, np.float32), time=began)
        assert device.label(60.0 + minute, began, began + 60) > 50
    with pytest.raises(UsageError, match="expected a finite number in bpm"):
        device.label("walk", began, began + 60)
    assert device.count_windows()["60.0"] > 50
    parts = parts_of(device.part, run_of(tmp_path / "live.bundle"), cancellable=False)
    assert len(parts.x) > 500 and parts.held_out is not None and len(parts.held_out[0])
    assert RATE.in_unit(parts.y)[:, 0] == pytest.approx(60 + parts.x[:, 0, 0], abs=1e-3), (
        "each window has its own number"
    )
    with pytest.raises(UsageError, match="questions are for the names of classes"):
        device.questions()
    device.close()


def test_a_window_has_the_mean_of_what_was_said_of_its_time(tmp_path: Path) -> None:
    """As a strap says a heart rate each second: few windows have one number from their first sample to their last."""
    signal = SignalSpec(("ppg",), ("",), 10.0, 50, 50)
    spec = Spec("live", (1, 50), loss="huber", task=RATE, signal=signal)
    compile_module(nn.Sequential(nn.Flatten(), nn.Linear(50, 1)).eval(), spec, search=0).save(tmp_path / "live.bundle")
    training = LocalTraining(recording=Recording(least=5))
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=tmp_path / "live.bundle",
                    directory=tmp_path / "a", training=training)  # fmt: skip
    looked = list[int]()
    device.runtime.reconsider = lambda: looked.append(1)  # type: ignore[method-assign]
    for hour in range(8):  # 12 windows of five seconds each: of the sixth two seconds are known, of the seventh three
        began = 1_700_000_000.0 + 3600 * hour
        device.observe(np.repeat(np.arange(60, dtype=np.float32), 10)[:, None] + hour, time=began)
        start, rates = began - 0.05, np.arange(60.0) + hour + 60
        for second in (*range(27), *range(32, 40)):
            device.label(float(rates[second]), start + second, start + second + 1)
        device.label(np.where(np.arange(20) < 15, rates[40:], np.nan), start + 40, start + 60)
    assert len(looked) > 8 and {*device.count_windows()} == {""}, "no window has one number as a whole"
    parts = parts_of(device.part, run_of(tmp_path / "live.bundle"), cancellable=False)
    assert parts.held_out is not None
    x, y = (np.concatenate(both) for both in zip((parts.x, parts.y), parts.held_out, strict=True))
    found = RATE.in_unit(y)[:, 0] - 60 - x.mean((1, 2))
    assert len(x) == 8 * 10 and (np.abs(found) < 0.01).sum() == 8 * 9
    assert (np.abs(found - 1) < 0.01).sum() == 8, "of the last three seconds"
    device.close()
