"""FedSLR over three tiers against Algorithm 2, and the identities, reductions and goldens of the paper."""

from dataclasses import replace
from math import inf

import literal
import numpy as np
import pytest
from problems import (
    DEVICES,
    HASTY,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    SEED,
    THETA0,
    LeastSquares,
    devices_counted,
    devices_that_ran,
    envs_of,
    play,
    state,
    told,
)

from edge_sdk import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.loopback import Weather
from edge_sdk.methods import fedavg, fedslr
from edge_sdk.methods.evaluation import Progress
from edge_sdk.methods.fedslr import FEDSLR, Settings
from edge_sdk.prox import l1, nuclear
from edge_sdk.vectors import layout_of

FULL_BATCH = Settings(
    eta_g=0.5, eta_l=0.1, decay=1.0, lam=0.3, mu=0.2, weight_decay=0.0, batch=0, local_epochs=20, personal_epochs=5
)
PAPER_LIKE = Settings(eta_g=0.5, eta_l=0.1, decay=0.9, lam=0.2, mu=0.1, weight_decay=1e-2, batch=16, local_epochs=2)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def agrees(net, trace, settings, **reading):
    """Largest difference of w to the literal algorithm, given who took part."""
    S, ran = devices_counted(trace), devices_that_ran(trace)
    path, gamma, p = literal.fedslr(PROBLEMS, THETA0, settings, S, ran, **reading)
    return np.abs(model(net) - path[-1]).max(), gamma, p


