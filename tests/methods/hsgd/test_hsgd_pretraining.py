"""HSGD's pretraining: constants from mini-batches, in float32, with a regulariser, and with answers that are late."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.round import Policy
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd import plan as hsgd_plan
from edge_sdk.methods.hsgd.aggregator import AggregatorState, plan_round
from edge_sdk.methods.hsgd.plan import Constants, Estimate
from edge_sdk.methods.hsgd.settings import Plan, Settings
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.hsgd_runs import KNOWN, NET
from tests.methods.hsgd.split_problems import SEVERAL, THETA0, envs_of, groups, play

PRETRAINING = Settings(P=4, Q=2, eta=0.3, pretraining=4, pretraining_eta=0.001)
LARGE = groups((3, 2), lambda i: 12)


def estimate(settings, data=SEVERAL, **more):
    net, _ = play(data, settings, 6, **more)
    return net.nodes["aggregator"].record.state.estimate


def test_all_rounds_of_the_pretraining_have_one_mini_batch():
    """Gradients of different mini-batches differ by their noise, whatever the models; rho would be noise / step."""
    drawn, whole = (estimate(replace(PRETRAINING, batch=b), LARGE).rho for b in (4, 0))
    assert 0.1 * whole < drawn < 10 * whole


@pytest.mark.parametrize("eta", [1e-3, 1e-4])
def test_small_steps_do_not_round_gradients_away(eta):
    settings = replace(PRETRAINING, pretraining_eta=eta)
    data = {h: {d: as_float32(s) for d, s in ds.items()} for h, ds in SEVERAL.items()}
    single, double = estimate(settings, data, theta0=THETA0.astype(np.float32)), estimate(settings)
    assert np.isclose(single.rho, double.rho, rtol=0.05) and np.isclose(single.first, double.first, rtol=1e-5)
    assert np.allclose(single.variance, double.variance, rtol=1e-3)


def as_float32(samples):
    return replace(samples, x1=samples.x1.astype(np.float32), x2=samples.x2.astype(np.float32))


def test_the_regulariser_is_in_the_value_and_in_the_gradient_but_makes_no_noise():
    settings, mu = replace(PRETRAINING, alpha=0.5), 3.0
    with_r, without = estimate(replace(settings, mu=mu, pretraining=1)), estimate(replace(settings, pretraining=1))
    own = THETA0[NET.split.s0 :]
    assert np.isclose(with_r.f0, without.f0 + mu / 2 * (own @ own))
    pull = mu * np.concatenate([np.zeros(NET.split.s0), own])
    slope = literal.grad(lambda v: literal.objective(NET, SEVERAL, v), THETA0)
    assert np.isclose(with_r.first, np.linalg.norm(slope + pull), rtol=1e-6)
    assert np.allclose(with_r.variance, without.variance, rtol=1e-6)


@pytest.mark.parametrize("question", range(3, 7))
def test_an_answer_that_comes_too_late_does_not_spoil_the_estimate(question):
    """An embedding (odd questions) or a gradient (even ones) is missing in one round of the four."""
    policies = {"aggregator": Policy(quorum=1, deadline=40.0), "hospital": Policy(deadline=4.0)}
    late = NetworkFaults(repeat=0.0, slow={("d1", question): 60.0})
    calm = estimate(PRETRAINING, policies=policies, faults=NetworkFaults(repeat=0.0)).rho
    assert estimate(PRETRAINING, policies=policies, faults=late).rho < 1.5 * calm


def test_gradients_of_different_devices_say_nothing_of_rho():
    scores = {"noise_0": 0.0, "noise_1": 0.0, "noise_2": 0.0, "value": 1.0}
    blocks, e = (slice(0, 1), slice(1, 2), slice(2, 3)), Estimate()
    for t, who in enumerate((5.0, 5.0, 7.0)):
        e = hsgd_plan.update_estimate(e, np.full(3, t / 1), np.full(3, [1.0, 2.0, 900.0][t]), blocks, scores, who)
    assert np.isclose(e.rho, 1.0) and e.steps == 3


def test_a_step_is_never_infinite():
    base = Plan(4, 2, 0.1)
    planned = hsgd_plan.choose_plan(("size", "rate"), base, Constants(1.0, 0.0, 0.5, 0.3), 2, 100, 1.0)
    assert planned.plan == base and not planned.reachable


def test_settings_that_cannot_be_estimated_are_refused():
    with pytest.raises(UsageError, match="pretraining = 1"):
        Settings(strategies=("rate",), pretraining=1)
    Settings(strategies=("rate",), pretraining=1, rho=1.0)
    with pytest.raises(UsageError, match="iterations"):
        Settings(strategies=("size",), **KNOWN)


def test_T_is_the_number_of_iterations_that_train():
    """Not those of the pretraining; and S2, which chooses how many a round has, is told how many there are in all."""
    settings = replace(PRETRAINING, strategies=("relation",), target=3.0, **KNOWN)
    env = replace(envs_of(SEVERAL, NET, THETA0, settings, 10)["aggregator"], me="aggregator")
    planned = plan_round(env, AggregatorState(THETA0, settings.plan, round=4))
    assert planned.bound == hsgd_plan.bound(Constants(**KNOWN), planned.plan, (10 - 4) * 4)
    with pytest.raises(UsageError, match="give their number, iterations"):
        replace(settings, strategies=("size",))
