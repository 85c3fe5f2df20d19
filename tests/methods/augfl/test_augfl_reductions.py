"""Special cases in which AugFL is another method, and its Hessian-vector product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.augfl.messages import Upload
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.perfedavg import PERFEDAVG
from edge_sdk.methods.perfedavg import Settings as PerFedAvgSettings
from edge_sdk.methods.shared.training import meta
from tests.methods.augfl.augfl_problems import (
    L2,
    LAYOUT,
    QUADRATIC,
    SMOOTH,
    THETA0,
    THETA_P,
    N,
    algorithm_1,
    clients_of,
    envs_of,
    log_cosh,
    play,
    quadratic,
    weights_of,
)
from tests.methods.problems import DEVICES, TREE

BASIC = Settings(alpha=0.3)
PULL = L2(0.4)
W = weights_of(SMOOTH)
QUIET = NetworkFaults(repeat=0.0)


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
    other = PerFedAvgSettings(alpha=0.3, hvp=hvp, eta_l=1 / (6 * 1.2), weighting="samples")
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