# Three tiers against the literal algorithm ----------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings", [FULL_BATCH, PAPER_LIKE], ids=["full batch", "mini-batches"])
def test_full_participation(settings, seed):
    net, trace = play(FEDSLR, settings, 20, seed=seed)
    assert devices_counted(trace) == [list(DEVICES)] * 20
    error, gamma, p = agrees(net, trace, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).tried - gamma[d]).max() for d in DEVICES) < 1e-11
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12
    assert trace.refused  # duplicates did arrive


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("picked", [3.0, 0.5])
def test_partial_participation(seed, picked):
    settings = replace(PAPER_LIKE, participation=picked)
    net, trace = play(FEDSLR, settings, 40, seed=seed)
    S = devices_counted(trace)
    assert all(len(s) == 3 for s in S) and len({tuple(s) for s in S}) > 8
    error, _, p = agrees(net, trace, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_bernoulli_participation():
    settings = replace(FULL_BATCH, participation=0.4, selection="bernoulli")
    net, trace = play(FEDSLR, settings, 40)
    sizes = [len(s) for s in devices_counted(trace)]
    assert min(sizes) >= 1 and len(set(sizes)) >= 4
    assert agrees(net, trace, settings)[0] < 1e-12


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("picked", [0.5, 1.0])
def test_lost_messages_only_shrink_the_set(seed, picked):
    settings = replace(PAPER_LIKE, participation=picked)
    net, trace = play(FEDSLR, settings, 40, weather=LOSSY, policies=HASTY, seed=seed)
    S = devices_counted(trace)
    assert len(S) == 40 and sum(map(len, S)) < 40 * 6 * picked * 0.9
    error, _, p = agrees(net, trace, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_a_device_that_never_answers():
    weather = Weather(away={"d5": [(0, inf)], "d1": [(0, inf)]})
    net, trace = play(FEDSLR, FULL_BATCH, 20, weather=weather, policies=HASTY)
    assert devices_counted(trace) == [["d0", "d2", "d3", "d4"]] * 20
    assert agrees(net, trace, FULL_BATCH)[0] < 1e-12


def test_everybody_away_for_a_while():
    weather = Weather(away={d: [(20, 45)] for d in DEVICES})
    net, trace = play(FEDSLR, FULL_BATCH, 20, weather=weather, policies=HASTY)
    S = devices_counted(trace)
    assert [] in S and len(S[-1]) == 6
    assert agrees(net, trace, FULL_BATCH)[0] < 1e-12


def test_without_the_acknowledgement_the_fixed_point_is_lost():
    """Why gamma is mirrored: a device that believes that all its uploads count spoils the mean of gamma for ever."""

    def believing(env, s, sender, m):
        return fedslr.device_receive(env, s, sender, replace(m, counted={env.me: s.past.round}))

    method = replace(FEDSLR, device=replace(FEDSLR.device, receive=believing))
    net, trace = play(method, FULL_BATCH, 60, weather=Weather(drop=0.15), policies=HASTY)
    path, _, _ = literal.fedslr(PROBLEMS, THETA0, FULL_BATCH, devices_counted(trace), devices_that_ran(trace))
    assert np.abs(model(net) - path[-1]).max() > 1e-3


def test_the_step_size_follows_the_global_round_of_a_device_that_was_away():
    settings = replace(PAPER_LIKE, decay=0.5, participation=1.0)
    net, trace = play(FEDSLR, settings, 12, weather=Weather(away={"d3": [(8, 30)]}), policies=HASTY)
    S = devices_counted(trace)
    assert 0 < sum("d3" in s for s in S) < 12
    assert agrees(net, trace, settings)[0] < 1e-12


# Golden toy -----------------------------------------------------------------------------------------------------
TOY = layout_of(("w", (2, 2), "linear"))
H = {"d0": 1.0, "d1": 3.0}
B = {"d0": np.array([2.0, 0, 1, -1]), "d1": np.array([0.0, 1, -1, 2])}
TOY_SETTINGS = dict(eta_l=0.1, decay=1.0, weight_decay=0.0, batch=0, lam=0.5)


class Toy(LeastSquares):
    """f(w) = h/2 ||w - B||^2."""

    def __init__(self, name):
        super().__init__(np.eye(4), B[name])
        object.__setattr__(self, "h", H[name])

    def __call__(self, theta, indices=None):
        return self.h / 2 * float(((theta - self.b) ** 2).sum()), self.h * (theta - self.b)


def exactly(name, eta_g):
    """The minimiser of eq. (4) for one device of the toy."""
    return lambda w, gamma: (H[name] * B[name] + gamma + w / eta_g) / (H[name] + 1 / eta_g)


def toy(method, settings, rounds, exact=False, participation=None):
    """w after each round of the toy on three tiers."""
    common = dict(seed=SEED, rounds=rounds, layout=TOY, theta0=np.zeros(4), settings=settings)
    envs = {"aggregator": method.env(**common, sizes={"h": 2}), "h": method.env(**common, sizes=dict.fromkeys(H, 1))}
    for name in H:
        extra = {"local_solver": exactly(name, settings.eta_g)} if exact else {}
        envs[name] = method.env(**common, grad_fn=Toy(name), samples=4, **extra)
    net, trace = play(method, settings, rounds, tree={"h": tuple(H)}, envs=envs)
    return [lowrank.unpack(TOY, c.state.model) for c in trace.closed["aggregator"]], net


EXACT = Settings(eta_g=0.1, mu=0.8, **TOY_SETTINGS)
LIMIT = (0.29656663, 0.60469045, -0.35469045, 1.04656663)


def test_golden_full():
    path, net = toy(FEDSLR, EXACT, 400, exact=True)
    assert np.allclose(path[0], (0.1402967, 0.20291305, -0.11200396, 0.32910789), atol=1e-8)
    assert np.allclose(np.linalg.svd(path[0].reshape(2, 2))[1], (0.38740607, 0.17784909), atol=1e-8)
    assert np.allclose(path[1], (0.16165875, 0.27758337, -0.16219875, 0.46585455), atol=1e-8)
    assert np.allclose(path[2], (0.18344452, 0.33387485, -0.19623976, 0.56612827), atol=1e-8)
    assert np.allclose(path[-1], LIMIT, atol=1e-8)
    for d in H:
        assert np.allclose(state(net, d).tried, H[d] * (np.array(LIMIT) - B[d]), atol=1e-7)


def losing_its_memory(node, at, recalls=True):
    """FedSLR in which the disk of a node is replaced before the question of round `at`."""

    def once(start, receive):
        lost = []

        def forgetful(env, s, sender, m):
            if env.me == node and sender == "up" and m.round == at and not lost:
                lost.append(s)
                s, m = start(env)[0], m if recalls else replace(m, counted={})
            return receive(env, s, sender, m)

        return forgetful

    device = replace(FEDSLR.device, receive=once(fedslr.device_start, fedslr.device_receive))
    hospital = replace(FEDSLR.hospital, receive=once(fedslr.hospital_start, fedslr.hospital_receive))
    return replace(FEDSLR, device=device, hospital=hospital)


@pytest.mark.parametrize("node", ["d1", "h"])
@pytest.mark.parametrize("at", [1, 7])
def test_a_replaced_disk_leaves_no_trace_in_the_mean_of_gamma(node, at):
    path, net = toy(losing_its_memory(node, at), EXACT, 400, exact=True)
    s = state(net, "aggregator")
    assert s.era == 1
    assert np.allclose(s.gamma_mean, np.mean([state(net, d).tried for d in H], axis=0), atol=1e-12)
    assert np.allclose(path[at], path[at - 1], atol=0)  # the round in which it came out
    assert np.allclose(path[-1], LIMIT, atol=1e-8)


def test_without_a_new_era_a_replaced_device_moves_the_fixed_point():
    path, _ = toy(losing_its_memory("d1", 7, recalls=False), EXACT, 400, exact=True)
    assert np.abs(path[-1] - LIMIT).max() > 1e-2


def test_a_replaced_aggregator_begins_an_era():
    """It counts from round 0 again, and its hospitals and devices do not believe it."""
    past = fedslr.Past(era=0, round=12, counted=11)
    asked = fedslr.Global(lowrank.dense(TOY, np.zeros(4)), 0, 2, {})
    assert fedslr.recalled(past, "h", asked) is None
    assert fedslr.recalled(past, "h", replace(asked, era=1)) == fedslr.Past(era=1)


def test_golden_first_answers():
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), settings=EXACT, me="d0", samples=4, grad_fn=Toy("d0"))
    env = replace(env, local_solver=exactly("d0", 0.1))
    question = fedslr.Global(lowrank.dense(TOY, np.zeros(4)), 0, 1, {})
    s, sends = fedslr.device_receive(env, fedslr.device_start(env)[0], "up", question)
    assert np.allclose(sends[0].message.total, (0.18181818, 0, 0.09090909, -0.09090909), atol=1e-8)
    assert np.allclose(s.tried, (-1.81818182, 0, -0.90909091, 0.90909091), atol=1e-7)
    assert not s.gamma.any()


