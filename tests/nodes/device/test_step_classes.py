"""A device whose model tells the classes of steps: sums, runs that it refuses, methods, live with words on parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk import Device, UsageError
from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording
from edge_sdk.methods.shared.aggregation.scores import check_scores, partial_histograms
from edge_sdk.methods.shared.evaluation.reports import Report, judge, mean_macro_f1
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import check_bundle
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.run_env import parts_of
from tests.nodes.device.output_tasks import make_device, make_run
from tests.steps import SHAPE, SIGNAL, TASK, best_theta, compile_steps, draw, samples


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_steps(tmp_path_factory.mktemp("steps") / "steps.bundle")


def make(bundle: Path, directory: Path, seed: int = 0) -> Device:
    return make_device(bundle, directory, [samples(60, seed), samples(40, seed + 1), samples(30, seed + 2)])


def run_of(bundle: Path, **more: Any) -> Run:
    return make_run(bundle, TASK.names, more)


def test_scores_are_of_steps_and_pass_the_list_of_those_that_may_be_told(bundle: Path, tmp_path: Path) -> None:
    run, every = run_of(bundle), []
    for k, name in enumerate("abc"):
        env = make(bundle, tmp_path / name, 10 * k).part.env(run)
        assert env.samples == 60 and env.judge is not None and env.score is not None
        known = TASK.targets(samples(30, 10 * k + 2).labels, (), "a").any(1).sum()
        assert env.score(best_theta())["samples"] == known > 60
        every.append(judge(replace(env, score=env.judge), {"global": best_theta()}))
        check_scores(every[-1], 1)
    total = {n: sum(one.get(n, 0.0) for one in every) for n in {*every[0], *every[1], *every[2]}}
    check_scores(total, 3)
    assert not partial_histograms(total), "each step that has a class is in the histogram of each class"
    assert mean_macro_f1(total)["global"] > 0.9 and "global macro-F1 " in Report(1, total).to_sentence()


def test_other_changes_of_samples_are_allowed(bundle: Path) -> None:
    check_bundle(run_of(bundle, augment={"scale": 0.1}), read_bundle(bundle), "device")


# Live -----------------------------------------------------------------------------------------------------------
def test_words_on_parts_of_windows_are_classes_of_steps(tmp_path: Path) -> None:
    file = compile_steps(tmp_path / "live.bundle", SIGNAL)
    how = LocalTraining(recording=Recording(least=4))
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=file, directory=tmp_path / "a", training=how)
    looked = list[int]()
    device.runtime.reconsider = lambda: looked.append(1)  # type: ignore[method-assign]
    run, began = run_of(file), 1_700_000_000.0
    for hour in range(4):
        device.observe(np.moveaxis(draw(10, hour)[0], 1, 2).reshape(-1, 2), time=began + 3600 * hour)
        device.flush()
    with pytest.raises(UsageError, match="nothing is labelled yet"):
        parts_of(device.part, run, cancellable=False)
    device.part.runtime.membership.refusal = "too few"
    for hour in range(4):  # 4 Hz: a step lasts a second
        device.label("Rest", began + 3600 * hour + 1, began + 3600 * hour + 2)
        device.label("walk", began + 3600 * hour + 2, began + 3600 * hour + 6)
    assert looked, "a refused run is looked at again though no window has a label as a whole"
    with pytest.raises(UsageError, match="expected the class of this time"):
        device.label("swim", began, began + 1)
    parts = parts_of(device.part, run, cancellable=False)
    assert parts.x.shape[1:] == SHAPE and parts.held_out is not None
    y = np.concatenate([parts.y, parts.held_out[1]])
    classes = {"".join("-" if not step.any() else "rwR"[step.argmax()] for step in one.T) for one in y}
    assert len(y) == 4 * 4 and {"-rw", "www"} <= classes, classes
    with pytest.raises(UsageError, match="smooth = 2: steps tells the steps of each window, no others"):
        device.predictions(smooth=2)
    stream = device.predictions()
    device.observe(np.moveaxis(draw(2, 9)[0], 1, 2).reshape(-1, 2), time=began + 36_000)
    one = next(stream)
    assert len(one.steps) == 3 and one.probabilities.shape == (3, 3) and one.time is not None
    device.close()
