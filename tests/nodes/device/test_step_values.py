"""A device whose model predicts values at steps: sums, what it refuses, a fleet, live with curves over time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk import Device, UsageError
from edge_sdk.data.recording import Recording
from edge_sdk.data.store import facts
from edge_sdk.data.store.step_windows import step_windows
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.evaluation.reports import judge, mean_errors
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.run_env import parts_of
from edge_sdk.nodes.models.versions import mark_losses
from tests.nodes.device.output_tasks import finish, make_device, make_run
from tests.step_values import ONE, SHAPE, SIGNAL, TASK, best_theta, compile_step_values, draw, samples
from tests.steps import compile_steps


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_step_values(tmp_path_factory.mktemp("curves") / "curves.bundle")


def make(bundle: Path, directory: Path, seed: int = 0) -> Device:
    return make_device(bundle, directory, [samples(60, seed), samples(40, seed + 1), samples(30, seed + 2)])


def test_scores_are_of_known_steps_and_pass_the_list_of_those_that_may_be_told(bundle: Path, tmp_path: Path) -> None:
    run, every = make_run(bundle, TASK.names, {}), []
    for k, name in enumerate("abc"):
        env = make(bundle, tmp_path / name, 10 * k).part.env(run)
        assert env.score is not None
        known = (TASK.targets(samples(30, 10 * k + 2).labels, (), "a") < 1e29).all(1).sum()
        assert env.score(best_theta())["samples"] == known > 60
        every.append(judge(env, {"global": best_theta()}))
        check_scores(every[-1], 1)
    total = {n: sum(one[n] for one in every) for n in every[0]}
    check_scores(total, 3)
    errors = TASK.mean_errors(mean_errors(total), ())["global"]
    assert errors["rate"] == pytest.approx(2 * (2 / np.pi) ** 0.5, rel=0.15), "of the noise of the targets, in bpm"


def test_a_curve_has_intervals_and_versions_are_compared_by_errors(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path)
    run = make_run(bundle, TASK.names, {})
    finish(device, run, best_theta(), {"samples": 50.0, "global_squared:0": 0.5, "global_squared:1": 2.0})
    one = device.predict(draw(1)[0])[0]
    assert one.spread == pytest.approx((1.645 * 0.1 * 70, 1.645 * 0.2 * 5)) and one.units == TASK.units
    many, true = draw(400, 3)
    inside = np.mean(
        [(one.low <= own) & (own <= one.high) for one, own in zip(device.predict(many), true, strict=True)]
    )
    assert one.low.shape == one.curve.shape == (2, 3) and inside > 0.9, "noise is 2 bpm and 0.2, told as 7 and 1"
    x, y = draw(20)
    off = np.abs(TASK.in_unit(device.part.model.predict(best_theta(), x)) - y) / TASK.half[:, None]
    losses = mark_losses(device.part.working, samples(20, unknown=0.0))
    assert losses == pytest.approx(off.mean((1, 2)), rel=1e-4)
    device.close()


# Live -----------------------------------------------------------------------------------------------------------
def live(file: Path, directory: Path) -> Device:
    how = LocalTraining(recording=Recording(least=4))
    return Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=file, directory=directory, training=how)


def observe(device: Device, began: float) -> None:
    """Four hours apart, 30 seconds each at 4 Hz: windows of three steps, a second each, every 1.5 seconds."""
    for hour in range(4):
        device.observe(np.moveaxis(draw(10, hour)[0], 1, 2).reshape(-1, 2), time=began + 3600 * hour)
        device.flush()


def targets(device: Device, file: Path, names: tuple[str, ...]) -> np.ndarray:
    parts = parts_of(device.part, make_run(file, names, {}), cancellable=False)
    assert parts.x.shape[1:] == SHAPE and parts.held_out is not None
    return np.concatenate([parts.y, parts.held_out[1]])


@pytest.fixture(autouse=True)
def known_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which recordings a store holds out follows from its salt: a random one holds out three of four now and then."""
    monkeypatch.setattr(facts, "os", SimpleNamespace(urandom=bytes))


