"""FedBCD reaches the optimum of eq. (2); FedBCD-I its own fixed point; both reduce to FedAvg and FedProx."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.methods import fedavg
from edge_sdk.methods.fedbcd import equations as fedbcd_equations
from edge_sdk.methods.fedbcd.settings import OfflineSettings, Settings
from edge_sdk.methods.shared.aggregation.gather import Sum

RANDOM = np.random.default_rng(5)
NAMES = ["a", "b", "c", "d", "e"]


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


# Optima ---------------------------------------------------------------------------------------------------------
def quadratics(count=6, n=3):
    """g_i = 1/2 (x - b_i)' H_i (x - b_i)."""
    rng, made = np.random.default_rng(3), []
    for _ in range(count):
        q = rng.normal(size=(n, n))
        made.append((q @ q.T / n + 0.5 * np.eye(n), rng.normal(size=n)))
    return made


def grad_of(H, b):
    return lambda x, indices: (float((x - b) @ H @ (x - b)) / 2, H @ (x - b))


def optimum(problems, gammas):
    """x_i = (H_i + gamma_i I)^-1 (H_i b_i + gamma_i z), with z such that the gradients of all g_i sum to zero."""
    eye = np.eye(len(problems[0][1]))
    shares = [g * np.linalg.solve(H + g * eye, H) for (H, _), g in zip(problems, gammas, strict=True)]
    z = np.linalg.solve(sum(shares), sum(m @ b for m, (_, b) in zip(shares, problems, strict=True)))
    x = [np.linalg.solve(H + g * eye, H @ b + g * z) for (H, b), g in zip(problems, gammas, strict=True)]
    return z, x


GAMMAS = (1.0, 0.5, 2.0, 1.5, 1.0, 0.7)
EXACT = Settings(eta_x=0.15, zeta=0.6, unit="step", batch=0, feasible="free", local_steps=5)


def descend(problems, gammas, settings, rounds, eta_z, active=None, start=None):
    """Algorithm 1, sync, on the module's equations; the objective after each round."""
    z, x = (np.zeros(3), [np.zeros(3)] * len(problems)) if start is None else start
    pairs, rng, path = [(v, v) for v in x], np.random.default_rng(0), []
    for _ in range(rounds):
        for i in range(len(problems)) if active is None else rng.choice(len(problems), active, replace=False):
            K = [None] * int(rng.integers(1, settings.local_steps + 1))
            pairs[i] = fedbcd_equations.edge_update(grad_of(*problems[i]), settings, *pairs[i], K, z, gammas[i])[:2]
        S = sum(g * v for g, (v, _) in zip(gammas, pairs, strict=True))
        z = fedbcd_equations.cloud_step(z, Sum(S, sum(gammas)), eta_z)
        values = [grad_of(*p)(v, None)[0] for p, (v, _) in zip(problems, pairs, strict=True)]
        path.append(sum(values) + sum(g / 2 * np.square(v - z).sum() for g, (v, _) in zip(gammas, pairs, strict=True)))
    return z, [v for v, _ in pairs], path


@pytest.mark.parametrize("scale", [1.0, 0.05, 20.0])
def test_sync_with_random_devices_and_steps_reaches_the_optimum(scale):
    """Invariants 9 and 10: stale copies cause no bias."""
    problems, gammas = quadratics(), tuple(scale * g for g in GAMMAS)
    settings = replace(EXACT, eta_x=min(0.15, 1 / (5 + 2 * scale)))
    z, x, _ = descend(problems, gammas, settings, 3000, 0.5 / sum(gammas), active=3)
    best_z, best_x = optimum(problems, gammas)
    assert off(z, best_z) < 1e-11 and off(x, best_x) < 1e-11
    assert off(sum(H @ (v - b) for (H, b), v in zip(problems, x, strict=True)), 0) < 1e-9
    common = np.linalg.solve(sum(H for H, _ in problems), sum(H @ b for H, b in problems))
    assert scale < 20 or off(x, common) < 0.4
    assert scale > 0.05 or off(x, [b for _, b in problems]) < 0.3


def test_the_optimum_is_a_fixed_point_for_any_steps_and_momentum():
    problems, best = quadratics(), optimum(quadratics(), GAMMAS)
    z, x, _ = descend(problems, GAMMAS, replace(EXACT, zeta=0.9), 20, 0.1, start=best)
    assert off(z, best[0]) < 1e-13 and off(x, best[1]) < 1e-13


def test_the_objective_never_rises():
    """Invariant 8: all devices, exact gradients, no momentum, steps within the limits."""
    problems = quadratics()
    lipschitz = max(np.linalg.eigvalsh(H)[-1] for H, _ in problems)
    settings = replace(EXACT, zeta=0.0, eta_x=1 / (lipschitz + max(GAMMAS)))
    for acting in (0.5, 1.0, 2.0):
        _, _, path = descend(problems, GAMMAS, settings, 60, acting / sum(GAMMAS))
        assert max(np.diff(path)) <= 1e-12


def stationarity_gap(s, x, slope):
    """max over y in X of <slope, x - y>: 0 if and only if x is stationary, where X is the box."""
    return float(np.maximum(slope * (x + s.bound), slope * (x - s.bound)).sum())


