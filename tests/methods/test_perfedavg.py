"""Per-FedAvg: FedAvg whose local steps follow meta-gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods.perfedavg import PERFEDAVG, Env, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
from edge_sdk.methods.shared.training import meta
from tests.methods import literal
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, SEED, THETA0, envs_of, play, state, told

BASIC = Settings(alpha=0.05, eta_l=0.05, batch=16, local_epochs=2)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def meta_step(f, s, v, support, query, t):
    r = f(v - s.alpha * f(v, support)[1], query)[1]
    if s.hvp == "none":
        return r
    d = s.delta(t)
    return r - s.alpha * (f(v + d * r, support)[1] - f(v - d * r, support)[1]) / (2 * d)


def as_printed(s, rounds, devices=DEVICES):
    w = THETA0
    for t in range(rounds):
        local = {}
        for d in devices:
            f, v = PROBLEMS[d], w
            sets = meta.support_and_query(Env(me=d, seed=SEED, samples=len(f.b)), s.support)
            for batch in literal.shuffled(SEED, t, d, 1, len(f.b), s.batch, s.local_epochs):
                cut = len(batch) // 2
                support, query = (batch[:cut], batch[cut:]) if s.batch else sets
                v = v - s.eta_l * s.decay**t * meta_step(f, s, v, support, query, t)
            local[d] = v
        n = {d: len(PROBLEMS[d].b) if s.weighting == "samples" else 1 for d in devices}
        w = sum(n[d] * local[d] for d in devices) / sum(n.values())
    return w


@pytest.mark.parametrize("batch", [0, 16])
@pytest.mark.parametrize("hvp", ["central", "none"])
def test_agrees_with_the_algorithm_as_printed(batch, hvp):
    s = replace(BASIC, batch=batch, hvp=hvp)
    net, transcript = play(PERFEDAVG, s, 6)
    assert np.abs(model(net) - as_printed(s, 6)).max() < 1e-12
    assert [m.devices for m in told(transcript, Progress)] == [6] * 6


def test_every_user_weighs_the_same_as_in_the_paper():
    assert Settings().weighting == "uniform"
    s = replace(BASIC, weighting="samples", batch=0)
    weighted, plain = model(play(PERFEDAVG, s, 3)[0]), model(play(PERFEDAVG, replace(s, weighting="uniform"), 3)[0])
    assert np.abs(weighted - as_printed(s, 3)).max() < 1e-12 and np.abs(weighted - plain).max() > 1e-3


def test_alpha_zero_is_fedavg_on_the_second_halves():
    s = replace(BASIC, alpha=0.0, batch=0, decay=0.9, weighting="samples")
    net, _ = play(PERFEDAVG, s, 5)
    w = THETA0
    for t in range(5):
        local = {}
        for d in DEVICES:
            _, query = meta.support_and_query(Env(me=d, seed=SEED, samples=len(PROBLEMS[d].b)), 0.5)
            v = w
            for _ in range(2):
                v = v - 0.05 * 0.9**t * PROBLEMS[d](v, query)[1]
            local[d] = v
        n = {d: len(PROBLEMS[d].b) for d in DEVICES}
        w = sum(n[d] * local[d] for d in DEVICES) / sum(n.values())
    assert np.abs(model(net) - w).max() < 1e-12


def test_devices_that_never_train_adapt_the_model_of_the_others():
    s = replace(BASIC, unseen=0.34, adapt_steps=2, adapt_rate=0.02)
    net, transcript = play(evaluated(PERFEDAVG), s, 4)
    unseen = [d for d in DEVICES if "unseen" in told(transcript, Models, d)[0].models]
    assert len(unseen) == 2
    assert np.abs(model(net) - as_printed(s, 4, [d for d in DEVICES if d not in unseen])).max() < 1e-12
    (report,) = told(transcript, Report)
    assert report.sums["unseen_devices"] == 2 and report.sums["devices"] == 6
    (models,) = told(transcript, Models, unseen[0])
    f, phi = PROBLEMS[unseen[0]], models.models["global"]
    support, _ = meta.support_and_query(Env(me=unseen[0], seed=SEED, samples=len(f.b)), 0.5)
    for _ in range(2):
        phi = phi - 0.02 * f(phi, support)[1]
    assert np.abs(models.models["unseen"] - phi).max() < 1e-12


def test_a_device_with_one_sample_cannot_take_part():
    envs = envs_of(PERFEDAVG, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=1)
    _, transcript = play(PERFEDAVG, BASIC, 3, envs=envs)
    assert [m.devices for m in told(transcript, Progress)] == [5, 5, 5]


@pytest.mark.parametrize(("key", "value"), [("batch", 1), ("fine_tune_epochs", 2), ("alpha", -1.0), ("eta_l", 0.0)])
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
