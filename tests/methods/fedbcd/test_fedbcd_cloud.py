"""The recursion between FedBCD's hospitals: means, fixed points, repetitions, and one hospital alone."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.methods.fedbcd import equations as fedbcd_equations
from edge_sdk.methods.fedbcd.method import FEDBCD, policies
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus import consensus, mixing
from tests.methods.fedbcd.fedbcd_runs import DRAWN
from tests.methods.problems import SIZES, play
from tests.methods.shared.mixing_matrices import first_b

RANDOM = np.random.default_rng(5)
NAMES = ["a", "b", "c", "d", "e"]


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


# The cloud's recursion ------------------------------------------------------------------------------------------
def parts(unequal=True):
    """Five hospitals' sums: G_n and S_n."""
    G = RANDOM.uniform(0.5, 2, 5) if unequal else np.full(5, 1.5)
    return [Sum(RANDOM.normal(size=3) * g, float(g), 1) for g in G]


def test_the_mean_moves_by_the_mean_of_the_steps():
    """Invariants 2 and 6: zbar moves by -eta/N times the sum over the members, for any doubly stochastic matrix."""
    sums, z, eta = parts(), RANDOM.normal(size=(5, 3)), 0.3
    for a in (first_b(NAMES, ["b", "d"]), mixing.metropolis(NAMES, mixing.ring(NAMES)), mixing.complete(NAMES)):
        w = np.broadcast_to(consensus.apply_mixing(a, z), z.shape)
        after = np.stack([fedbcd_equations.cloud_step(row, p, eta) for row, p in zip(w, sums, strict=True)])
        slopes = [p.weight * row - p.total for row, p in zip(w, sums, strict=True)]
        assert off(after.mean(0), z.mean(0) - eta / 5 * sum(slopes)) < 1e-14
    G, S = sum(p.weight for p in sums), sum(p.total for p in sums)
    assert (
        off(after.mean(0), fedbcd_equations.cloud_step(w[0], Sum(S, G), eta / 5)) < 1e-14
    )  # B = N: as sync with eta / N


@pytest.mark.parametrize("unequal", [False, True])
def test_fixed_points_of_mixing_and_stepping(unequal):
    """Invariant 7: (I - (I - eta G) A) z* = eta S; the mean is exact if all G_n are equal, and agreement is O(eta)."""
    sums, a, spreads = parts(unequal), mixing.metropolis(NAMES, mixing.ring(NAMES)), []
    best = sum(p.total for p in sums) / sum(p.weight for p in sums)
    for eta in (0.2, 0.02):
        z = np.zeros((5, 3))
        for _ in range(int(400 / eta)):
            z = np.stack(
                [
                    fedbcd_equations.cloud_step(row, p, eta)
                    for row, p in zip(consensus.apply_mixing(a, z), sums, strict=True)
                ]
            )
        keep = np.diag([1 - eta * p.weight for p in sums])
        exact = np.linalg.solve(np.eye(5) - keep @ a, eta * np.stack([p.total for p in sums]))
        assert off(z, exact) < 1e-11
        assert unequal or off(z.mean(0), best) < 1e-11
        spreads.append(off(z, z.mean(0)))
    assert 5 < spreads[0] / spreads[1] < 20


def test_repetitions_of_sync_in_closed_form():
    s = parts()[0]
    z, mean = np.array([3.0, 1.0, -1.0]), s.total / s.weight
    after = z
    for _ in range(4):
        after = fedbcd_equations.cloud_step(after, s, 0.4)
    assert off(after - mean, (1 - 0.4 * s.weight) ** 4 * (z - mean)) < 1e-15


@pytest.mark.parametrize("acting, diverges", [(1.9, False), (2.1, True)])
def test_the_cloud_step_alone_diverges_above_two(acting, diverges):
    s, z = parts()[0], np.ones(3)
    for _ in range(200):
        z = fedbcd_equations.cloud_step(z, s, acting / s.weight)
    assert (np.abs(z).max() > 1e3) == diverges


# Runs with another number of hospitals --------------------------------------------------------------------------
@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
def test_one_hospital_is_sync(cloud):
    """Invariant 5. The aggregator sees z before its step, so it is one round behind."""
    tree = {"h0": ("d0", "d1", "d2")}
    final = []
    for settings, rounds in ((DRAWN, 12), (replace(DRAWN, cloud=cloud, ready=1), 13)):
        envs = small_envs(settings, rounds, tree)
        net, _ = play(FEDBCD, settings, rounds, tree=tree, envs=envs)
        final.append(net.nodes["aggregator"].record.state.model.values)
    assert off(*final) < 1e-13


def small_envs(settings, rounds, tree, **more):
    from tests.methods.problems import envs_of

    envs = envs_of(FEDBCD, settings, rounds, **more)
    sizes = {h: len(devices) for h, devices in tree.items()}
    return envs | {"aggregator": replace(envs["aggregator"], sizes=sizes)}


def test_without_mixing_hospitals_are_independent():
    """A = I is each hospital by itself, in sync."""
    settings = replace(DRAWN, cloud="rigorous", ready=3, graph="identity")
    net, _ = play(FEDBCD, settings, 11, policies=policies(settings, SIZES, np.inf, np.inf))
    for h, devices in (("h0", ("d0", "d1", "d2")), ("h2", ("d5",))):
        alone, _ = play(FEDBCD, DRAWN, 10, tree={h: devices}, envs=small_envs(DRAWN, 10, {h: devices}))
        z = net.nodes[h].record.state.inner.model.values
        assert off(z, alone.nodes["aggregator"].record.state.model.values) < 1e-13
