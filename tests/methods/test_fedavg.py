"""FedAvg and its relatives over three tiers against the literal algorithm."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedavg import FEDAVG, Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
from tests.methods import literal
from tests.methods.problems import (
    DEVICES,
    HASTY,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    THETA0,
    devices_counted,
    envs_of,
    play,
    state,
    told,
)

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2)
VARIANTS = {
    "plain": BASIC,
    "uniform": replace(BASIC, weighting="uniform"),
    "fedprox": replace(BASIC, proximal=0.7),
    "gpgd": replace(BASIC, server_penalty="nuclear", lam=0.5),
    "lpgd": replace(BASIC, local_penalty="nuclear", lam=0.1),
    "sparse": replace(BASIC, server_penalty="l1", local_penalty="l1", lam=0.1),
    "full batch": replace(BASIC, batch=0),
    "a few": replace(BASIC, participation=0.5),
}


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def error(net, transcript, settings):
    return np.abs(model(net) - literal.fedavg(PROBLEMS, THETA0, settings, devices_counted(transcript))[-1]).max()


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_agrees_with_the_literal_algorithm(settings):
    net, transcript = play(FEDAVG, settings, 12)
    assert len(devices_counted(transcript)) == 12
    assert error(net, transcript, settings) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDAVG, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    S = devices_counted(transcript)
    assert len(S) == 30 and sum(map(len, S)) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC) < 1e-12


def test_a_silent_device_and_everybody_away():
    faults = NetworkFaults(away={"d5": [(0, inf)], **{d: [(20, 45)] for d in DEVICES[:5]}})
    net, transcript = play(FEDAVG, BASIC, 20, faults=faults, policies=HASTY)
    S = devices_counted(transcript)
    assert [] in S and S[-1] == list(DEVICES[:5])
    assert error(net, transcript, BASIC) < 1e-12


def test_the_mean_is_weighted_with_samples():
    """One full-batch step on everything is gradient descent on the mean over all samples."""
    settings = replace(BASIC, batch=0, local_epochs=1, weight_decay=0.0)
    net, _ = play(FEDAVG, settings, 1)
    n = sum(len(f.b) for f in PROBLEMS.values())
    gradient = sum(len(f.b) * f(THETA0)[1] for f in PROBLEMS.values()) / n
    assert np.abs(model(net) - (THETA0 - 0.1 * gradient)).max() < 1e-13


def test_a_device_without_samples_is_not_in_the_mean():
    envs = envs_of(FEDAVG, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(FEDAVG, BASIC, 3, envs=envs)
    S = [[d for d in s if d != "d4"] for s in devices_counted(transcript)]
    assert [p.devices for p in told(transcript, Progress)] == [5, 5, 5]
    assert np.abs(model(net) - literal.fedavg(PROBLEMS, THETA0, BASIC, S)[-1]).max() < 1e-12


def test_gpgd_sends_factors():
    net, _ = play(FEDAVG, replace(BASIC, server_penalty="nuclear", lam=5.0), 3)
    packed = state(net, "aggregator").model
    assert max(packed.ranks) >= 0 and packed.values.size < LAYOUT.size


def test_fine_tuning_makes_a_personal_model_for_evaluation_only():
    settings = replace(BASIC, fine_tune_epochs=3)
    net, transcript = play(evaluated(FEDAVG), settings, 5)
    (report,) = told(transcript, Report)
    assert report.sums["personal_correct"] > report.sums["global_correct"]
    (models,) = told(transcript, Models, "d1")
    v = models.models["global"]
    for batch in literal.shuffled(7, 5, "d1", 2, len(PROBLEMS["d1"].b), 16, 3):
        v = v - settings.eta(5) * (PROBLEMS["d1"](v, batch)[1] + settings.weight_decay * v)
    assert np.abs(models.models["personal"] - v).max() < 1e-13
    assert error(net, transcript, settings) < 1e-12 or "personal" not in report.sums


def test_without_fine_tuning_there_is_only_the_global_model():
    _, transcript = play(evaluated(FEDAVG), BASIC, 2)
    (models,) = told(transcript, Models, "d1")
    assert list(models.models) == ["global"]


@pytest.mark.parametrize(
    "key, value",
    [
        *[("proximal", -1.0), ("momentum", 1.5), ("lam", -1.0), ("fine_tune_epochs", -1)],
        *[("weighting", "size"), ("server_penalty", "x")],
    ],
)
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