def test_the_gap_is_zero_where_nothing_can_be_gained():
    s = Settings(bound=2.0)
    x, slope = np.array([2.0, -2.0, 0.5]), np.array([-3.0, 1.0, 0.0])
    assert stationarity_gap(s, x, slope) == 0
    worst = max(slope @ (np.ones(3) - y) for y in np.array(np.meshgrid(*[[-2, 2]] * 3)).reshape(3, -1).T)
    assert np.isclose(stationarity_gap(s, np.ones(3), slope), worst)


@pytest.mark.parametrize("feasible", ["box", "ball", "free"])
def test_projection(feasible):
    s, x = Settings(feasible=feasible, bound=1.5), RANDOM.normal(size=4) * 3
    p = fedbcd_equations.project(s, x)
    others = [fedbcd_equations.project(s, v) for v in RANDOM.normal(size=(500, 4)) * 3]
    assert all(np.square(p - x).sum() <= np.square(y - x).sum() + 1e-12 for y in others)
    assert off(fedbcd_equations.project(s, p), p) < 1e-15 and (feasible == "free") == (p is x)


# FedBCD-I and the reductions ------------------------------------------------------------------------------------
def test_fixed_point_of_fedbcd_i():
    """Invariant 12: at K = 1 without momentum grad g(x') + gamma / ((1 - gamma) eta_x) (x' - z) = 0: 50, not 0.2."""
    (H, b), z = quadratics()[0], np.array([0.3, -0.2, 0.1])
    s = OfflineSettings(eta_x=0.005, zeta=0.0, gamma=0.2, feasible="free")
    x = np.zeros(3)
    for _ in range(400):
        x, before, _ = fedbcd_equations.edge_update(grad_of(H, b), s, x, x, [None])
        x, _ = fedbcd_equations.pull(s, x, before, z, s.gamma, 1)
    assert off(H @ (x - b) + 50 * (x - z), 0) < 1e-12


def test_with_gamma_one_fedbcd_i_never_moves():
    x, _ = fedbcd_equations.pull(EXACT, np.ones(3), np.ones(3), np.array([0.3, 0.2, 0.1]), 1.0, 1)
    assert off(x, [0.3, 0.2, 0.1]) < 1e-15


def test_pull_in_closed_form():
    x, z = np.array([1.0, -1.0]), np.array([0.5, 0.25])
    assert off(fedbcd_equations.pull(Settings(), x, x, z, 0.2, 5)[0] - z, 0.8**5 * (x - z)) < 1e-15


@pytest.mark.parametrize("mu", [0.0, 5.0])
def test_reductions_to_fedavg_and_fedprox(mu):
    """Invariant 11: from x = x_prev = z, without momentum, mean of those active."""
    (H, b), z = quadratics()[0], np.array([0.3, -0.2, 0.1])
    s = replace(EXACT, zeta=0.0, eta_x=0.02)
    x, _, loss = fedbcd_equations.edge_update(grad_of(H, b), s, z, z, [None] * 4, z if mu else None, mu)
    theirs = fedavg.Settings(eta_l=0.02, decay=1.0, weight_decay=0.0, batch=0, local_epochs=4, proximal=mu)
    env = fedavg.Env(me="d", settings=theirs, grad_fn=grad_of(H, b), samples=9)
    w, their_loss = fedavg.client_update(env, 0, z, 4, 1)
    assert off(x, w) < 1e-15 and np.isclose(loss, their_loss)
    uploads = [Sum(x, 1.0), Sum(2 * x, 1.0)]
    total = Sum(uploads[0].total + uploads[1].total, 2.0, 2)
    assert (
        off(fedbcd_equations.cloud_step(z, total, 0.5), 1.5 * x) < 1e-15
    )  # eta_z times the sum of gamma_i is 1: their mean


@pytest.mark.parametrize("mu", [0.0, 5.0])
def test_fedprox_with_the_accelerated_solver(mu):
    """FedProx as in the experiments: eq. (4) from x = x_prev = z, K epochs of K uniform on 1..K_x."""
    (H, b), z = quadratics()[0], np.array([0.3, -0.2, 0.1])
    s = replace(EXACT, zeta=0.9, eta_x=0.02)
    known = fedavg.Settings(eta_l=0.02, decay=1.0, weight_decay=0.0, batch=0, local_epochs=5, proximal=mu)
    env = fedavg.Env(me="d", settings=replace(known, momentum=0.9), grad_fn=grad_of(H, b), samples=9)
    w, loss = fedavg.client_update(env, 0, z, 4, fedavg.TRAINING)
    x, _, ours = fedbcd_equations.edge_update(grad_of(H, b), s, z, z, [None] * 4, z if mu else None, mu)
    assert off(x, w) < 1e-15 and np.isclose(loss, ours)
    drawn = replace(env, settings=replace(env.settings, draw_epochs=True))
    found = {fedavg.client_update(drawn, round, z, 5, fedavg.TRAINING)[0].tobytes() for round in range(60)}
    paths = {fedavg.client_update(env, 0, z, k, fedavg.TRAINING)[0].tobytes() for k in range(1, 6)}
    assert found == paths
