"""What AugFL's equations imply: identities, the fixed point, stability, reductions, and golden values of an oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.augfl import device as augfl_device
from edge_sdk.methods.augfl.messages import AugflModel, Upload
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.augfl.theory import largest_curvature, least_rho_sum, margins, meta_smoothness
from edge_sdk.methods.perfedavg import PERFEDAVG
from edge_sdk.methods.perfedavg import Settings as PerFedAvgSettings
from edge_sdk.methods.shared import meta
from edge_sdk.methods.shared.evaluation import Progress
from tests.methods.augfl.augfl_problems import (
    L2,
    LAYOUT,
    QUADRATIC,
    SMOOTH,
    THETA0,
    THETA_P,
    Client,
    N,
    Quadratic,
    algorithm_1,
    clients_of,
    envs_of,
    lagrangian,
    log_cosh,
    play,
    quadratic,
    weights_of,
)
from tests.methods.problems import DEVICES, TREE, told

BASIC = Settings(alpha=0.3)
PULL = L2(0.4)
RHO = {d: c.rho for d, c in SMOOTH.items()}
W = weights_of(SMOOTH)
QUIET = NetworkFaults(repeat=0.0)


# The oracle -----------------------------------------------------------------------------------------------------
ORACLE = {
    1: (-0.1642330057474998, -0.49070716330704683, 0.00824236835733642, 0.2591133385247625, -0.26740994060874224,
        0.33957391046463564),
    2: (0.09659067016730734, -0.44961867087776847, 0.01997429638556467, 0.15115080735285988, -0.3690799733464059,
        0.13312033005331347),
    10: (0.7934560823891245, -0.4541839962186809, 0.05710961675222617, -0.10365529930178395, -0.7480655479670992,
         -0.37402164398287024),
}  # fmt: skip
TREE_OF_FIVE = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4")}


def oracle():
    """Five clients with unequal weights and penalties, lambda ||theta - theta_p||^2, and duals that start anywhere."""
    rng = np.random.default_rng(0)

    def spd(low=0.1, high=1.0):
        q, _ = np.linalg.qr(rng.normal(size=(N, N)))
        return q @ np.diag(rng.uniform(low, high, N)) @ q.T

    a, b = [spd() for _ in range(5)], [spd() for _ in range(5)]
    centres, targets = [rng.normal(size=N) for _ in range(5)], [rng.normal(size=N) for _ in range(5)]
    w = rng.uniform(1, 3, 5)
    theta_p, rho = rng.normal(size=N), None
    rho = rng.uniform(0.5, 1.5, 5)
    y0 = [rng.normal(size=N) for _ in range(5)]
    parts = zip(a, centres, b, targets, rho, strict=True)
    clients = {f"d{i}": Client(Quadratic(p, q), Quadratic(r, s), 4, rho) for i, (p, q, r, s, rho) in enumerate(parts)}
    names = list(clients)
    return clients, dict(zip(names, w / w.sum(), strict=True)), theta_p, dict(zip(names, y0, strict=True))


def test_golden_values(monkeypatch):
    clients, w, theta_p, y0 = oracle()
    monkeypatch.setattr(augfl_device, "weight_of", lambda env, m: w[env.me])
    more = {"pull": L2(0.4, theta_p), "y0": y0, "theta0": np.zeros(N), "tree": TREE_OF_FIVE, "faults": QUIET}
    _, _, path = play(clients, BASIC, 10, **more)
    for t, theta in ORACLE.items():
        assert np.abs(path[t] - theta).max() < 1e-12


# Identities -----------------------------------------------------------------------------------------------------
def test_identities():
    """(A) to (D) of the derivation, on what the nodes of a run hold; for any loss, rho_i, w_i and y_i^-1."""
    rounds, y0 = 30, {d: np.random.default_rng([9, i]).normal(size=N) for i, d in enumerate(DEVICES)}
    _, transcript, path = play(SMOOTH, BASIC, rounds, pull=PULL, y0=y0, faults=QUIET)
    tried = {d: [s.tried for s in transcript.states[d] if s.round >= 0] for d in DEVICES}
    before = {d: [s.y for s in transcript.states[d] if s.round >= 0] for d in DEVICES}
    copies = {d: [m.theta for who, _, m in transcript.crossed if who == d and isinstance(m, Upload)] for d in DEVICES}
    total = sum(RHO.values())
    g = [{d: c.meta_gradient(path[t], 0.3, BASIC.delta(t)) for d, c in SMOOTH.items()} for t in range(rounds)]
    for t in range(rounds):
        y, y_before = {d: tried[d][t] for d in DEVICES}, {d: before[d][t] for d in DEVICES}
        assert max(np.abs(y[d] + W[d] * g[t][d]).max() for d in DEVICES) < 1e-12  # (A)
        moved = {d: path[t] + (y[d] - y_before[d]) / RHO[d] for d in DEVICES}
        assert max(np.abs(copies[d][t] - moved[d]).max() for d in DEVICES) < 1e-12  # (B)
        past = {d: -y0[d] for d in DEVICES} if t == 0 else {d: W[d] * g[t - 1][d] for d in DEVICES}
        step = sum(2 * W[d] * g[t][d] - past[d] for d in DEVICES) + PULL.gradient(path[t])
        assert np.abs(path[t + 1] - (path[t] - step / total)).max() < 1e-12  # (C)
        residual = PULL.gradient(path[t]) - sum(y.values())
        forms = sum(W[d] * g[t][d] for d in DEVICES) + PULL.gradient(path[t])
        change = total * (path[t] - path[t + 1]) + sum(y[d] - y_before[d] for d in DEVICES)
        assert max(np.abs(residual - forms).max(), np.abs(residual - change).max()) < 1e-12  # (D)
        told_ = told(transcript, Progress)[t].sums["residual"]
        assert abs(told_ - np.linalg.norm(residual)) < 1e-12


def test_the_residual_is_the_gradient_but_for_the_difference():
    history = algorithm_1(SMOOTH, BASIC, 20, gradient=PULL.gradient)
    for t, h in enumerate(history):
        exact = sum(W[d] * c.meta_gradient(h.theta, 0.3, 0, "exact") for d, c in SMOOTH.items()) + h.gR
        r = {d: c.query.gradient(h.theta - 0.3 * c.support.gradient(h.theta)) for d, c in SMOOTH.items()}
        bound = 0.3 * sum(W[d] * c.support.zeta * BASIC.delta(t) * (r[d] @ r[d]) / 2 for d, c in SMOOTH.items())
        assert np.linalg.norm(exact - (h.gR - sum(h.y.values()))) <= bound


def test_duals_do_not_depend_on_where_they_began():
    env = envs_of(SMOOTH, BASIC, 3)["d2"]
    question = AugflModel(lowrank.dense(LAYOUT, THETA0), 0, 0, 54, 6)
    one, _ = augfl_device.device_receive(env, augfl_device.device_start(env)[0], "up", question)
    other_env = replace(env, y_init=np.ones(N))
    other, _ = augfl_device.device_receive(other_env, augfl_device.device_start(other_env)[0], "up", question)
    assert np.abs(one.y - other.y).max() == 1 and np.abs(one.tried - other.tried).max() < 1e-12


# Fixed point, stability -----------------------------------------------------------------------------------------
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


# Reductions -----------------------------------------------------------------------------------------------------
def test_lambda_zero_never_asks_for_a_pretrained_model():
    """Bit for bit the same as with a regulariser whose gradient is zero, and the one that is there is not called."""
    never, zero = L2(0.7), L2(0.0)
    _, _, without = play(SMOOTH, BASIC, 10)
    _, _, with_zero = play(SMOOTH, BASIC, 10, pull=zero)
    assert never.calls == 0 and zero.calls == 10
    assert all(np.array_equal(a, b) for a, b in zip(without, with_zero, strict=True))


def test_alpha_zero_is_linearised_admm_on_the_query_losses():
    s = replace(BASIC, alpha=0.0)
    clients = clients_of(log_cosh)
    _, _, path = play(clients, s, 25, faults=QUIET)
    assert all(set(c.calls) == {"query"} and len(c.calls) == 25 for c in clients.values())
    theta, past, total = THETA0, None, sum(c.rho for c in clients.values())
    for t in range(25):
        g = sum(W[d] * c.query.gradient(theta) for d, c in clients.items())
        theta, past = theta - (2 * g - (past if t else 0)) / total, g
    assert np.abs(path[-1] - theta).max() < 1e-12


@pytest.mark.parametrize("hvp", ["central", "none"])
@pytest.mark.parametrize("upload", ["theta_y", "u"])
def test_without_duals_it_is_per_fedavg(hvp, upload):
    s = replace(BASIC, dual=False, hvp=hvp, upload=upload)
    clients = clients_of(log_cosh)
    for c in clients.values():
        c.rho = 1.2  # FedAvg has one local step size for all
    _, _, path = play(clients, s, 12, faults=QUIET)
    other = PerFedAvgSettings(alpha=0.3, hvp=hvp, eta_l=1 / (6 * 1.2))
    envs = envs_of(clients, other, 12, method=PERFEDAVG)
    net = Loopback(PERFEDAVG, TREE, envs, {}, 0, QUIET)
    net.run()
    last = lowrank.unpack(LAYOUT, net.nodes["aggregator"].record.state.model)
    assert np.abs(path[-1] - last).max() < 1e-12
    theta = THETA0
    for t in range(12):
        theta = theta - sum(W[d] * c.meta_gradient(theta, 0.3, s.delta(t), hvp) for d, c in clients.items()) / 7.2
    assert np.abs(path[-1] - theta).max() < 1e-12


def test_one_device():
    clients = {"d": clients_of(log_cosh, names=("d",))["d"]}
    _, _, path = play(clients, BASIC, 20, tree={"h": ("d",)}, faults=QUIET)
    theta, past = THETA0, 0.0
    for t in range(20):
        g = clients["d"].meta_gradient(theta, 0.3, BASIC.delta(t))
        theta, past = theta - (2 * g - past) / clients["d"].rho, g
    assert np.abs(path[-1] - theta).max() < 1e-12


def test_a_strong_regulariser_pulls_as_one_over_lambda():
    gaps = []
    for lam in (20.0, 200.0, 2000.0):
        rho = dict.fromkeys(QUADRATIC, 0.2 * lam + 1)
        gaps.append(np.linalg.norm(algorithm_1(QUADRATIC, BASIC, 400, gradient=L2(lam).gradient, rho=rho)[-1].next
                                   - THETA_P))  # fmt: skip
    assert 9 < gaps[0] / gaps[1] < 11 and 9.8 < gaps[1] / gaps[2] < 10.2


def test_order_of_devices_and_of_hospitals_does_not_matter():
    _, _, one = play(SMOOTH, BASIC, 10)
    other = {"h0": ("d5", "d1"), "h1": ("d2", "d0", "d4", "d3")}
    _, _, two = play(dict(reversed(SMOOTH.items())), BASIC, 10, tree=other, seed=4)
    assert np.abs(one[-1] - two[-1]).max() < 1e-13


def test_a_device_that_is_cut_in_two_halves_of_equal_data():
    half = replace(SMOOTH["d1"], samples=SMOOTH["d1"].samples // 2, rho=SMOOTH["d1"].rho / 2)
    two = {**{d: c for d, c in SMOOTH.items() if d != "d1"}, "d1a": half, "d1b": half}
    tree = {"h0": ("d0", "d1a", "d2"), "h1": ("d3", "d4", "d1b"), "h2": ("d5",)}
    _, _, one = play(SMOOTH, BASIC, 20, pull=PULL)
    _, _, other = play(two, BASIC, 20, pull=PULL, tree=tree)
    assert max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) < 1e-12


def test_devices_that_are_all_alike_are_as_one():
    alike = dict.fromkeys(DEVICES, replace(SMOOTH["d0"], rho=0.3))
    _, transcript, path = play(alike, BASIC, 15, faults=QUIET)
    _, _, single = play({"d0": replace(SMOOTH["d0"], rho=1.8)}, BASIC, 15, tree={"h": ("d0",)}, faults=QUIET)
    assert np.abs(path[-1] - single[-1]).max() < 1e-12
    copies = [m.theta for _, _, m in transcript.crossed if isinstance(m, Upload)][-6:]
    assert all(np.array_equal(copies[0], v) for v in copies)


# The Hessian-vector product -------------------------------------------------------------------------------------
def test_central_difference_against_the_exact_product():
    rng = np.random.default_rng(6)
    f, q = log_cosh(rng), quadratic(rng)
    for _ in range(200):
        x, r, delta = rng.normal(size=N), rng.normal(size=N) * rng.uniform(0.1, 5), rng.uniform(1e-3, 1)
        for unit in (False, True):
            g = meta.central_difference(lambda v, rows: (0.0, q.gradient(v)), x, r, None, delta, unit)
            assert np.abs(g - q.a @ r).max() < 1e-9
        g = meta.central_difference(lambda v, rows: (0.0, f.gradient(v)), x, r, None, delta)
        assert np.linalg.norm(g - f.hessian(x) @ r) <= delta * f.zeta * (r @ r) / 2
    x, r = rng.normal(size=N), rng.normal(size=N)
    off = [np.linalg.norm(meta.central_difference(lambda v, rows: (0.0, f.gradient(v)), x, r, None, d)
                          - f.hessian(x) @ r) for d in (0.1, 0.05, 0.025)]  # fmt: skip
    assert 3.8 < off[0] / off[1] < 4.2 and 3.8 < off[1] / off[2] < 4.2
    zero = meta.central_difference(lambda v, rows: (0.0, f.gradient(v)), x, 0 * r, None, 0.1, True)
    assert not zero.any()


def test_the_schedules():
    paper, summable = Settings(), Settings(delta_power=1.5)
    assert [paper.delta(t) for t in range(3)] == [1 / 110, 1 / 120, 1 / 130]
    assert sum(paper.delta(t) for t in range(200_000)) > 0.9 * np.log(200_000 / 11) / 10
    assert sum(summable.delta(t) for t in range(200_000)) < 0.02
    assert Settings(delta_scale=3.0).delta(0) == 3 / 110
