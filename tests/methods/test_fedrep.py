"""FedRep over three tiers against its algorithm as printed: the head first, then the representation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods.fedrep import FEDREP, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Progress, Report, evaluated
from tests.methods.literal_parts import error, mask, sgd
from tests.methods.problems import HASTY, LOSSY, THETA0, devices_counted, play, state, told

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, head_epochs=3, local_epochs=2)
HEAD = mask("linear")


def phase(s, head=HEAD):
    def both(i, theta, t):
        theta = sgd(i, theta, head, s, t, 2, s.head_epochs)
        return sgd(i, theta, ~head, s, t, 1, s.local_epochs)

    return both


@pytest.mark.parametrize(
    ("change", "head"),
    [
        ({}, "linear"),
        ({"batch": 0}, "linear"),
        ({"weighting": "samples"}, "linear"),
        ({"participation": 0.5}, "linear"),
        ({"personal_slots": "bias"}, "bias"),
        ({"head_epochs": 0}, "linear"),
    ],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change, head):
    s = replace(BASIC, **change)
    net, transcript = play(FEDREP, s, 12)
    assert error(net, transcript, s, mask(head), phase(s, mask(head))) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDREP, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC, HEAD, phase(BASIC)) < 1e-12


def test_the_order_of_the_two_halves_matters():
    """The other order is another algorithm, and the comparison sees it."""

    def other(i, theta, t):
        theta = sgd(i, theta, ~HEAD, BASIC, t, 1, BASIC.local_epochs)
        return sgd(i, theta, HEAD, BASIC, t, 2, BASIC.head_epochs)

    net, transcript = play(FEDREP, BASIC, 3)
    assert error(net, transcript, BASIC, HEAD, other) > 1e-3


def test_without_steps_on_the_head_it_stays_as_it_was():
    net, transcript = play(FEDREP, replace(BASIC, head_epochs=0), 3)
    assert state(net, "d1").own.tobytes() == THETA0[HEAD].tobytes()
    assert all(p.sums["loss"] > 0 for p in told(transcript, Progress))  # of the other half


def test_personal_models_are_judged():
    _, transcript = play(evaluated(FEDREP), BASIC, 8)
    (report,) = told(transcript, Report)
    assert report.sums["personal_correct"] > report.sums["global_correct"]
    assert np.isfinite(report.sums["personal_loss"])


def test_settings_are_checked():
    with pytest.raises(UsageError, match="head_epochs"):
        Settings(head_epochs=-1)
    assert len(devices_counted(play(FEDREP, replace(BASIC, local_epochs=0), 1)[1])) == 1
