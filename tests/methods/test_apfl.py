"""APFL over three tiers against its algorithm as printed, with alpha learned and fixed; w beside FedAvg's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import apfl, fedavg
from edge_sdk.methods.apfl import APFL, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Report, evaluated
from tests.methods import literal
from tests.methods.problems import (
    DEVICES,
    HASTY,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    SEED,
    THETA0,
    devices_counted,
    devices_that_ran,
    envs_of,
    play,
    state,
    told,
)
from tests.methods.spy import read_from_wires

BASIC = Settings(eta_l=0.05, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def as_printed(problems, w, s, S, ran):
    """Algorithm 1 in one loop, alpha by equation (10) with the first batch of a round. Returns w, v, alpha."""
    v, alpha = {}, {}
    for t, S_t in enumerate(S):
        eta, local = s.eta_l * s.decay**t, {}
        for i in ran[t]:
            f, w_i, v_i, a = problems[i], w, v.get(i, w), alpha.get(i, s.alpha)
            for k, batch in enumerate(literal.shuffled(SEED, t, i, 1, len(f.b), s.batch, s.local_epochs)):
                mixed = f(a * v_i + (1 - a) * w_i, batch)[1]
                slope = (v_i - w_i) @ mixed
                v_i, w_i = (
                    v_i - eta * (a * mixed + s.weight_decay * v_i),
                    w_i - eta * (f(w_i, batch)[1] + s.weight_decay * w_i),
                )
                if s.adaptive and k == 0:
                    a = np.clip(a - eta * slope, 0, 1)
            local[i], v[i], alpha[i] = w_i, v_i, a
        if S_t:
            n = {i: len(problems[i].b) if s.weighting == "samples" else 1 for i in S_t}
            w = sum(n[i] * local[i] for i in S_t) / sum(n.values())
    return w, v, alpha


def error(net, transcript, s):
    w, v, alpha = as_printed(PROBLEMS, THETA0, s, devices_counted(transcript), devices_that_ran(transcript))
    own = [max(np.abs(state(net, d).v - v[d]).max(), abs(state(net, d).alpha - alpha[d])) for d in v]
    return max([np.abs(model(net) - w).max(), *own])


@pytest.mark.parametrize(
    "change",
    [{}, {"batch": 0}, {"participation": 0.5}, {"weighting": "samples"}, {"adaptive": False}, {"alpha": 1.0}],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change):
    s = replace(BASIC, **change)
    net, transcript = play(APFL, s, 12)
    assert error(net, transcript, s) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(APFL, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC) < 1e-12


def test_every_device_finds_an_alpha_of_its_own():
    net, _ = play(APFL, BASIC, 20)
    found = [state(net, d).alpha for d in DEVICES]
    assert len(set(found)) == 6 and all(0 <= a <= 1 for a in found)
    fixed, _ = play(APFL, replace(BASIC, adaptive=False), 3)
    assert [state(fixed, d).alpha for d in DEVICES] == [0.5] * 6


def test_alpha_follows_the_slope_of_the_loss_in_it():
    """Equation (10) against a difference quotient, and its bounds."""
    f, rng = PROBLEMS["d0"], np.random.default_rng(0)
    v, w = rng.normal(size=(2, LAYOUT.size))
    gradient = f(apfl.mixture(0.4, v, w))[1]
    slope = (f(apfl.mixture(0.4 + 1e-6, v, w))[0] - f(apfl.mixture(0.4 - 1e-6, v, w))[0]) / 2e-6
    assert np.isclose(apfl.adapted(0.4, v, w, gradient, 1e-3), 0.4 - 1e-3 * slope, atol=1e-9)
    assert apfl.adapted(0.4, v, w, gradient, 1e6) in (0.0, 1.0)


def test_w_is_that_of_fedavg():
    basic = {k: getattr(BASIC, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs", "weighting")}
    plain, _ = play(fedavg.FEDAVG, fedavg.Settings(**basic), 8)
    net, _ = play(APFL, BASIC, 8)
    assert np.abs(model(net) - model(plain)).max() < 1e-12


def test_with_alpha_one_a_device_trains_alone():
    s = replace(BASIC, alpha=1.0, adaptive=False)
    net, _ = play(APFL, s, 6)
    for d in DEVICES:
        v = THETA0
        for t in range(6):
            for batch in literal.shuffled(SEED, t, d, 1, len(PROBLEMS[d].b), 16, 2):
                v = v - s.eta(t) * (PROBLEMS[d](v, batch)[1] + s.weight_decay * v)
        assert np.abs(state(net, d).v - v).max() < 1e-12


def test_the_mixture_is_judged_and_never_crosses_a_wire():
    net, transcript = play(evaluated(APFL), replace(BASIC, decay=1.0), 30)
    (report,) = told(transcript, Report)
    assert report.sums["personal_loss"] < report.sums["global_loss"]
    for d in DEVICES:
        (found,) = told(transcript, Models, d)
        s = state(net, d)
        mixed = s.alpha * s.v + (1 - s.alpha) * found.models["global"]
        assert np.abs(found.models["personal"] - mixed).max() < 1e-14
    assert read_from_wires(transcript, [s.inner.v for d in DEVICES for s in transcript.states[d]]) == 0


def test_a_device_without_samples_has_w_for_its_own():
    envs = envs_of(APFL, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(evaluated(APFL), BASIC, 3, envs=envs)
    (found,) = told(transcript, Models, "d4")
    assert found.models["personal"].tobytes() == found.models["global"].tobytes() == model(net).tobytes()


@pytest.mark.parametrize(
    ("key", "value"),
    [("alpha", 1.5), ("alpha", float("nan")), ("proximal", 0.1), ("momentum", 0.5), ("fine_tune_epochs", 2)],
)
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
