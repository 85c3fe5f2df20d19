"""A device whose model predicts sets of labels: targets, thresholds, scores that add up, runs that it refuses, live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from torch import nn

from edge_sdk import Device, Samples, UsageError
from edge_sdk.algebra.metrics.classification import auc
from edge_sdk.algebra.metrics.label_sets import macro_f1
from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording, StoreLimits
from edge_sdk.methods.secret.messages.forms import ScoresKind
from edge_sdk.methods.shared.evaluation.evaluation import Scores
from edge_sdk.methods.shared.evaluation.reports import judge, mean_macro_f1
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.configuration.assembly import check_bundle
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.run_env import parts_of
from tests.label_sets import FINDINGS, compile_findings, draw, samples
from tests.methods.secret.test_few_scores import opened
from tests.nodes.device.output_tasks import finish, make_device, make_run

BEST = np.concatenate([6 * np.eye(3).ravel(), np.zeros(3)]).astype(np.float32)
"""Parameters of the linear bundle with which it predicts a finding where its number is above 0."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_findings(tmp_path_factory.mktemp("labels") / "findings.bundle")


def make(bundle: Path, directory: Path, seed: int = 0) -> Device:
    return make_device(bundle, directory, [samples(200, seed), samples(100, seed + 1), samples(80, seed + 2)])


def run_of(bundle: Path, **more: Any) -> Run:
    return make_run(bundle, FINDINGS.names, more)


def test_a_prediction_is_a_set_and_says_where_its_thresholds_are_from(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path)
    x, there = draw(300, 7)
    first = device.predict(x)[0]
    assert first.thresholds == dict.fromkeys(FINDINGS.names, 0.5) and not first.chosen and first.label is None
    run, unsure = run_of(bundle), BEST - np.float32([0] * 9 + [4, 0, 0])  # the first label is never sure
    finish(device, run, unsure, judged(device, run, unsure))
    found = device.predict(x)
    assert found[0].chosen == {*FINDINGS.names} and found.thresholds[0] < 0.2 < found.thresholds[1]
    wanted = [frozenset(n for n, is_there in zip(FINDINGS.names, row, strict=True) if is_there) for row in there]
    right = np.mean([own == other for own, other in zip(found.sets, wanted, strict=True)])
    usual = np.mean(((found.probabilities >= 0.5) == there).all(1))
    assert right > 0.7 > usual, "a threshold of 0.5 misses most of the first label"
    assert found[3].labels == found.sets[3] and found.labels[:2] == (None, None)
    assert found.probabilities.shape == (300, 3) and found.probabilities.max() <= 1
    smooth = device.predict(x, smooth=2).probabilities[1]
    assert smooth == pytest.approx(found.probabilities[:2].mean(0))
    for wrong in ({"abstain": 0.5}, {"smooth": 0}):
        with pytest.raises(UsageError):
            device.predict(x, **wrong)
    with pytest.raises(UsageError, match="no value"):
        _ = found[0].value
    with pytest.raises(UsageError, match="no probabilities of classes"):
        device.log_probabilities(x)


def judged(device: Device, run: Run, theta: np.ndarray) -> dict[str, float]:
    """The scores of an evaluation on the device's validation part."""
    env = device.part.env(run)
    assert env.judge is not None
    return {f"global_{name}": value for name, value in env.judge(theta).items()}


def test_scores_are_by_the_definitions_and_add_up(bundle: Path, tmp_path: Path) -> None:
    run, every = run_of(bundle), []
    for k, name in enumerate("abc"):
        env = make(bundle, tmp_path / name, seed=10 * k).part.env(run)
        assert env.score is not None and env.judge is not None
        sums, told = env.score(BEST), env.judge(BEST)
        x, there = draw(80, 10 * k + 2)
        said = (x > 0) == there
        assert sums["samples"] == 80 and sums["correct"] == said.all(1).sum()
        assert sums["f1"] == pytest.approx(macro_f1(sums, 3)) == pytest.approx(told["f1"])
        assert sums == pytest.approx({n: told[n] for n in sums}), "an evaluation tells all that a round tells"
        every.append(judge(replace(env, score=env.judge), {"global": BEST}))
        assert not [n for n in every[-1] if "tp:" in n], "how many windows have a label is told by histograms alone"
    total = {n: sum(one.get(n, 0.0) for one in every) for n in {*(n for one in every for n in one)}}
    assert mean_macro_f1(total)["global"] == pytest.approx(np.mean([one["global_f1"] for one in every]))
    for k, scores in enumerate(FINDINGS.fleet_scores(total)["labels"]["global"].values()):
        y = np.concatenate([draw(80, 10 * n + 2)[1][:, k] for n in range(3)])
        x = np.concatenate([draw(80, 10 * n + 2)[0][:, k] for n in range(3)])
        assert (scores["tp"], scores["fp"], scores["fn"]) == (
            (y & (x > 0)).sum(),
            (~y & (x > 0)).sum(),
            (y & (x <= 0)).sum(),
        )
        assert abs(scores["auroc"] - auc(y, x)) <= scores["auroc_error"]


