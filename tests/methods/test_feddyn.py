"""FedDyn over three tiers against Algorithm 1, also where messages and disks are lost; its limit; FedSLR beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import feddyn
from edge_sdk.methods.feddyn import FEDDYN, Settings
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods import literal
from tests.methods.lost_disks import counted_by_era
from tests.methods.problems import (
    DEVICES,
    HASTY,
    LAYOUT,
    LOSSY,
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

BASIC = Settings(eta_l=0.05, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2, alpha=2.0)
STEADY = Settings(eta_l=0.1, decay=1.0, weight_decay=0.0, batch=0, local_epochs=20, alpha=2.0)


def as_printed(problems, theta, s, S):
    """Algorithm 1 in one loop. `S`: round -> devices counted; None: all gradients begin again."""
    h, g = np.zeros_like(theta), {k: np.zeros_like(theta) for k in problems}
    for t, P in enumerate(S):
        if P is None:
            h, g = np.zeros_like(theta), {k: np.zeros_like(theta) for k in problems}
            continue
        eta, local = s.eta_l * s.decay**t, {}
        for k in P:
            v = theta
            for batch in literal.shuffled(SEED, t, k, 1, len(problems[k].b), s.batch, s.local_epochs):
                gradient = problems[k](v, batch)[1] + s.weight_decay * v
                v = v - eta * (gradient - g[k] + s.alpha * (v - theta))
            local[k], g[k] = v, g[k] - s.alpha * (v - theta)
        if P:
            h = h - s.alpha / len(problems) * sum(local[k] - theta for k in P)
            theta = sum(local.values()) / len(P) - h / s.alpha
    return theta, h, g


def errors(net, transcript, settings):
    """Largest differences of theta and h to the printed algorithm, and of h to the mean of the g_k that count."""
    theta, h, g = as_printed(PROBLEMS, THETA0, settings, counted_by_era(transcript))
    s = state(net, "aggregator")
    return np.abs(s.model - theta).max(), np.abs(s.gradient - h).max(), np.abs(s.gradient - sum(g.values()) / 6).max()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("change", [{}, {"batch": 0}, {"participation": 0.5}, {"alpha": 5.0}], ids=str)
def test_agrees_with_the_algorithm_as_printed(change, seed):
    settings = replace(BASIC, **change)
    net, transcript = play(FEDDYN, settings, 25, seed=seed)
    S = devices_counted(transcript)
    assert len(S) == 25 and all(len(s) == (3 if "participation" in change else 6) for s in S)
    assert max(errors(net, transcript, settings)) < 1e-11


def test_it_converges_to_the_minimiser_of_the_mean_loss():
    net, _ = play(FEDDYN, STEADY, 200)
    theta = state(net, "aggregator").model
    assert np.abs(sum(f(theta)[1] for f in PROBLEMS.values()) / 6).max() < 1e-8
    for d in DEVICES:
        assert np.abs(state(net, d).tried - PROBLEMS[d](theta)[1]).max() < 1e-7  # what the paper calls it


@pytest.mark.parametrize("lost", [{}, {"faults": LOSSY, "policies": HASTY, "seed": 2}], ids=["quiet", "lossy"])
def test_it_is_fedslr_without_penalties_and_second_phase(lost):
    """Two independent ways to keep the mean consistent where answers are lost, and one result."""
    shared = {k: getattr(BASIC, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")}
    other = fedslr.Settings(**shared, eta_g=1 / BASIC.alpha, global_penalty="none", personal_epochs=0)
    mine, transcript = play(FEDDYN, replace(BASIC, participation=0.5), 25, **lost)
    theirs, beside = play(fedslr.FEDSLR, replace(other, participation=0.5), 25, **lost)
    assert devices_counted(transcript) == devices_counted(beside)
    w = lowrank.unpack(LAYOUT, state(theirs, "aggregator").model)
    assert np.abs(state(mine, "aggregator").model - w).max() < 1e-11


def test_g_never_crosses_a_wire_and_an_upload_is_as_long_as_theta():
    _, transcript = play(FEDDYN, BASIC, 6)
    uploads = [m.total for _, _, m in transcript.crossed if isinstance(m, feddyn.VectorSum)]
    assert {len(v) for v in uploads} == {LAYOUT.size}
    late = [s.tried for d in DEVICES for s in transcript.states[d][1:]]  # the first is a difference of two messages
    assert len(late) == 30 and read_from_wires(transcript, late) == 0


def test_a_device_without_samples_is_not_in_the_mean():
    envs = envs_of(FEDDYN, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(FEDDYN, BASIC, 3, envs=envs)
    assert [p.devices for p in told(transcript, Progress)] == [5, 5, 5]
    assert not state(net, "d4").tried.any()


@pytest.mark.parametrize(("key", "value"), [("alpha", 0.0), ("alpha", float("inf")), ("eta_l", -1.0)])
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
