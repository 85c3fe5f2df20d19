"""A device whose model reconstructs windows: scores, thresholds, sums, runs that it refuses, live without a label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk import Device, UsageError
from edge_sdk.algebra.metrics.reconstruction import scores_of
from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.evaluation.reports import Report, judge, mean_reconstruction_errors
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.run_env import parts_of
from edge_sdk.nodes.evaluation.output_scores import judge_outputs
from tests.nodes.device.output_tasks import finish, make_device, make_run
from tests.reconstructions import NAMES, SHAPE, best_theta, compile_waves, draw, samples


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_waves(tmp_path_factory.mktemp("waves") / "waves.bundle")


def make(bundle: Path, directory: Path, seed: int = 0) -> Device:
    parts = samples(200, 3, seed), samples(100, 20, seed + 1), samples(80, 2, seed + 2)
    return make_device(bundle, directory, parts)


def run_of(bundle: Path, **more: Any) -> Run:
    return make_run(bundle, NAMES, more)


def judged(device: Device, run: Run, theta: np.ndarray) -> dict[str, float]:
    """The scores of an evaluation on the device's validation part."""
    env = device.part.env(run)
    assert env.judge is not None
    return judge(replace(env, score=env.judge), {"global": theta})


def test_a_prediction_is_a_score_with_its_threshold_and_an_alarm(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path)
    x = samples(50, 10, 7).x
    first = device.predict(x)[0]
    assert first.threshold is None and first.is_alarm is None and first.label is None and first.score is not None
    finish(device, run := run_of(bundle), best_theta(), judged(device, run, best_theta()))
    found = device.predict(x)
    errors = np.square(device.part.model.predict(best_theta(), x) - x, dtype=np.float64).mean((1, 2))
    assert [one.score for one in found] == pytest.approx(errors.tolist()) and found.labels == (None,) * 60
    chosen = samples(80, 2, 2).x[:80]
    own = np.square(device.part.model.predict(best_theta(), chosen) - chosen).mean((1, 2))
    assert found.threshold == pytest.approx(np.quantile(own, 0.9)), "abnormal ones have no part in it"
    alarms = [one.is_alarm for one in found]
    assert all(alarms[50:]) and sum(alarms[:50]) < 12
    assert device.predict(x[0])[0].score == pytest.approx(found[0].score), "one window without its first axis"
    assert device.predict(x, smooth=2)[1].score == pytest.approx(errors[:2].mean())
    with pytest.raises(UsageError, match="no probability of one class"):
        device.predict(x, abstain=0.5)
    with pytest.raises(UsageError, match="has no value"):
        _ = found[0].value
    with pytest.raises(UsageError, match="no probabilities of classes"):
        device.log_probabilities(x)


def test_scores_add_up_and_pass_the_list_of_those_that_may_be_told(bundle: Path, tmp_path: Path) -> None:
    run, every = run_of(bundle), []
    for k, name in enumerate("abc"):
        device = make(bundle, tmp_path / name, seed=10 * k)
        env = device.part.env(run)
        assert env.samples == 200 and env.score is not None, "abnormal windows train nothing"
        assert env.score(best_theta())["samples"] == 80
        every.append(judged(device, run, best_theta()))
        check_scores(every[-1], 1)
    total = {n: sum(one[n] for one in every) for n in every[0]}
    check_scores(total, 3)
    own = [one["global_loss"] / one["samples"] for one in every]
    assert mean_reconstruction_errors(total)["global"] == pytest.approx(np.mean(own))
    assert "global reconstruction error 0." in Report(1, total).to_sentence()
    with pytest.raises(ValueError, match="is none of those"):
        check_scores({"global_reconstruction": 1.0, "devices": 1.0})
    with pytest.raises(ValueError, match="is below 0"):
        check_scores({"global_quantile": -1.0, "devices": 1.0})


def test_a_run_that_is_over_is_judged_by_abnormal_windows_at_the_devices_own_threshold(
    bundle: Path, tmp_path: Path
) -> None:
    device = make(bundle, tmp_path)
    finish(device, run := run_of(bundle), best_theta())
    found = judge_outputs(device.part, run)
    good, mean = (scores_of(found["test"][name]) for name in ("global", "mean"))
    assert (good.normal, good.abnormal) == (100, 20) and good.found == 1 and good.auroc is not None
    assert good.auroc > 0.99 > 0.9 > (mean.auroc or 0) and good.error < 0.1 * mean.error  # type: ignore[operator]
    assert good.explained > 0.9 and abs(mean.explained or 0) < 0.1  # type: ignore[operator]
    assert found["validation"]["global"]["abnormal"] == 2, "told, and nothing is chosen by them"
    assert good.threshold == pytest.approx(judged(device, run, best_theta())["global_quantile"], rel=1e-4)


# Live -----------------------------------------------------------------------------------------------------------
def test_what_is_observed_is_trained_on_without_a_label(tmp_path: Path) -> None:
    file = compile_waves(tmp_path / "live.bundle", SignalSpec(("x",), ("",), 12.0, 12, 12))
    how = LocalTraining(recording=Recording(least=300))
    place = {"hospital": "h", "broker": "mqtt://127.0.0.1:1", "directory": tmp_path / "a", "training": how}
    device = Device("a", bundle=file, **place)
    looked = list[int]()
    device.runtime.reconsider = lambda: looked.append(1)  # type: ignore[method-assign]
    run, began = run_of(file), 1_700_000_000.0
    device.observe(draw(100).reshape(-1, 1), time=began)
    with pytest.raises(UsageError, match=r"to train on, and .* held out; 300 are needed: go on recording"):
        parts_of(device.part, run, cancellable=False)
    device.part.receive_refusal("too few", missing=100)
    for hour in range(1, 12):
        device.observe(draw(100, hour).reshape(-1, 1), time=began + 3600 * hour)
        device.flush()
    assert looked, "a refused run is looked at again when there are more windows"
    device.label("spike", began + 3605.2, began + 3605.4)
    device.label("walk", began + 7200, began + 7230)
    parts = parts_of(device.part, run, cancellable=False)
    held, chosen = parts.held_out, parts.validation
    assert held is not None and chosen is not None and parts.y is parts.x and parts.x.shape[1:] == SHAPE
    assert len(parts.x) + len(held[0]) + len(chosen[0]) == 1199, "one touches what is called abnormal"
    finish(device, run, best_theta(), judged(device, run, best_theta()))
    stream = device.predictions()
    device.observe(np.concatenate([draw(1), draw(1) + 3 * (PEAK == 4)]).reshape(-1, 1), time=began + 90_000)
    device.flush()
    usual, strange = next(stream), next(stream)
    assert usual.is_alarm is False and strange.is_alarm is True and strange.score > usual.score  # type: ignore[operator]
    device.close()


PEAK = np.arange(12)
