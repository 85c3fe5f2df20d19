"""Ditto over three tiers against its algorithm as printed; v beside FedAvg's own w; what leaves a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.ditto import DITTO, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
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

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2, personal_epochs=3, nearness=0.7)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def ditto(problems, w, s, S, ran):
    """Algorithm 1, in one loop. Returns w, and v of each device that ever trained."""
    path, v = literal.fedavg(problems, w, s, S), {}
    for t, ran_t in enumerate(ran):
        w, eta = path[t], s.eta_l * s.decay**t
        for i in ran_t:
            v.setdefault(i, w)
            for batch in literal.shuffled(SEED, t, i, 2, len(problems[i].b), s.batch, s.personal_epochs):
                gradient = problems[i](v[i], batch)[1] + s.weight_decay * v[i]
                v[i] = v[i] - eta * (gradient + s.nearness * (v[i] - w))
    return path[-1], v


def agrees(net, transcript, settings):
    w, v = ditto(PROBLEMS, THETA0, settings, devices_counted(transcript), devices_that_ran(transcript))
    return max([np.abs(model(net) - w).max(), *(np.abs(state(net, d).v - v[d]).max() for d in v)])


@pytest.mark.parametrize(
    "change",
    [{}, {"batch": 0}, {"participation": 0.5}, {"weighting": "uniform"}, {"proximal": 0.7}, {"nearness": 0.0}],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change):
    settings = replace(BASIC, **change)
    net, transcript = play(DITTO, settings, 12)
    assert len(devices_counted(transcript)) == 12
    assert agrees(net, transcript, settings) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(DITTO, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert agrees(net, transcript, BASIC) < 1e-12


def test_w_is_that_of_fedavg_to_the_bit_whatever_v_does():
    basic = {k: getattr(BASIC, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")}
    alone, _ = play(fedavg.FEDAVG, fedavg.Settings(**basic), 8)
    for change in ({}, {"nearness": 9.0}, {"personal_epochs": 0}):
        net, _ = play(DITTO, replace(BASIC, **change), 8)
        assert model(net).tobytes() == model(alone).tobytes()


def test_v_tends_to_the_minimiser_of_h():
    """With w fixed (no local epochs) the gradient of f_i(v) + lambda/2 ||v - w||^2 vanishes."""
    still = replace(BASIC, local_epochs=0, batch=0, decay=1.0, weight_decay=0.0, personal_epochs=40)
    net, _ = play(DITTO, still, 40)
    for d in DEVICES:
        v = state(net, d).v
        assert np.abs(PROBLEMS[d](v)[1] + still.nearness * (v - THETA0)).max() < 1e-9
        assert np.abs(v - THETA0).max() > 0.1


def test_v_is_judged_beside_w_and_never_crosses_a_wire():
    net, transcript = play(evaluated(DITTO), BASIC, 6)
    (report,) = told(transcript, Report)
    assert report.sums["personal_correct"] > report.sums["global_correct"]
    assert "personal_accuracy" in told(transcript, Progress)[0].sums
    assert (
        read_from_wires(transcript, [s.inner.v for d in DEVICES for s in transcript.states[d] if s.inner.v is not None])
        == 0
    )
    assert read_from_wires(transcript, [3 * model(net)]) == 1  # as it should see
    for d in DEVICES:
        (models,) = told(transcript, Models, d)
        assert models.models["personal"].tobytes() == state(net, d).v.tobytes()


def test_a_device_that_never_trained_has_w_for_its_own():
    envs = envs_of(DITTO, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(evaluated(DITTO), BASIC, 3, envs=envs)
    assert [p.devices for p in told(transcript, Progress)] == [5, 5, 5]
    (models,) = told(transcript, Models, "d4")
    assert models.models["personal"].tobytes() == models.models["global"].tobytes() == model(net).tobytes()


@pytest.mark.parametrize(("key", "value"), [("nearness", -1.0), ("personal_epochs", -1), ("fine_tune_epochs", 2)])
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
