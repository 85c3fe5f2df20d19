"""SCAFFOLD over three tiers against Algorithm 1, also where messages and disks are lost; its mean and its limit."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import fedavg, scaffold
from edge_sdk.methods.scaffold import SCAFFOLD, Settings
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from edge_sdk.methods.shared.membership.mirror import Account, recalled
from tests.methods import literal
from tests.methods.lost_disks import counted_by_era
from tests.methods.problems import (
    DEVICES,
    LAYOUT,
    PROBLEMS,
    SEED,
    THETA0,
    devices_counted,
    envs_of,
    play,
    state,
    told,
)
from tests.methods.spy import read_from_wires

BASIC = Settings(eta_l=0.05, decay=0.9, weight_decay=1e-2, batch=16, local_steps=0, local_epochs=2, eta_g=0.8)
STEADY = Settings(eta_l=0.05, decay=1.0, weight_decay=0.0, batch=0, local_steps=10)


def as_printed(problems, x, s, S):
    """Algorithm 1 in one loop. `S`: round -> devices counted; None: all control variates begin again."""
    N, c, own = len(problems), np.zeros_like(x), {i: np.zeros_like(x) for i in problems}
    for t, S_t in enumerate(S):
        eta = s.eta_l * s.decay**t
        if S_t is None:
            c, own = np.zeros_like(x), {i: np.zeros_like(x) for i in problems}
            continue
        moved, control_moved = [], []
        for i in S_t:
            f, y, K = problems[i], x, 0
            passes = literal.shuffled(SEED, t, i, 1, len(f.b), s.batch, s.local_steps or s.local_epochs)
            for batch in islice(passes, s.local_steps or None):
                y, K = y - eta * (f(y, batch)[1] + s.weight_decay * y - own[i] + c), K + 1
            plus = f(x)[1] + s.weight_decay * x if s.control == "gradient" else own[i] - c + (x - y) / (K * eta)
            moved.append(y - x)
            control_moved.append(plus - own[i])
            own[i] = plus
        if S_t:
            x = x + s.eta_g * sum(moved) / len(S_t)
            c = c + len(S_t) / N * sum(control_moved) / len(S_t)
    return x, c, own


def errors(net, transcript, settings):
    """Largest differences of x and c to the printed algorithm, and of c to the mean of the c_i that count."""
    x, c, own = as_printed(PROBLEMS, THETA0, settings, counted_by_era(transcript))
    s = state(net, "aggregator")
    mean = sum(own.values()) / len(own)
    return np.abs(s.model - x).max(), np.abs(s.control - c).max(), np.abs(s.control - mean).max()


# Three tiers against the literal algorithm ----------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"control": "gradient"},
        {"batch": 0},
        {"participation": 0.5},
        {"local_steps": 3},
        {"local_steps": 11, "local_epochs": 0},
    ],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change, seed):
    settings = replace(BASIC, **change)
    net, transcript = play(SCAFFOLD, settings, 25, seed=seed)
    S = devices_counted(transcript)
    assert len(S) == 25 and all(len(s) == (3 if "participation" in change else 6) for s in S)
    assert max(errors(net, transcript, settings)) < 1e-11


def test_a_replaced_aggregator_is_not_believed():
    """It counts from round 0 again, and what it says was counted is not what this node remembers."""
    zero = np.zeros(LAYOUT.size)
    asked = scaffold.ModelAndControl(0, 2, {}, 0, zero, zero)
    assert recalled(Account(0, 12, 11), "h0", asked) is None
    assert recalled(Account(0, 12, 11), "h0", replace(asked, era=1)) == Account(1)


# What it is for -------------------------------------------------------------------------------------------------
def test_it_converges_to_the_minimiser_where_fedavg_drifts():
    """Many local steps on different least squares: FedAvg's fixed point is another than that of the mean loss."""
    net, _ = play(SCAFFOLD, STEADY, 300)
    x = state(net, "aggregator").model
    assert np.abs(sum(f(x)[1] for f in PROBLEMS.values()) / 6).max() < 1e-9
    basic = {k: getattr(STEADY, k) for k in ("eta_l", "decay", "weight_decay", "batch")}
    same = fedavg.Settings(**basic, local_epochs=STEADY.local_steps, weighting="uniform")
    drifted, _ = play(fedavg.FEDAVG, same, 300)
    w = fedavg.lowrank.unpack(LAYOUT, state(drifted, "aggregator").model)
    assert np.abs(sum(f(w)[1] for f in PROBLEMS.values()) / 6).max() > 1e-2
    for d in DEVICES:
        assert np.abs(state(net, d).tried - PROBLEMS[d](x)[1]).max() < 1e-8  # c_i is the local gradient there


def test_one_full_step_is_gradient_descent_whatever_the_control():
    """K = 1 over all samples with everybody: the control variates cancel in the mean."""
    settings = replace(STEADY, local_steps=1)
    net, _ = play(SCAFFOLD, settings, 4)
    x = THETA0
    for _ in range(4):
        x = x - 0.05 * sum(f(x)[1] for f in PROBLEMS.values()) / 6
    assert np.abs(state(net, "aggregator").model - x).max() < 1e-12


def test_in_float32_the_mean_stays_within_rounding():
    envs = envs_of(SCAFFOLD, BASIC, 25, np.float32)
    net, _ = play(SCAFFOLD, BASIC, 25, envs=envs)
    s = state(net, "aggregator")
    mean = sum(state(net, d).tried.astype(np.float64) for d in DEVICES) / 6
    assert s.control.dtype == s.model.dtype == state(net, "d0").tried.dtype == np.float32
    assert np.abs(mean - s.control).max() < 1e-5


# What crosses ---------------------------------------------------------------------------------------------------
def test_two_vectors_each_way_and_a_control_variate_is_not_sent_itself():
    _, transcript = play(SCAFFOLD, BASIC, 6)
    uploads = [m.total for _, _, m in transcript.crossed if isinstance(m, VectorSum)]
    assert uploads and {len(v) for v in uploads} == {2 * LAYOUT.size}
    halves = [
        (a, b, part) for a, b, m in transcript.crossed if isinstance(m, VectorSum) for part in np.split(m.total, 2)
    ]
    late = [s.tried for d in DEVICES for s in transcript.states[d][1:]]  # the first one is its own difference to zero
    assert len(late) == 30 and read_from_wires(replace(transcript, crossed=halves), late) == 0


def test_an_upload_of_another_length_is_refused():
    env = replace(envs_of(SCAFFOLD, BASIC, 1)["h0"], me="h0", here=("d0",))
    s, _ = SCAFFOLD.hospital.receive(env, SCAFFOLD.hospital.start(env)[0], "up", first_question())
    with pytest.raises(PeerError, match=f"d0 sent {LAYOUT.size} numbers, expected {2 * LAYOUT.size}"):
        SCAFFOLD.hospital.receive(env, s, "d0", VectorSum(THETA0, 1.0))


def first_question():
    return scaffold.ModelAndControl(0, 1, {}, 0, THETA0, np.zeros(LAYOUT.size))


def test_a_device_without_samples_is_not_in_the_mean():
    envs = envs_of(SCAFFOLD, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(SCAFFOLD, BASIC, 3, envs=envs)
    assert [p.devices for p in told(transcript, Progress)] == [5, 5, 5]
    assert not state(net, "d4").tried.any()


@pytest.mark.parametrize(
    ("key", "value"), [("eta_g", 0.0), ("control", "iii"), ("local_epochs", 0), ("local_steps", -1)]
)
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{"local_steps": 0, key: value})
