"""HSGD's adaptive strategies: the plan of each round, the estimates it rests on, and I15."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest

from edge_sdk.methods.hsgd import aggregator as hsgd_aggregator
from edge_sdk.methods.hsgd import hospital as hsgd_hospital
from edge_sdk.methods.hsgd import plan as hsgd_plan
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.plan import Constants, Planned
from edge_sdk.methods.hsgd.settings import Plan, Settings
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.hsgd_runs import KNOWN, NET, by_literal, error
from tests.methods.hsgd.split_problems import BIG, SEVERAL, THETA0, envs_of, groups, joined, play
from tests.methods.problems import told


def test_a_plan_may_change_at_every_global_round(monkeypatch):
    plans = [(8, 2, 0.05), (4, 4, 0.3), (8, 1, 0.1), (4, 2, 0.2)]

    def planned(env, s):
        return Planned(s.round, Plan(*plans[s.round]), 1.0, 1.0)

    monkeypatch.setattr(hsgd_aggregator, "plan_round", planned)
    settings = Settings(strategies=("size",), alpha=0.5, iterations=24, **KNOWN)
    net, transcript = play(BIG, settings, 4)
    assert error(net, by_literal(net, transcript, BIG, plans)) < 1e-13
    assert [p.plan for p in told(transcript, Planned)] == [Plan(*p) for p in plans]
    assert net.nodes["aggregator"].record.state.t == 24


def test_size_and_rate_apply_at_global_rounds():
    settings = Settings(eta=0.02, strategies=("size", "rate"), iterations=40, **KNOWN)
    net, transcript = play(BIG, settings, 60)
    plans = told(transcript, Planned)
    c = Constants(**KNOWN)
    assert {(p.plan.P, p.plan.Q) for p in plans} == {(hsgd_plan.size(c, 0.02, 40),) * 2}
    assert plans[0].plan.eta == 0.02  # ||grad F|| is not known yet
    path = by_literal(net, transcript, BIG, [(p.plan.P, p.plan.Q, p.plan.eta) for p in plans])
    assert error(net, path) < 1e-12 and net.nodes["aggregator"].record.state.t >= 40
    for p, before, after in zip(plans[1:], path, path[1:], strict=False):
        last = plans[p.round - 1].plan
        gradient = np.linalg.norm(before - after) / (last.P * last.eta)
        assert np.isclose(p.plan.eta, hsgd_plan.rate(replace(c, gradient=gradient), last.P, last.Q))


def test_relation_applies():
    settings = Settings(P=8, Q=8, eta=0.01, strategies=("relation",), target=1.21, iterations=1000, **KNOWN)
    _, transcript = play(BIG, settings, 2)
    (first, _) = told(transcript, Planned)
    assert (first.plan.P, first.plan.Q) == (8, 2) and first.bound <= 1.21 and first.reachable
    unreachable = replace(settings, target=1e-3)
    assert [(p.plan.Q, p.reachable) for p in told(play(BIG, unreachable, 1)[1], Planned)] == [(1, False)]


def test_pretraining_estimates_the_constants_and_leaves_no_trace():
    settings = Settings(P=4, Q=2, eta=0.3, alpha=0.5, pretraining=4, pretraining_eta=0.01)
    net, transcript = play(SEVERAL, settings, 7)
    s = net.nodes["aggregator"].record.state
    e, f = s.estimate, lambda v: literal.objective(NET, SEVERAL, v)
    points = [THETA0]
    for _ in range(4):
        points.append(points[-1] - 0.01 * literal.grad(f, points[-1]))
    slopes = [literal.grad(f, v) for v in points[:4]]
    moved = zip(slopes[1:], slopes, points[1:4], points, strict=False)
    rho = max(np.linalg.norm(a - b) / np.linalg.norm(x - y) for a, b, x, y in moved)
    assert e.steps == 4 and np.isclose(e.f0, f(THETA0)) and np.isclose(e.rho, rho, rtol=1e-6)
    assert np.isclose(e.first, np.linalg.norm(slopes[0])) and s.t == 12
    path = by_literal(net, shifted(transcript, 4), SEVERAL, [(4, 2, 0.3)] * 7)
    assert error(net, path) < 1e-13


def shifted(transcript, rounds):
    """The trace without its first rounds, which move nothing."""
    closed = {n: [c for c in cs if n == "aggregator" or c.above > rounds] for n, cs in transcript.closed.items()}
    return replace(transcript, closed=closed)


def test_the_variance_of_the_devices_gradients_is_exact():
    """With everybody in A_m the stochastic gradients of theta_0 and theta_1 are those of the groups, of theta_2 the
    devices' own."""
    settings = Settings(pretraining=1, pretraining_eta=0.01, alpha=1.0)
    net, _ = play(SEVERAL, settings, 2)
    found = net.nodes["aggregator"].record.state.estimate.variance
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    K = sum(len(s) for ds in SEVERAL.values() for s in ds.values())
    exact = np.zeros(3)
    means, parts = [0, 0, 0], [[], [], []]
    for devices in SEVERAL.values():
        data = joined(devices.values())
        _, g_0, g_1 = NET.hospital(w, a, NET.h2(b, data.x2), data)
        parts[0].append((len(data) / K, g_0))
        parts[1].append((len(data) / K, g_1))
        parts[2] += [(len(s) / K, NET.device(w, NET.h1(a, s.x1), b, s)[1]) for s in devices.values()]
    for i in range(3):
        means[i] = sum(p * g for p, g in parts[i])
        exact[i] = sum(p * ((g - means[i]) ** 2).sum() for p, g in parts[i])
    assert np.allclose(found, exact, rtol=1e-6)