def test_golden_partial():
    """S_0 = {0}, S_1 = {1}, S_2 = {0}, ..., through the aggregator's own step."""
    s, gamma = fedslr.Aggregator(lowrank.dense(TOY, np.zeros(4)), np.zeros(4)), dict.fromkeys(H, np.zeros(4))
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), settings=EXACT, sizes={"h": 2})
    path = []
    for t in range(1200):
        i, w = ("d0", "d1")[t % 2], lowrank.unpack(TOY, s.model)
        local = exactly(i, 0.1)(w, gamma[i])
        gamma[i] = fedslr.update_auxiliary(gamma[i], w, local, 0.1)
        s, _ = fedslr.aggregator_receive(env, s, "h", fedslr.Sum(local, 1.0))
        s = fedslr.step(env, s)
        path.append(lowrank.unpack(TOY, s.model))
    assert np.allclose(path[0], (0.22529311, -0.01581139, 0.12055225, -0.08892947), atol=1e-8)
    assert np.allclose(path[1], (0.19676252, 0.30785855, -0.19391959, 0.54725335), atol=1e-8)
    assert np.allclose(path[2], (0.21828163, 0.35498669, -0.21081911, 0.61445022), atol=1e-8)
    assert np.allclose(path[-1], LIMIT, atol=1e-8)
    assert np.abs(s.gamma_mean - sum(gamma.values()) / 2).max() < 1e-12  # R6, R9