def test_secret_sums_have_all_but_the_mean_over_devices(bundle: Path, tmp_path: Path) -> None:
    run, env = run_of(bundle, uploads={"bits": 8, "secret": True}), SimpleNamespace(outputs=3)
    check_bundle(run, read_bundle(bundle), "device")
    several = []
    for k, name in enumerate("abc"):
        device = make(bundle, tmp_path / name, seed=10 * k)
        assert device.part.own_model.task.histograms == 3
        several.append({**judged(device, run_of(bundle), BEST), "devices": 1.0, "samples": 80.0})
    for one in several:
        for name in [n for n in one if n == "global_samples" or "_tp:" in n or "_fp:" in n or "_fn:" in n]:
            del one[name]
    open_sums = {n: sum(one.get(n, 0.0) for one in several) for n in {*(n for one in several for n in one)}}
    secret = opened(ScoresKind(), *(Scores(1, one) for one in several))
    assert env.outputs == 3 and {*open_sums} - {*secret.sums} == {"global_f1", "global_f1_squared"}
    assert FINDINGS.fleet_scores(secret.sums) == FINDINGS.fleet_scores(open_sums)
    (scores,) = FINDINGS.fleet_scores(secret.sums)["labels"].values()
    assert scores["af"]["tp"] + scores["af"]["fn"] == sum(draw(80, 10 * k + 2)[1][:, 0].sum() for k in range(3))


def test_labels_of_nobodys_are_left_out_and_those_of_one_device_are_learnt(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = make(bundle, tmp_path)
    device.train_on(Samples(draw(4)[0], ("af", "flutter", "none", frozenset({"af"}))))
    parts = parts_of(device.part, run_of(bundle), cancellable=False)
    assert parts.y.tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]] and "flutter" in caplog.text
    device.train_on(Samples(draw(1)[0], ("af",)))
    env = device.part.env(run_of(bundle))
    assert env.samples == 1 and np.isfinite(env.grad_fn(BEST, None)[1]).all()


# Live -----------------------------------------------------------------------------------------------------------
def test_what_is_observed_gets_sets_as_labels_and_windows_are_predicted(tmp_path: Path) -> None:
    signal = SignalSpec(("ecg",), ("",), 10.0, 10, 10)
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 3)).eval()
    spec = Spec("live", (1, 10), loss="binary_cross_entropy", task=FINDINGS, signal=signal)
    compile_module(net, spec).save(tmp_path / "live.bundle")
    place = {
        "broker": "mqtt://127.0.0.1:1",
        "directory": tmp_path / "a",
        "training": LocalTraining(recording=Recording(limits=StoreLimits(held_out=0.0), least=5)),
    }  # nothing held out: which recordings are is drawn, and all four of a set might be
    device = Device("a", hospital="h", bundle=tmp_path / "live.bundle", **place)
    found = [{"af"}, {"pvc", "af"}, set[str](), "noise+af"]
    for hour in range(20):
        began = 1_700_000_000.0 + 3600 * hour
        device.observe(np.full((600, 1), hour % 4, np.float32), time=began)
        device.flush()
        if hour % 5:  # of the others nobody has said anything
            assert device.label(found[hour % 4], began, began + 60) > 50
    with pytest.raises(UsageError, match="expected a set of af, pvc, noise"):
        device.label("walk", began, began + 60)
    windows = device.count_windows()
    assert {*windows} == {"af", "af+pvc", "none", "af+noise", ""} and windows["none"] > 50 < windows[""]
    parts = parts_of(device.part, run_of(tmp_path / "live.bundle"), cancellable=False)
    kinds = {
        tuple(map(float, row)): set(np.unique(parts.x[(parts.y == row).all(1)])) for row in np.unique(parts.y, axis=0)
    }
    assert kinds == {(1, 0, 0): {0.0}, (1, 1, 0): {1.0}, (0, 0, 0): {2.0}, (1, 0, 1): {3.0}}
    with pytest.raises(UsageError, match="questions are for the names of classes"):
        device.questions()
    stream = device.predictions(smooth=2)
    device.observe(np.zeros((40, 1), np.float32), time=began + 7200)
    device.flush()
    one = next(stream)
    assert one.labels is not None and one.labels <= {*FINDINGS.names} and one.time is not None
    assert one.probabilities.shape == (3,) and one.model == "initial" and one.chosen == frozenset()
    device.close()
