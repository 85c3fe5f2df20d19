"""AugFL's fixed point, and the limit of stability of its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.augfl.messages import Upload
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.augfl.theory import largest_curvature, least_rho_sum, margins, meta_smoothness
from tests.methods.augfl.augfl_problems import (
    L2,
    QUADRATIC,
    SMOOTH,
    THETA0,
    THETA_P,
    N,
    algorithm_1,
    clients_of,
    lagrangian,
    play,
    quadratic,
    weights_of,
)
from tests.methods.problems import DEVICES

BASIC = Settings(alpha=0.3)
PULL = L2(0.4)
W = weights_of(SMOOTH)
QUIET = NetworkFaults(repeat=0.0)


def optimum(clients, w, alpha, lam):
    eye, m, c = np.eye(N), 2 * lam * np.eye(N), 2 * lam * THETA_P
    for d, client in clients.items():
        a, b = client.support, client.query
        inner = eye - alpha * a.a
        m = m + w[d] * inner @ b.a @ inner
        c = c + w[d] * inner @ b.a @ (b.c - alpha * a.a @ a.c)
    return np.linalg.solve(m, c)


def test_fixed_point_on_quadratics():
    quick = {d: replace(c, rho=c.rho / 3) for d, c in QUADRATIC.items()}
    net, transcript, path = play(quick, BASIC, 300, pull=PULL, faults=QUIET)
    w = weights_of(QUADRATIC)
    assert np.abs(path[-1] - optimum(QUADRATIC, w, 0.3, 0.4)).max() < 1e-11
    copies = [m.theta for _, _, m in transcript.crossed if isinstance(m, Upload)][-6:]
    assert max(np.abs(v - path[-1]).max() for v in copies) < 1e-11
    y = {d: net.nodes[d].record.state.tried for d in DEVICES}
    slopes = {d: c.meta_gradient(path[-1], 0.3, 1e-3) for d, c in QUADRATIC.items()}
    assert max(np.abs(y[d] + w[d] * slopes[d]).max() for d in DEVICES) < 1e-11
    assert np.abs(sum(y.values()) - PULL.gradient(path[-1])).max() < 1e-11


def test_the_exact_admm_has_the_same_limit():
    """Eq. (6) in closed form on quadratics: theta, then theta_i, then y_i; both end where the problem is solved."""
    w, lam, rho, eye = weights_of(QUADRATIC), 0.4, 1.0, np.eye(N)
    hessian, linear = {}, {}
    for d, c in QUADRATIC.items():
        inner = eye - 0.3 * c.support.a
        hessian[d] = w[d] * inner @ c.query.a @ inner
        linear[d] = w[d] * inner @ c.query.a @ (c.query.c - 0.3 * c.support.a @ c.support.c)
    copies, y = {d: THETA0 for d in w}, {d: np.zeros(N) for d in w}
    for _ in range(600):
        pulled = sum(y[d] + rho * copies[d] for d in w) + 2 * lam * THETA_P
        theta = pulled / (rho * len(w) + 2 * lam)
        copies = {d: np.linalg.solve(hessian[d] + rho * eye, linear[d] - y[d] + rho * theta) for d in w}
        y = {d: y[d] + rho * (copies[d] - theta) for d in w}
    assert np.abs(theta - optimum(QUADRATIC, w, 0.3, lam)).max() < 1e-9


def test_stationary_on_a_loss_that_is_not_quadratic():
    """The difference gets ever more exact, so the limit is stationary for the true meta-gradient."""
    s = replace(BASIC, delta_power=2.0)
    _, _, path = play(SMOOTH, s, 300, pull=PULL, faults=QUIET)
    exact = sum(W[d] * c.meta_gradient(path[-1], 0.3, 0, "exact") for d, c in SMOOTH.items())
    assert np.abs(exact + PULL.gradient(path[-1])).max() < 1e-9


def aligned(seed=3):
    """Clients whose Hessians commute, and the largest curvature of sum w_i F_i."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(N, N)))[0]
    clients = clients_of(lambda r: quadratic(r, basis=basis), seed)
    w, eye = weights_of(clients), np.eye(N)
    h = sum(w[d] * (eye - 0.3 * c.support.a) @ c.query.a @ (eye - 0.3 * c.support.a) for d, c in clients.items())
    return clients, float(np.linalg.eigvalsh(h).max())


@pytest.mark.parametrize("lam", [0.0, 0.4])
@pytest.mark.parametrize(("share", "stable"), [(0.97, False), (1.03, True)])
def test_the_stability_limit_is_exact_on_quadratics(lam, share, stable):
    clients, curvature = aligned()
    rho = share * least_rho_sum(curvature, 2 * lam) / len(clients)
    history = algorithm_1(clients, BASIC, 2000, gradient=L2(lam).gradient, rho=dict.fromkeys(clients, rho))
    step = np.linalg.norm(history[-1].next - history[-1].theta)
    assert step < 1e-6 if stable else step > 1e3


def test_curvature_by_power_iteration():
    clients, curvature = aligned()
    w = weights_of(clients)
    found = largest_curvature(
        lambda x: sum(w[d] * c.meta_gradient(x, 0.3, 1e-3) for d, c in clients.items()), THETA0, steps=200
    )
    assert abs(found - curvature) < 1e-6
    assert largest_curvature(lambda x: np.zeros_like(x), THETA0) == 0.0
    assert abs(largest_curvature(L2(0.4).gradient, THETA0.astype(np.float32)) - 0.8) < 1e-3


def test_the_lagrangian_falls_where_assumption_5_holds():
    """And by as much as Lemma 4 says; with quadratic losses its terms b and c vanish."""
    w, lam, k = weights_of(QUADRATIC), 0.4, len(QUADRATIC)
    mu = max(np.linalg.eigvalsh(p.a).max() for c in QUADRATIC.values() for p in (c.support, c.query))
    nu = meta_smoothness(0.3, mu)
    rho = next(r for r in np.linspace(0.2, 12, 600) if all(holds(margins(r, w[d], nu, k, 2 * lam)) for d in w))
    history = algorithm_1(QUADRATIC, BASIC, 300, gradient=L2(lam).gradient, rho=dict.fromkeys(w, rho))
    value = [lagrangian(QUADRATIC, BASIC, h, dict.fromkeys(w, rho), w, lambda x: L2(lam)(x, 0, None).value)
             for h in history]  # fmt: skip
    assert max(np.diff(value)) < 1e-12
    there = {d: margins(rho, w[d], nu, k, 2 * lam) for d in w}
    for one, two, a, b in zip(history, history[1:], value, value[1:], strict=False):
        shared = np.sum((two.theta - one.theta) ** 2)
        least = sum(
            there[d].local * np.sum((two.theta_i[d] - one.theta_i[d]) ** 2) + there[d].shared * shared for d in w
        )
        assert b - a <= -least + 1e-12


def holds(m):
    return min(m.local, m.shared, m.simple) > 0


def test_margins_are_the_equations():
    m = margins(rho=2.0, weight=0.25, nu=0.5, devices=4, pull=0.8)
    assert m.local == 1 - 4 * 0.25 * 0.5
    assert m.shared == pytest.approx(1 - 2 * 0.25**2 * 0.5**2 * (4 * 0.25 * 0.5 / 4 + 0.5) - 0.1)
    assert m.simple == 0.5
    assert meta_smoothness(0.1, 2.0, 3.0, 4.0) == pytest.approx(1.2**2 * 2 + 0.1 * 12)