def test_golden_phase_two():
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), samples=4, grad_fn=Toy("d0"))
    env = replace(env, settings=replace(EXACT, eta_l=0.5, personal_epochs=1))
    first = fedslr.local_fusion(env, 0, np.array(LIMIT), np.zeros(4))
    assert np.allclose(first, (0.45171668, 0, 0.27734523, -0.62328332), atol=1e-8)
    env = replace(env, settings=replace(env.settings, personal_epochs=200))
    limit = fedslr.local_fusion(env, 0, np.array(LIMIT), np.zeros(4))
    assert np.allclose(limit, (0.90343337, 0, 0.55469045, -1.24656663), atol=1e-8)
    assert np.allclose(limit, l1(B["d0"] - np.array(LIMIT), 0.8), atol=1e-12)


@pytest.mark.parametrize(
    "where, limit",
    [
        ("server_penalty", (0.74742638, 0.57124659, -0.16995771, 0.74098199)),  # GPGD
        ("local_penalty", (0.54487511, 0.4580144, -0.18073591, 0.81693822)),  # LPGD
    ],
)
def test_golden_alternatives_end_elsewhere(where, limit):
    settings = fedavg.Settings(**TOY_SETTINGS, local_epochs=10, weighting="uniform", **{where: "nuclear"})
    path, _ = toy(fedavg.FEDAVG, settings, 300)
    assert np.allclose(path[-1], limit, atol=1e-8)


# Identities of the theory: exact local solves, full participation ------------------------------------------------
class Quadratics:
    """Four devices with f_i(W) = 1/2 ||A_i W - B_i||^2, W 6 x 5, through the method's own equations."""

    def __init__(self, eta_g_times_L, lam=0.3):
        rng = np.random.default_rng(0)
        self.a = [rng.normal(size=(6, 6)) / 3 + np.diag(np.linspace(0.3, 1, 6)) for _ in range(4)]
        self.b = [rng.normal(size=(6, 5)) for _ in range(4)]
        self.L = max(np.linalg.eigvalsh(a.T @ a).max() for a in self.a)
        self.eta, self.lam = eta_g_times_L / self.L, lam
        layout = layout_of(("w", (6, 5), "linear"))
        self.env = FEDSLR.env(layout=layout, theta0=np.zeros(30), settings=Settings(eta_g=self.eta, lam=lam))

    def f(self, i, w):
        return 0.5 * ((self.a[i] @ w.reshape(6, 5) - self.b[i]) ** 2).sum()

    def grad(self, i, w):
        return (self.a[i].T @ (self.a[i] @ w.reshape(6, 5) - self.b[i])).ravel()

    def solve(self, i, w, gamma):
        h = self.a[i].T @ self.a[i] + np.eye(6) / self.eta
        return np.linalg.solve(h, self.a[i].T @ self.b[i] + (gamma + w / self.eta).reshape(6, 5)).ravel()

    def rounds(self, count):
        """(t, w, w_i, gamma_i before, gamma_i after, x, next w) of each round."""
        w, gamma = np.zeros(30), [np.zeros(30)] * 4
        for t in range(count):
            local = [self.solve(i, w, gamma[i]) for i in range(4)]
            before, gamma = gamma, [fedslr.update_auxiliary(gamma[i], w, local[i], self.eta) for i in range(4)]
            mean, gamma_mean = np.mean(local, 0), np.mean(gamma, 0)
            after = lowrank.unpack(self.env.layout, fedslr.aggregate(self.env, w, mean, gamma_mean))
            yield t, w, local, before, gamma, mean - self.eta * gamma_mean, after
            w = after

    def potential(self, x, ys, gs):
        nuclear = np.linalg.svd(x.reshape(6, 5), compute_uv=False).sum()
        terms = [
            self.f(i, y) + g @ (x - y) + ((x - y) ** 2).sum() / (2 * self.eta)
            for i, (y, g) in enumerate(zip(ys, gs, strict=True))
        ]
        return np.mean(terms) + self.lam * nuclear


