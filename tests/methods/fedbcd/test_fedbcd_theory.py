"""FedBCD: what the paper proves of mixing, steps and fixed points, and where its step sizes diverge."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedbcd import equations as fedbcd_equations
from edge_sdk.methods.fedbcd.equations import cloud_eta
from edge_sdk.methods.fedbcd.method import FEDBCD, policies
from edge_sdk.methods.fedbcd.settings import OfflineSettings, Settings
from edge_sdk.methods.fedbcd.theory import warnings
from edge_sdk.methods.shared import consensus, mixing
from edge_sdk.methods.shared.gather import Sum
from tests.methods.fedbcd.fedbcd_runs import DRAWN, OFFLINE
from tests.methods.problems import SIZES, play

RANDOM = np.random.default_rng(5)
NAMES = ["a", "b", "c", "d", "e"]


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


# Mixing ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_first_b_is_symmetric_doubly_stochastic_and_idempotent(size):
    a = mixing.checked(mixing.first_b(NAMES, NAMES[-size:]))
    assert (a == a.T).all() and off(a @ a, a) < 1e-15
    z = RANDOM.normal(size=(5, 7))
    assert off((a @ z).sum(0), z.sum(0)) < 1e-14
    assert (np.delete(a @ z, range(5 - size, 5), 0) == z[: 5 - size]).all()


@pytest.mark.parametrize("graph", ["complete", "identity", "ring", "a~b, b~c,c~d , a~e"])
@pytest.mark.parametrize("members", [NAMES, ["a", "c", "d"], ["b"]])
def test_every_graph_gives_a_doubly_stochastic_matrix(graph, members):
    a = mixing.checked(mixing.matrix(graph, NAMES, members))
    assert a.shape == (len(members),) * 2 and (a.diagonal() > 0).all()


def test_metropolis_weights():
    a = mixing.metropolis(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert off(a, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]) < 1e-15
    assert off(mixing.metropolis(["a", "b"], mixing.ring(["a", "b"])), 0.5) == 0


@pytest.mark.parametrize("a, why", [
    (np.ones((2, 3)) / 3, "shape (2, 3)"), (np.array([[2.0, -1], [-1, 2]]), "entry -1"),
    (np.array([[1.0, 0], [1, 0]]), "column 0 sums to 2"), (np.array([[0.5, 0.4], [0.5, 0.6]]), "row 1 sums to 1.1"),
    (np.array([[np.nan, 1], [1, 0]]), "entry"),
])  # fmt: skip
def test_the_validator_refuses(a, why):
    with pytest.raises(UsageError) as error:
        mixing.checked(a)
    assert why in str(error.value)


def test_connectivity_over_a_window():
    pairs = [mixing.first_b(NAMES, pair) for pair in (["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"])]
    assert mixing.is_connected(pairs) and not mixing.is_connected(pairs[:3])
    assert not mixing.is_connected([mixing.first_b(NAMES, [n]) for n in NAMES])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_random_subsets_shrink_the_disagreement_by_exactly_this(size):
    """E sum ||z_n - zbar||^2 shrinks by (N - B) / (N - 1): with B = 1 not at all."""
    z = RANDOM.normal(size=(5, 3))
    spread = lambda z: np.square(z - z.mean(0)).sum()  # noqa: E731
    after = [spread(mixing.first_b(NAMES, V) @ z) for V in combinations(NAMES, size)]
    assert np.isclose(np.mean(after) / spread(z), (5 - size) / 4, atol=1e-13)


# The cloud's recursion ------------------------------------------------------------------------------------------
def parts(unequal=True):
    """Five hospitals' sums: G_n and S_n."""
    G = RANDOM.uniform(0.5, 2, 5) if unequal else np.full(5, 1.5)
    return [Sum(RANDOM.normal(size=3) * g, float(g), 1) for g in G]


def test_the_mean_moves_by_the_mean_of_the_steps():
    """Invariants 2 and 6: zbar moves by -eta/N times the sum over the members, for any doubly stochastic matrix."""
    sums, z, eta = parts(), RANDOM.normal(size=(5, 3)), 0.3
    for a in (mixing.first_b(NAMES, ["b", "d"]), mixing.metropolis(NAMES, mixing.ring(NAMES)), mixing.complete(NAMES)):
        w = np.broadcast_to(consensus.mixed(a, z), z.shape)
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
                [fedbcd_equations.cloud_step(row, p, eta) for row, p in zip(consensus.mixed(a, z), sums, strict=True)]
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


