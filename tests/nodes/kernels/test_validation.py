"""Which samples judge what: rounds by the validation part, the end by the test part, both apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import UP
from edge_sdk.contract.run import Run
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.shared.evaluation.evaluation import Evaluate, Scores, evaluated
from edge_sdk.methods.shared.evaluation.reports import Report, mean_accuracies, sums_on_test, sums_on_validation
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import make_env
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
RNG = np.random.default_rng(0)
X = RNG.normal(0, 0.5, (20, 3, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(WRIST)


def env_of(model: Model, validation, held_out):
    run = Run(id="r", method="fedavg", classes=tuple(f"c{i}" for i in range(model.classes)))
    parts = DeviceParts(
        run=run, settings=None, whose="device d", model=model, x=X[:4], y=np.zeros(4, np.int64),
        validation=validation, held_out=held_out,
    )  # fmt: skip
    return replace(make_env(run, model.layout, model.theta0, **plain.for_device(parts)), me="d")


def labelled(model: Model, rows: slice, right: int):
    """Samples of which the initial model gets so many right."""
    guessed = model.predict(model.theta0, X[rows]).argmax(1)
    return X[rows], np.where(np.arange(len(guessed)) < right, guessed, (guessed + 1) % model.classes)


def scores(model: Model, env, final: bool) -> dict[str, float]:
    """What a device answers to an evaluation of its initial model."""
    role = evaluated(FEDAVG).device
    shown = fedavg.FedavgModel(lowrank.pack(model.layout, model.theta0, {}), 1, 0)
    state, _ = role.start(env)
    _, sends = role.receive(env, state, UP, Evaluate(1, final, shown))
    (told,) = [send.message for send in sends if send.to == UP]
    assert isinstance(told, Scores)
    return dict(told.sums)


def test_rounds_are_judged_on_validation_and_the_end_also_on_test(model):
    env = env_of(model, labelled(model, slice(4, 10), 3), labelled(model, slice(10, 20), 4))
    during, end = scores(model, env, final=False), scores(model, env, final=True)
    assert during["global_correct"] == 3 and during["samples"] == 6
    assert not [name for name in during if name.startswith("test_")], "the test part is not judged before the end"
    assert sums_on_validation(end) == during
    assert sums_on_test(end)["global_correct"] == 4 and sums_on_test(end)["samples"] == 10
    assert mean_accuracies(end) == {"global": 0.5, "test_global": 0.4}


def test_without_a_validation_part_everything_is_as_before(model):
    env = env_of(model, None, labelled(model, slice(10, 20), 4))
    during, end = scores(model, env, final=False), scores(model, env, final=True)
    assert during == end and end["global_correct"] == 4 and sums_on_test(end) == {}


def test_an_empty_validation_part_has_no_scores_but_the_end_has(model):
    env = env_of(model, (X[:0], np.zeros(0, np.int64)), labelled(model, slice(10, 20), 4))
    assert scores(model, env, final=False) == {}
    assert mean_accuracies(scores(model, env, final=True)) == {"test_global": 0.4}


def test_a_fleet_divides_by_the_devices_that_have_that_part():
    sums = {"global_accuracy": 1.0, "devices": 2.0, "test_global_accuracy": 1.5, "test_devices": 3.0}
    assert mean_accuracies(sums) == {"global": 0.5, "test_global": 0.5}


def test_areas_under_the_curve_are_apart_too(model):
    end = scores(model, env_of(model, labelled(model, slice(4, 10), 3), labelled(model, slice(10, 20), 4)), final=True)
    line = Report(1, end, final=True).to_metrics()
    assert set(line["auc"]) == {"global", "test_global"}
    assert not [name for name in line["sums"] if "auc:" in name]