def test_I15_size_minimises_bound_times_cost():
    c, eta, T = Constants(f0=2.3, rho=1.7, delta=0.9**0.5), 0.01, 5000
    Q = np.linspace(0.05, 20, 400_001)
    products = (4 * c.f0 / (eta * T) + 12 * Q * c.rho * eta * c.delta**2 + 96 * (Q * c.rho * eta * c.delta) ** 2) / Q
    best = hsgd_plan.best_size(c, eta, T)
    assert np.isclose(Q[np.argmin(products)], best, atol=1e-4) and np.isclose(best, 2.7146, atol=1e-4)
    assert np.isclose(hsgd_plan.best_size(c, eta, T, printed=True), 0.271, atol=1e-3)
    assert hsgd_plan.size(c, eta, T) == 3
    assert hsgd_plan.size(c, 0.05, 5000) == 1  # the cap 1 / (8 rho eta) = 1.47


def test_I15_rate_minimises_the_bound_of_a_round():
    c, P, Q = Constants(f0=0, rho=1.7, delta=0.9**0.5, gradient=0.6**0.5), 4, 2
    a, b, slope = hsgd_plan.decrease(c, P, Q)
    eta = np.linspace(1e-6, 0.05, 500_001)
    best = hsgd_plan.best_rate(c, P, Q)
    assert np.isclose(eta[np.argmin(a * eta**3 + b * eta**2 - slope * eta)], best, atol=1e-6)
    assert np.isclose(best, (-2 * b + np.sqrt(4 * b * b + 12 * a * slope)) / (6 * a))
    assert hsgd_plan.rate(c, P, Q) == min(best, 1 / (8 * P * 1.7))
    assert hsgd_plan.rate(replace(c, delta=0.0), P, Q) == hsgd_plan.step_limit(P, 1.7)
    rates = [hsgd_plan.best_rate(c, P, 2) for P in (2, 4, 8, 16)]
    assert rates == sorted(rates, reverse=True)
    twice = [Q * hsgd_plan.best_rate(c, 2 * Q, Q) for Q in (1, 2, 4)]
    assert np.allclose(twice, twice[0])  # P / Q fixed: as 1 / Q


def test_relation_is_the_least_that_reaches_the_target():
    c, P, eta, T = Constants(f0=2.3, rho=1.7, delta=0.9), 24, 0.002, 5000
    for target in np.linspace(1.5, 4.0, 6):
        least = hsgd_plan.least_relation(c, P, eta, T, target)
        if least < inf:
            at = replace_bound(c, P, P / least, eta, T)
            assert np.isclose(at, target)
        bounds = {n: hsgd_plan.bound(c, Plan(P, P // n, eta), T) for n in range(1, P + 1) if P % n == 0}
        fits = [n for n, value in bounds.items() if value <= target]
        assert hsgd_plan.relation(c, P, eta, T, target) == (min(fits) if fits else None)


def replace_bound(c, P, Q, eta, T):
    return 4 * c.f0 / (eta * T) + 12 * P * c.rho * eta * c.delta**2 + 96 * (Q * c.rho * eta * c.delta) ** 2


def test_the_step_check_warns():
    assert hsgd_plan.step_warnings(Plan(4, 2, 0.01), rho=1.0) == []
    (text,) = hsgd_plan.step_warnings(Plan(4, 2, 0.1), rho=1.0)
    assert "0.0312" in text


@pytest.mark.parametrize("P, Q", [(2, 2), (4, 1)])
def test_soft_the_bound_holds_for_full_batches_and_the_loss_falls(P, Q):
    """Theorem 1 with delta = 0 on equal groups: measured rho, step size at the limit."""
    one = groups((4,), lambda i: 3)
    data = {f"h{m}": {f"d{4 * m + i}": s for i, s in enumerate(one["h0"].values())} for m in range(2)}
    f = lambda v: literal.objective(NET, data, v)  # noqa: E731
    rho, rounds = 2.0, 12
    eta = hsgd_plan.step_limit(P, rho)
    net, transcript = play(data, Settings(P=P, Q=Q, eta=eta), rounds)
    path = by_literal(net, transcript, data, [(P, Q, eta)] * rounds)
    mean = np.mean([np.sum(literal.grad(f, v) ** 2) for v in path[:-1]])
    c = Constants(f0=f(path[0]) - f(path[-1]), rho=rho, delta=0.0)
    assert mean <= hsgd_plan.bound(c, Plan(P, Q, eta), P * rounds) and f(path[-1]) < f(path[0])


def test_second_moments_are_unbiased_over_the_draws(monkeypatch):
    """Over all A of 2 of 4 devices the mean is that of ||g(A)||^2; and no draw says less than ||g||^2."""
    data = groups((4,))
    env = replace(envs_of(data, NET, THETA0, Settings(alpha=0.5), 2)["h0"], me="h0")
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    zeta_2 = {d: NET.h2(b, s.x2) for d, s in data["h0"].items()}
    s = replace(HSGD.hospital.start(env)[0], now=hsgd_hospital.Interval(zeta_2))
    whole, stacked = joined(data["h0"].values()), np.concatenate(list(zeta_2.values()))
    full = NET.hospital(w, a, stacked, whole)[1:]
    found, exact = [], []
    for pair in combinations(data["h0"], 2):
        monkeypatch.setattr(hsgd_hospital, "draw_devices", lambda env, among, *seed, pair=pair: pair)
        found.append(hsgd_hospital.measure_moments(env, s, (w, a), stacked, np.arange(4)))
        some = [d in pair for d in data["h0"]]
        exact.append([(g**2).sum() for g in NET.hospital(w, a, stacked[some], whole[some])[1:]])
    assert np.allclose(np.mean(found, 0), np.mean(exact, 0))
    assert (np.array(found) >= [(g**2).sum() for g in full]).all()
