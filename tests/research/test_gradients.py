"""What training costs a device: counted where gradients are computed, told of each run, and told where runs differ."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.contract.environment.gradients import GradientCounter
from edge_sdk.contract.environment.kernels import Inputs
from edge_sdk.contract.method import Role
from edge_sdk.errors import Cancelled
from edge_sdk.nodes.device.run_env import counting, gradients_in
from edge_sdk.nodes.kernels.outputs import with_count
from edge_sdk.replay.circumstances import find_unlike
from edge_sdk.replay.over_seeds import summarise_seeds
from edge_sdk.replay.reports.terminal import summary
from edge_sdk.replay.result import mean_gradients
from edge_sdk.simulation.processes.ranks import OneRank
from edge_sdk.simulation.runs.job import Course

pytest.importorskip("torch", reason="a network is compiled")

ROUNDS = 2
QUICK = dict(rounds=ROUNDS, hospitals=2, neighbours=0, plain=True)


def samples_of(run: auscult.Results) -> list[int]:
    return [d["samples"] for d in run.results[0]["devices"]]


@pytest.fixture(scope="module")
def epochs(patients: auscult.Fleet) -> auscult.Results:
    given = {"local_epochs": 5, "batch": 20, "fine_tune_epochs": 3}
    return auscult.simulate(patients, "fedavg", settings=given, name="epochs", **QUICK)


@pytest.fixture(scope="module")
def steps(patients: auscult.Fleet) -> auscult.Results:
    given = {"local_steps": 50, "batch": 20}
    return auscult.simulate(patients, "scaffold", settings=given, name="steps", **QUICK)


def test_a_run_says_what_training_has_cost_a_device(epochs):
    """Passes of models that are made for an evaluation only are none of it."""
    samples = samples_of(epochs)
    passes = 5 * ROUNDS * sum(samples) / len(samples)
    assert epochs.results[0]["gradients"] == {"rounds": passes, "phases": 0}
    assert f"compute  {passes:,.0f} gradients per device in rounds\n" in summary(epochs.results[0])


def test_steps_are_counted_as_they_are_and_not_as_settings_call_them(steps):
    """A last mini-batch of a pass may be smaller than the others."""
    found = steps.results[0]["gradients"]
    assert 0.8 * 50 * 20 * ROUNDS <= found["rounds"] <= 50 * 20 * ROUNDS and found["phases"] == 0


def test_runs_that_train_unequally_long_are_told_apart(epochs, steps):
    compared = auscult.compare(epochs, steps)
    one, other = (f"{run.results[0]['gradients']['rounds']:,.0f}" for run in (steps, epochs))
    told = f"not alike: steps: gradients per device {one} where epochs has {other}"
    assert str(compared).startswith(f"{told}\n")
    assert told in compared._repr_html_() and f"% {told}\n" in compared.latex()
    assert f"gradients per device {other} where steps has {one}" in str(auscult.compare(steps, epochs))


@pytest.mark.parametrize("calls", ["step", "cohort"])
def test_the_count_is_the_same_in_whatever_calls_steps_are_made(patients, epochs, steps, calls):
    for run, method in ((epochs, "fedavg"), (steps, "scaffold")):
        given = run.results[0]["settings"]
        again = auscult.simulate(patients, method, settings=given, calls=calls, **QUICK)
        assert again.results[0]["gradients"] == run.results[0]["gradients"]


def test_phases_after_the_rounds_are_counted_apart(patients):
    """Each device walks 10 and 20 steps when it counts, and again, or not, when it has heard the fleet's choice."""
    given = {"optimiser": "adam", "steps": (0, 10), "local_steps": (20,), "batch": 1, "keep_own": False}
    plain = {"local_epochs": 1, "fine_tune_epochs": 0}
    run = auscult.simulate(patients, "fedavg", settle=given, settings=plain, **QUICK)
    found, samples = run.results[0]["gradients"], samples_of(run)
    assert found["rounds"] == ROUNDS * sum(samples) / len(samples)
    assert found["phases"] in (10 + 20, 10 + 20 + 20, 2 * (10 + 20))


def test_several_seeds_have_their_mean_and_a_run_that_counted_nothing_says_nothing(epochs):
    one = epochs.results[0]
    other = {**one, "seed": 1, "gradients": {"rounds": one["gradients"]["rounds"] + 20.0, "phases": 10.0}}
    expected = {"rounds": one["gradients"]["rounds"] + 10.0, "phases": 5.0}
    assert summarise_seeds([one, other])["gradients"] == expected
    old = json.loads(json.dumps({**one, "gradients": None}))
    assert summarise_seeds([one, old])["gradients"] is None
    assert "compute" not in summary(old)
    assert find_unlike([old], [one], "first") == [f"gradients per device not counted where first has {of(one)}"]
    assert find_unlike([old], [old], "first") == []


def test_less_than_a_percent_is_no_difference(epochs):
    one = epochs.results[0]
    count = one["gradients"]["rounds"]
    nearly, more = ({**one, "gradients": {"rounds": count, "phases": s * count}} for s in (0.009, 0.02))
    assert find_unlike([nearly], [one], "first") == []
    told = f"{1.02 * count:,.0f} ({0.02 * count:,.0f} after the rounds)"
    assert find_unlike([more], [one], "first") == [f"gradients per device {told} where first has {of(one)}"]


def of(result):
    return f"{result['gradients']['rounds']:,.0f}"


def test_a_part_of_a_divided_model_is_counted_where_the_device_computes_it(patients):
    run = auscult.simulate("breast-cancer", "hsgd", rounds=1, devices=2, hospitals=2, neighbours=0, plain=True)
    found = run.results[0]["gradients"]
    assert found["rounds"] > 0 and found["phases"] == 0


def test_gradients_through_outputs_are_counted():
    counter = GradientCounter()
    given = Inputs(3, logits=lambda theta, rows: theta, pull=lambda theta, rows, cotangent: theta)
    counted = with_count(given, counter)
    for _ in range(2):
        counted.pull(np.zeros(1), np.arange(3), np.zeros(3))
    assert counter.counts == {"rounds": 6}


def test_a_call_of_a_device_that_is_given_up_has_cost_what_it_has_cost():
    counter, told = GradientCounter(), []

    def receive(env, state, sender, message):
        counter.add(5)
        if message:
            raise Cancelled("a newer question")
        return state, []

    role = counting(
        Role(lambda env: (0, []), receive, lambda env, state: (0, []), int), counter, lambda *n: told.append(n)
    )
    role.receive(None, 0, "up", 0)
    with pytest.raises(Cancelled):
        role.receive(None, 0, "up", 1)
    role.close(None, 0)
    assert told == [("gradients_rounds", 5)] * 2
    assert gradients_in({"gradients_rounds": 10}) == {"rounds": 10, "phases": 0}


def test_a_simulation_that_began_before_there_was_a_count_has_none():
    course = Course.__new__(Course)
    course.ranks, course.judges, course.envs = (
        OneRank(),
        SimpleNamespace(),
        SimpleNamespace(gradients=Counter(rounds=3)),
    )
    course.counted = True
    course.restore_extra([{"d": {}}, {"rounds": 4}])
    assert course.all_gradients() == {"rounds": 7, "phases": 0}
    course.restore_extra({"d": {}})
    assert course.judges.written == {"d": {}} and course.all_gradients() is None
    assert mean_gradients([None], 2) is None