def test_I1_gamma_is_the_local_gradient():
    q = Quadratics(0.49)
    for _, _, local, _, gamma, _, _ in q.rounds(30):
        assert max(np.abs(gamma[i] - q.grad(i, local[i])).max() for i in range(4)) < 1e-13


@pytest.mark.parametrize("share", [0.49, 5.0])
def test_I2_a_local_model_moves_no_further_than_its_gradient_allows(share):
    q, old = Quadratics(share), None
    for t, w, local, _, _, _, _ in q.rounds(30):
        for i in range(4) if t else ():
            moved = np.linalg.norm(local[i] - old[i])
            assert np.linalg.norm(w - local[i]) <= q.L * q.eta * moved + 1e-12
        old = local


def test_I3_the_certificate_of_the_prox():
    q = Quadratics(0.49)
    for _, _, _, _, _, x, w in q.rounds(30):
        g, w = ((x - w) / (q.eta * q.lam)).reshape(6, 5), w.reshape(6, 5)
        assert np.linalg.norm(g, 2) <= 1 + 1e-9
        assert np.isclose((g * w).sum(), np.linalg.svd(w, compute_uv=False).sum(), rtol=1e-9)


@pytest.mark.parametrize("share", [0.49, 0.5, 5.0, 20.0])
def test_I4_the_potential_descends_as_lemma_3_says(share):
    q, last, old = Quadratics(share), None, None
    for t, w, local, _, gamma, _, after in q.rounds(60):
        d = q.potential(after, local, gamma)
        if t:
            c = q.L**2 * q.eta + q.L / 2 - 1 / (2 * q.eta)
            moved = np.mean([((local[i] - old[i]) ** 2).sum() for i in range(4)])
            assert d - last <= c * moved - ((after - w) ** 2).sum() / (2 * q.eta) + 1e-10
            assert share > 0.5 or d <= last + 1e-11
        last, old = d, local


def test_I5_full_participation_needs_only_the_old_gamma():
    q = Quadratics(0.49)
    for _, w, local, before, _, x, _ in q.rounds(30):
        assert np.abs(x - (2 * np.mean(local, 0) - w - q.eta * np.mean(before, 0))).max() < 1e-13


@pytest.mark.parametrize("share", [0.49, 20.0])
def test_the_limit_is_the_minimiser_of_P1(share):
    """Also far beyond the step size of Theorem 1 (A20)."""
    q = Quadratics(share)
    *_, (_, _, local, _, _, _, w) = q.rounds(3000)
    gradient = np.mean([q.grad(i, w) for i in range(4)], 0)
    nearest = fedslr.aggregate(q.env, w, w, gradient)
    assert np.linalg.norm(w - lowrank.unpack(q.env.layout, nearest)) / q.eta < 1e-9
    assert max(np.abs(v - w).max() for v in local) < 1e-9


# Reductions -----------------------------------------------------------------------------------------------------
def test_R1_without_the_penalty_it_is_feddyn():
    settings = replace(FULL_BATCH, lam=0.0, participation=0.5)
    net, trace = play(FEDSLR, settings, 30)
    alpha, h, w = 1 / settings.eta_g, np.zeros_like(THETA0), THETA0
    grad = {i: np.zeros_like(w) for i in DEVICES}
    for S_t in devices_counted(trace):
        local = {}
        for i in S_t:
            v = w
            for _ in range(settings.local_epochs):
                v = v - settings.eta_l * (PROBLEMS[i](v)[1] - grad[i] + alpha * (v - w))
            local[i], grad[i] = v, grad[i] - alpha * (v - w)
        h = h - alpha / len(DEVICES) * sum(local[i] - w for i in S_t)
        w = sum(local.values()) / len(S_t) - h / alpha
    assert np.abs(model(net) - w).max() < 1e-12