def test_the_gap_is_zero_where_nothing_can_be_gained():
    s = Settings(bound=2.0)
    x, slope = np.array([2.0, -2.0, 0.5]), np.array([-3.0, 1.0, 0.0])
    assert fedbcd_equations.stationarity_gap(s, x, slope) == 0
    worst = max(slope @ (np.ones(3) - y) for y in np.array(np.meshgrid(*[[-2, 2]] * 3)).reshape(3, -1).T)
    assert np.isclose(fedbcd_equations.stationarity_gap(s, np.ones(3), slope), worst)


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


# Where the paper's eta_z = 0.5 diverges -------------------------------------------------------------------------
SIZES_10 = {f"h{n}": 10 for n in range(10)}
PAPER = dict(eta_x=0.005, zeta=0.9, unit="step", batch=0)


def toy(settings, rounds=60, seed=0):
    """10 hospitals with 10 devices, g_i = (x - b_i)^2 / 2 in the box; |z| at the end. First-B with B = all."""
    rng, offline = np.random.default_rng(seed), isinstance(settings, OfflineSettings)
    b = rng.uniform(-3, 3, (10, 10))
    x, z = np.zeros((2, 10, 10)), np.zeros(10)
    for _ in range(rounds):
        active = np.argsort(rng.random((10, 10)), 1)[:, : settings.taking_part(10)]
        mask = np.zeros((10, 10), bool)
        np.put_along_axis(mask, active, True, 1)
        K, before = int(rng.integers(1, 6)), x.copy()
        ours = fedbcd_equations.edge_update(
            lambda v, _: (0.0, v - b), settings, *x, [None] * K, None if offline else z[:, None], settings.gamma
        )
        now = fedbcd_equations.pull(settings, *ours[:2], z[:, None], settings.gamma, K) if offline else ours[:2]
        x = np.where(mask, np.stack(now), before)
        counted = mask if offline else np.ones_like(mask)
        G, S = settings.gamma * counted.sum(1), settings.gamma * (x[0] * counted).sum(1)
        eta = cloud_eta(settings, SIZES_10, int(counted.sum()))
        if settings.cloud == "sync":
            z = np.full(10, (1 - eta * G.sum()) * z[0] + eta * S.sum())
        else:
            w = z.mean()
            z = (1 - eta * G) * w + eta * S
        if np.abs(z).max() > 1e6:
            return float(np.abs(z).max())
    return float(np.abs(z).max())


@pytest.mark.parametrize("kind, cloud, taking_part, diverges", [
    (Settings, "sync", 3, True), (Settings, "first-b", 3, True),
    (OfflineSettings, "sync", 5, True), (OfflineSettings, "sync", 6, True),
    (OfflineSettings, "first-b", 3, False),
])  # fmt: skip
def test_the_papers_step_taken_as_it_is(kind, cloud, taking_part, diverges):
    raw = kind(
        **PAPER, cloud=cloud, ready=10 if cloud != "sync" else 2, participation=float(taking_part), eta_mode="raw"
    )
    found = [line for line in warnings(raw, SIZES_10) if line.startswith("eta_z")]
    assert any("diverges" in line for line in found) == diverges
    assert all(toy(raw, seed=seed) > 1e5 if diverges else toy(raw, seed=seed) <= 2 for seed in range(3))
    relative = replace(raw, eta_mode="relative")
    assert not [line for line in warnings(relative, SIZES_10) if line.startswith("eta_z")]
    assert all(toy(relative, seed=seed) <= 2 for seed in range(3))


def test_the_over_relaxed_case_is_named_but_not_called_divergent():
    raw = OfflineSettings(**PAPER, participation=3.0, eta_mode="raw")
    (line,) = warnings(raw, SIZES_10)
    assert "may leave X" in line and "is 3, the theorem asks for 1" in line and "1.61 acts" in line


