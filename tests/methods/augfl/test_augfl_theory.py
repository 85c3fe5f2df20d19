"""AugFL against golden values, and the identities that follow from its equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.augfl import device as augfl_device
from edge_sdk.methods.augfl.messages import AugflModel, Upload
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.augfl.augfl_problems import (
    L2,
    LAYOUT,
    SMOOTH,
    THETA0,
    Client,
    N,
    Quadratic,
    algorithm_1,
    envs_of,
    play,
    weights_of,
)
from tests.methods.problems import DEVICES, told

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