def test_R2_without_gamma_it_is_fedprox():
    """Phase I with gamma = 0 is FedProx's local step."""
    settings = replace(PAPER_LIKE, lam=0.0)
    env = replace(envs_of(FEDSLR, settings, 1)["d2"], me="d2")
    mine, _ = fedslr.local_phase(env, 3, THETA0, np.zeros_like(THETA0))
    theirs = fedavg.Settings(
        **{k: getattr(settings, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")},
        proximal=1 / settings.eta_g,
    )
    other = replace(envs_of(fedavg.FEDAVG, theirs, 1)["d2"], me="d2")
    prox, _ = fedavg.client_update(other, 3, THETA0, 2, fedavg.TRAINING)
    assert np.abs(mine - prox).max() < 1e-14


@pytest.mark.parametrize("change", [{"mu": 1e6}, {"personal_epochs": 0}], ids=str)
def test_R3_no_personal_component(change):
    net, _trace = play(FEDSLR, replace(PAPER_LIKE, **change), 6)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    for d in DEVICES:
        models = FEDSLR.models(net.nodes[d].env, state(net, d), shown)
        assert models["personal"].tobytes() == models["global"].tobytes()


def test_R3_mu_zero_is_fine_tuning():
    env = replace(envs_of(FEDSLR, replace(PAPER_LIKE, mu=0.0, personal_weight_decay=False), 1)["d2"], me="d2")
    p = fedslr.local_fusion(env, 0, THETA0, np.zeros_like(THETA0))
    v = THETA0
    for batch in literal.shuffled(SEED, 0, "d2", 2, env.samples, 16, 1):
        v = v - 0.1 * PROBLEMS["d2"](v, batch)[1]
    assert np.abs(THETA0 + p - v).max() < 1e-13 and (p != 0).all()


def test_the_personal_model_may_be_settled_on_the_final_w_and_only_there():
    """Problem (3) at the final w: phase II goes on from the last p, with the stream of a round of its own."""
    net, _trace = play(FEDSLR, replace(PAPER_LIKE, settle_epochs=3), 4)
    plain, _ = play(FEDSLR, PAPER_LIKE, 4)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    assert shown.round == 4
    for d in DEVICES:
        env, s = replace(net.nodes[d].env, me=d), state(net, d)
        assert s.p.tobytes() == state(plain, d).p.tobytes()  # training is the same
        found = FEDSLR.models(env, s, shown)
        expected = fedslr.local_fusion(env, 4, found["global"], s.p, 3)
        assert found["personal"].tobytes() == (found["global"] + expected).tobytes()
        earlier = FEDSLR.models(env, s, replace(shown, round=3))
        assert earlier["personal"].tobytes() == (found["global"] + s.p).tobytes()


def test_R4_lambda_very_large_leaves_only_what_has_no_matrix():
    net, _ = play(FEDSLR, replace(PAPER_LIKE, lam=1e6), 3)
    packed = state(net, "aggregator").model
    assert packed.ranks == (0, 0)
    assert lowrank.floats(LAYOUT, packed.ranks) == packed.values.size == 2
    w = model(net)
    assert np.count_nonzero(w) == 2 and (w[LAYOUT.slots[1].span] != 0).all()


def test_R5_w_gamma_and_cost_do_not_depend_on_phase_two():
    changes = {}, {"mu": 9.0, "personal_epochs": 3}
    runs = [play(FEDSLR, replace(PAPER_LIKE, participation=0.5, **c), 12)[0] for c in changes]
    a, b = (state(net, "aggregator") for net in runs)
    assert a.model.values.tobytes() == b.model.values.tobytes() and a.model.ranks == b.model.ranks
    assert a.gamma_mean.tobytes() == b.gamma_mean.tobytes()
    for d in DEVICES:
        one, other = (state(net, d) for net in runs)
        assert one.tried.tobytes() == other.tried.tobytes()
        assert (one.p != other.p).any() or one.round < 0


def test_R6_one_mean_is_as_good_as_all_gammas():
    """Algorithm 3 against the mean that Algorithm 2 takes of the devices' own gammas; R9 with it."""
    settings = replace(PAPER_LIKE, participation=0.5)
    net, trace = play(FEDSLR, settings, 25)
    last = devices_counted(trace)
    moved = {d: state(net, d).tried for d in DEVICES}  # without loss every try was counted
    assert np.abs(sum(moved.values()) / 6 - state(net, "aggregator").gamma_mean).max() < 1e-13
    assert len(last) == 25


def test_R6_with_one_device_it_is_douglas_rachford():
    """z_t = w_t + eta_g gamma_t: y = prox_f(z), w = prox_R(2 y - z), z <- z + w - y."""
    q = Quadratics(0.49)
    w, gamma, z = np.zeros(30), np.zeros(30), np.zeros(30)
    for _ in range(50):
        local = q.solve(0, w, gamma)
        gamma = fedslr.update_auxiliary(gamma, w, local, q.eta)
        w = lowrank.unpack(q.env.layout, fedslr.aggregate(q.env, w, local, gamma))
        y = q.solve(0, z, np.zeros(30))
        x = nuclear((2 * y - z).reshape(6, 5), q.eta * q.lam).ravel()
        z = z + x - y
        assert np.abs(w - x).max() < 1e-12 and np.abs(z - (w + q.eta * gamma)).max() < 1e-12


def test_R9_in_float32_the_mirror_stays_within_rounding():
    envs = envs_of(FEDSLR, PAPER_LIKE, 25, np.float32)
    net, _ = play(FEDSLR, PAPER_LIKE, 25, envs=envs)
    mean = sum(state(net, d).tried.astype(np.float64) for d in DEVICES) / 6
    assert state(net, "aggregator").gamma_mean.dtype == state(net, "d0").p.dtype == np.float32
    assert np.abs(mean - state(net, "aggregator").gamma_mean).max() < 1e-5


# Wrong readings -------------------------------------------------------------------------------------------------
def test_A1_gamma_divided_by_eta_g_is_another_algorithm():
    settings = replace(FULL_BATCH, eta_g=0.2)
    net, trace = play(FEDSLR, settings, 20)
    assert agrees(net, trace, settings)[0] < 1e-12
    wrong = agrees(net, trace, settings, gamma_times=1 / settings.eta_g)[0]
    assert not wrong < 1e3  # it diverges


def test_A2_gamma_averaged_over_the_picked_never_settles():
    settings = replace(FULL_BATCH, eta_g=0.2, local_epochs=60, participation=0.34)
    S = devices_counted(play(FEDSLR, replace(settings, local_epochs=1), 600)[1])
    moves = {}
    for over in ("all", "S"):
        path, _, _ = literal.fedslr(PROBLEMS, THETA0, replace(settings, personal_epochs=0), S, gamma_over=over)
        moves[over] = np.mean([np.linalg.norm(b - a) for a, b in zip(path[-50:], path[-49:], strict=False)])
    assert moves["all"] < 1e-3 * moves["S"]


def test_A2_as_a_fault_of_the_aggregator_is_seen():
    """1/|S_t| in place of 1/M for the mean of gamma."""

    def close(env, s):
        return fedslr.aggregator_close(replace(env, sizes={"h": s.tally.count}) if s.tally else env, s)

    faulty = replace(FEDSLR, aggregator=replace(FEDSLR.aggregator, close=close))
    settings = replace(PAPER_LIKE, participation=0.5)
    net, trace = play(faulty, settings, 1)
    assert agrees(net, trace, settings)[0] > 1e-3


# Privacy --------------------------------------------------------------------------------------------------------
def test_p_and_gamma_never_cross_a_wire():
    _, trace = play(FEDSLR, PAPER_LIKE, 6)
    private = {v.tobytes() for d in DEVICES for s in trace.states[d] for v in (s.p, s.tried) if v.any()}
    vectors = [m.total if isinstance(m, fedslr.Sum) else m.model.values for _, _, m in trace.crossed]
    assert len(private) == 6 * 6 * 2 and not private & {v.tobytes() for v in vectors}


def test_no_device_is_named_above_its_hospital():
    _, trace = play(FEDSLR, replace(PAPER_LIKE, participation=0.5), 6)
    above = [m for a, b, m in trace.crossed if "aggregator" in (a, b)]
    assert above and not any(d in repr(m) for m in above for d in DEVICES)


# Variants, settings, what is told --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [{"global_penalty": "l1"}, {"global_penalty": "none"}, {"personal_penalty": "nuclear"}],
    ids=["S+S", "none", "LR+LR"],
)
def test_variants_agree_with_the_literal_algorithm(change):
    settings = replace(PAPER_LIKE, **change)
    net, trace = play(FEDSLR, settings, 10)
    error, _, p = agrees(net, trace, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_a_further_smooth_term_composes_with_low_rank():
    """ServerTerms: AugFL's pretrained model beside FedSLR's penalty; the limit is a point of both."""
    target, k = np.random.default_rng(2).normal(size=LAYOUT.size), 0.3
    envs = envs_of(FEDSLR, FULL_BATCH, 150, smooth_grad=lambda w: k * 2 * (w - target))
    net, trace = play(FEDSLR, FULL_BATCH, 150, envs=envs)
    assert agrees(net, trace, FULL_BATCH, smooth=lambda w: k * 2 * (w - target))[0] < 1e-12
    w = model(net)
    gradient = sum(f(w)[1] for f in PROBLEMS.values()) / 6 + k * 2 * (w - target)
    again = fedslr.aggregate(replace(net.nodes["aggregator"].env, smooth_grad=None), w, w, gradient)
    assert np.abs(lowrank.unpack(LAYOUT, again) - w).max() < 1e-6


def test_p_may_start_as_the_authors_code_has_it():
    layout = layout_of(("w", (2, 2), "linear"), ("scale", (2,), "norm"), ("b", (2,), "bias"))
    env = FEDSLR.env(layout=layout, theta0=np.arange(1.0, 9.0), settings=Settings(p_init="copy_w0"))
    assert fedslr.device_start(env)[0].p.tolist() == [1, 2, 3, 4, 0, 0, 7, 8]


def test_progress_of_each_round():
    _, trace = play(FEDSLR, replace(PAPER_LIKE, participation=0.5), 5)
    found = told(trace, Progress)
    assert [(p.round, p.devices, p.sums["devices"]) for p in found] == [(r, 3, 3) for r in range(1, 6)]
    assert {"loss", "samples", "global_correct", "personal_correct", "global_accuracy"} <= set(found[0].sums)
    assert found[0].sums["global_correct"] == found[0].sums["personal_correct"]  # p = 0 on what was received first
    assert found[-1].sums["loss"] < found[0].sums["loss"]


@pytest.mark.parametrize(
    "key, value",
    [
        ("eta_g", 0.0), ("eta_g", float("nan")), ("eta_l", -1.0), ("lam", -1e-4), ("mu", float("inf")), ("decay", 1.5),
        ("batch", -1), ("local_epochs", -2), ("participation", 0.0), ("participation", 2.5), ("selection", "some"),
        ("global_penalty", "l2"), ("personal_penalty", "none"), ("p_init", "random"), ("lipschitz", 0.0),
    ],
)  # fmt: skip
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})


def test_warnings_only_where_the_constant_is_known():
    assert fedslr.warnings(Settings()) == []
    assert fedslr.warnings(Settings(lipschitz=1.0, eta_l=0.1, eta_g=0.4)) == []
    found = fedslr.warnings(Settings(lipschitz=1.0, eta_l=1.0, eta_g=0.5))
    assert len(found) == 2 and "eta_l" in found[0] and "eta_g" in found[1]


def test_learning_rate_of_the_last_round_of_the_paper():
    assert np.isclose(Settings().eta(999), 0.01353, atol=1e-5)
    assert np.isclose(sum(Settings().eta(t) for t in range(1000)), 43.247, atol=1e-3)