def test_a_curve_over_a_stretch_of_time_is_the_values_of_its_steps(tmp_path: Path) -> None:
    file, began = compile_step_values(tmp_path / "live.bundle", ONE, SIGNAL), 1_700_000_000.0
    device = live(file, tmp_path / "a")
    observe(device, began)
    with pytest.raises(UsageError, match=r"nothing is labelled yet; .*device.label\(value, began, ended\)"):
        parts_of(device.part, make_run(file, ONE.names, {}), cancellable=False)
    device.part.runtime.membership.refusal = "too few"
    looked = list[int]()
    device.runtime.reconsider = lambda: looked.append(1)  # type: ignore[method-assign]
    for hour in range(4):  # half seconds, from an eighth before the first sample: two make a step
        start = began + 3600 * hour - 0.125
        device.label(np.array([np.nan, np.nan, 80, 90, 100, 100]), start, start + 3)
        device.label(100, start + 3, start + 3.25)
    assert looked, "a refused run is looked at again though no window has a label as a whole"
    y = targets(device, file, ONE.names)
    assert len(y) == 4 * 2, "the first window, and the one that begins in its middle"
    found = {tuple(np.where(one[0] < 1e29, ONE.in_unit(one[None])[0, 0], 0).round(3).tolist()) for one in y}
    assert found == {(0, 85, 100), (95, 100, 0)}
    device.label(72, began - 1, began + 40)
    assert len(targets(device, file, ONE.names)) == 4 * 2, "a run keeps its samples"
    store = device.live.open().store
    labels = step_windows(store, 3, ONE.in_step).labels
    assert len(labels) == 19 + 3 * 2 and labels.count("72|72|72") == 19, "later words correct earlier ones"
    device.label([np.nan] * 2, began - 1, began + 40)
    assert step_windows(store, 3, ONE.in_step).labels == ("|85|100", "95|100|") * 3, "taken back"
    stream = device.predictions()
    device.observe(np.moveaxis(draw(2, 9)[0], 1, 2).reshape(-1, 2), time=began + 36_000)
    one = next(stream)
    assert one.curve is not None and one.curve.shape == (1, 3) and one.time is not None and one.units == ("bpm",)
    device.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("rest", "expected a finite number in bpm of this time"),
        ([], "0 parts of a stretch of time, expected 1 to 10000"),
        (np.zeros(10_001), "10001 parts of a stretch of time"),
        (np.zeros((2, 3)), r"expected numbers \(n,\) in bpm, of n parts"),
        ([1.0, np.inf], r"expected numbers \(n,\) in bpm, of n parts"),
        (["rest"], r"expected numbers \(n,\) in bpm, of n parts"),
    ],
)
def test_what_is_no_curve_is_named(said: Any, words: str, tmp_path: Path) -> None:
    device = live(compile_step_values(tmp_path / "live.bundle", ONE, SIGNAL), tmp_path / "a")
    with pytest.raises(UsageError, match=words):
        device.label(said, 1.7e9, 1.7e9 + 10)
    device.close()


def test_parts_of_time_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    device = live(compile_step_values(tmp_path / "live.bundle", ONE, SIGNAL), tmp_path / "a")
    with pytest.raises(UsageError, match="too short to be told apart"):
        device.label(np.ones(5000), 1.7e9, 1.7e9 + 1e-5)
    device.close()


def test_a_list_of_names_is_of_equal_parts_too(tmp_path: Path) -> None:
    from tests.steps import SIGNAL as OF_CLASSES
    from tests.steps import TASK as CLASSES

    file, began = compile_steps(tmp_path / "live.bundle", OF_CLASSES), 1_700_000_000.0
    device = live(file, tmp_path / "a")
    observe(device, began)
    for hour in range(4):
        device.label(["rest", "", "Walk"], began + 3600 * hour - 0.125, began + 3600 * hour + 2.875)
    classes = {
        "".join("-" if not s.any() else "rwR"[s.argmax()] for s in one.T)
        for one in targets(device, file, CLASSES.names)
    }
    assert "r-w" in classes, classes
    with pytest.raises(UsageError, match="expected the class of this time"):
        device.label(["rest", "swim"], began, began + 3)
    device.close()