@pytest.mark.parametrize("mode, kind, cloud, expected", [
    ("relative", Settings, "sync", 0.5 / 100), ("relative", Settings, "first-b", 0.5 / 10),
    ("relative", OfflineSettings, "sync", 0.5 / (0.2 * 30)), ("relative", OfflineSettings, "rigorous", 0.5 / (0.2 * 3)),
    ("mean", OfflineSettings, "rigorous", 0.5 / 3), ("mean", Settings, "sync", 0.5 / 100),
    ("raw", Settings, "sync", 0.5),
])  # fmt: skip
def test_modes_of_the_step(mode, kind, cloud, expected):
    settings = kind(participation=3.0, cloud=cloud, eta_mode=mode)
    assert np.isclose(cloud_eta(settings, SIZES_10, 30), expected, rtol=1e-14)


@pytest.mark.parametrize("changes, word", [
    (dict(cloud="first-b", ready=1), "ready = 1"), (dict(cloud="first-b", graph="identity"), "identity"),
    (dict(cloud="first-b"), "skips a round"), (dict(lipschitz=1000.0), "eta_x"),
    (dict(lipschitz=100.0, zeta=1.0), "zeta"),
])  # fmt: skip
def test_warnings(changes, word):
    assert any(word in line for line in warnings(Settings(**changes), SIZES_10))


def test_no_warnings_within_the_theorem():
    assert warnings(Settings(lipschitz=20.0), SIZES_10) == []
    assert warnings(Settings(cloud="rigorous", ready=3), SIZES_10) == []
    assert warnings(OfflineSettings(), SIZES_10) == []
    assert "never move" in warnings(OfflineSettings(gamma=1.0), SIZES_10)[0]


@pytest.mark.parametrize("changes, word", [
    (dict(gamma=0.0), "gamma = 0.0"), (dict(gammas={"d0": -1.0}), "gammas.d0"), (dict(eta_x=0.0), "eta_x"),
    (dict(zeta=1.5), "zeta"),
    (dict(cloud="async"), "cloud"), (dict(ready=0), "ready"), (dict(graph="a-b"), "'a-b' is no edge"),
    (dict(participation=2.5), "participation"), (dict(eta_mode="absolute"), "eta_mode"),
    (dict(local_steps=0), "local_steps"),
    (dict(server_penalty="l1", cloud="first-b"), "server_penalty"), (dict(cloud_steps=0), "cloud_steps"),
])  # fmt: skip
def test_settings_are_checked(changes, word):
    with pytest.raises(UsageError, match=word):
        Settings(**changes)


def test_settings_of_fedbcd_i_are_checked():
    for changes, word in ((dict(gamma=1.1), "step of the pull"), (dict(after_pull="drop"), "after_pull")):
        with pytest.raises(UsageError, match=word):
            OfflineSettings(**changes)
    with pytest.raises(UsageError, match="offline_share"):
        OfflineSettings(offline_share=1.5)
    with pytest.raises(UsageError, match="offline_every"):
        OfflineSettings(offline_every=0.0)


def test_policies():
    sync = policies(Settings(), SIZES, 9.0, 4.0)
    assert (sync["aggregator"].need, sync["aggregator"].keep_late, sync["hospital"].deadline) == (None, False, 4.0)
    first = policies(Settings(cloud="first-b", ready=3, selection="fastest", participation=0.3), SIZES_10, 9.0, 4.0)
    assert (first["aggregator"].need, first["aggregator"].keep_late, first["hospital"].need) == (3, True, 3)
    assert policies(Settings(cloud="rigorous", ready=3), SIZES, 9.0, 4.0)["aggregator"].keep_late is False
    assert policies(replace(OFFLINE, offline_every=7.0), SIZES, 9.0, 4.0)["device"].idle == 7.0


def test_evaluations_that_would_interrupt_hospitals_are_refused():
    assert policies(Settings(), SIZES, 9.0, 4.0, evaluate_every=5)
    with pytest.raises(UsageError, match="evaluate_every = 5"):
        policies(Settings(cloud="first-b"), SIZES, 9.0, 4.0, evaluate_every=5)


@pytest.mark.parametrize("changes, word", [
    (dict(ready=4), "ready = 4: there are 3 hospitals"), (dict(graph="h0~h1, h1~h3"), "graph names 'h3'"),
])  # fmt: skip
def test_settings_that_do_not_fit_the_hospitals_are_refused(changes, word):
    with pytest.raises(UsageError, match=word):
        play(FEDBCD, Settings(cloud="first-b", **changes), 1, faults=NetworkFaults())
