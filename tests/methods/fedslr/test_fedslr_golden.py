"""FedSLR's golden toy, two devices and a 2 x 2 matrix: each step, the limit, and a replaced disk."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.prox import l1
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedslr import aggregator as fedslr_aggregator
from edge_sdk.methods.fedslr import device as fedslr_device
from edge_sdk.methods.fedslr import equations as fedslr_equations
from edge_sdk.methods.fedslr import hospital as fedslr_hospital
from edge_sdk.methods.fedslr import messages as fedslr_messages
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.fedslr import uploads as fedslr_uploads
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings
from edge_sdk.methods.shared.membership.mirror import recalled
from tests.methods.lost_disks import putting_back
from tests.methods.problems import SEED, LeastSquares, play, state

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
    net, transcript = play(method, settings, rounds, tree={"h": tuple(H)}, envs=envs)
    return [lowrank.unpack(TOY, c.state.model) for c in transcript.closed["aggregator"]], net


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

    device = replace(FEDSLR.device, receive=once(fedslr_device.device_start, fedslr_device.device_receive))
    hospital = replace(FEDSLR.hospital, receive=once(fedslr_hospital.hospital_start, fedslr_hospital.hospital_receive))
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


@pytest.mark.parametrize("at", [1, 7])
def test_a_hospital_put_back_from_the_middle_of_a_round_leaves_no_trace_in_the_mean_of_gamma(at):
    """The backup has not heard all whose w_i were counted: so the others would keep a gamma that the mean has not."""
    path, net = toy(putting_back(FEDSLR, "h", at), EXACT, 400, exact=True)
    s = state(net, "aggregator")
    assert s.era == 1
    assert np.allclose(s.gamma_mean, np.mean([state(net, d).tried for d in H], axis=0), atol=1e-12)
    assert np.allclose(path[at], path[at - 1], atol=0)
    assert np.allclose(path[-1], LIMIT, atol=1e-8)


def going_back(node, since, at):
    """FedSLR in which a node is put back from a backup: before round `at` it is again as it was before `since`."""

    def once(act, key):
        seen = {}

        def restored(*args):
            round = key(*args)
            if round == since:
                seen.setdefault(since, args[1])
            if round == at and "done" not in seen:
                seen["done"] = True
                args = (args[0], seen[since], *args[2:])
            return act(*args)

        return restored

    def asked(env, s, sender, m):
        return m.round if env.me == node and sender == "up" else -1

    device = replace(FEDSLR.device, receive=once(fedslr_device.device_receive, asked))
    hospital = replace(FEDSLR.hospital, receive=once(fedslr_hospital.hospital_receive, asked))
    close = once(fedslr_aggregator.aggregator_close, lambda env, s: s.round if node == "agg" else -1)
    return replace(FEDSLR, device=device, hospital=hospital, aggregator=replace(FEDSLR.aggregator, close=close))


@pytest.mark.parametrize("node", ["d1", "h", "agg"])
@pytest.mark.parametrize(("since", "at"), [(3, 4), (3, 9), (0, 9)])
def test_a_node_put_back_from_a_backup_leaves_no_trace_in_the_mean_of_gamma(node, since, at):
    path, net = toy(going_back(node, since, at), EXACT, 400, exact=True)
    s = state(net, "aggregator")
    assert np.allclose(s.gamma_mean, np.mean([state(net, d).tried for d in H], axis=0), atol=1e-12)
    assert np.allclose(path[-1], LIMIT, atol=1e-8)


def test_without_a_new_era_a_replaced_device_moves_the_fixed_point():
    path, _ = toy(losing_its_memory("d1", 7, recalls=False), EXACT, 400, exact=True)
    assert np.abs(path[-1] - LIMIT).max() > 1e-2


def test_a_replaced_aggregator_begins_an_era():
    """It counts from round 0 again, and its hospitals and devices do not believe it."""
    past = fedslr_uploads.Past(era=0, round=12, counted=11)
    asked = fedslr_messages.FedslrModel(lowrank.dense(TOY, np.zeros(4)), 0, 2, {})
    assert recalled(past, "h", asked) is None
    assert recalled(past, "h", replace(asked, era=1)) == fedslr_uploads.Past(era=1)


def test_golden_first_answers():
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), settings=EXACT, me="d0", samples=4, grad_fn=Toy("d0"))
    env = replace(env, local_solver=exactly("d0", 0.1))
    question = fedslr_messages.FedslrModel(lowrank.dense(TOY, np.zeros(4)), 0, 1, {})
    s, sends = fedslr_device.device_receive(env, fedslr_device.device_start(env)[0], "up", question)
    assert np.allclose(sends[0].message.total, (0.18181818, 0, 0.09090909, -0.09090909), atol=1e-8)
    assert np.allclose(s.tried, (-1.81818182, 0, -0.90909091, 0.90909091), atol=1e-7)
    assert not s.gamma.any()


def test_golden_partial():
    """S_0 = {0}, S_1 = {1}, S_2 = {0}, ..., through the aggregator's own step."""
    s, gamma = (
        fedslr_aggregator.AggregatorState(lowrank.dense(TOY, np.zeros(4)), np.zeros(4)),
        dict.fromkeys(H, np.zeros(4)),
    )
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), settings=EXACT, sizes={"h": 2})
    path = []
    for t in range(1200):
        i, w = ("d0", "d1")[t % 2], lowrank.unpack(TOY, s.model)
        local = exactly(i, 0.1)(w, gamma[i])
        gamma[i] = fedslr_equations.update_auxiliary(gamma[i], w, local, 0.1)
        s, _ = fedslr_aggregator.aggregator_receive(env, s, "h", fedslr.Sum(local, 1.0))
        s = fedslr_aggregator.step(env, s)
        path.append(lowrank.unpack(TOY, s.model))
    assert np.allclose(path[0], (0.22529311, -0.01581139, 0.12055225, -0.08892947), atol=1e-8)
    assert np.allclose(path[1], (0.19676252, 0.30785855, -0.19391959, 0.54725335), atol=1e-8)
    assert np.allclose(path[2], (0.21828163, 0.35498669, -0.21081911, 0.61445022), atol=1e-8)
    assert np.allclose(path[-1], LIMIT, atol=1e-8)
    assert np.abs(s.gamma_mean - sum(gamma.values()) / 2).max() < 1e-12  # R6, R9


def test_golden_phase_two():
    env = FEDSLR.env(layout=TOY, theta0=np.zeros(4), samples=4, grad_fn=Toy("d0"))
    env = replace(env, settings=replace(EXACT, eta_l=0.5, personal_epochs=1))
    first = fedslr_equations.local_fusion(env, 0, np.array(LIMIT), np.zeros(4))
    assert np.allclose(first, (0.45171668, 0, 0.27734523, -0.62328332), atol=1e-8)
    env = replace(env, settings=replace(env.settings, personal_epochs=200))
    limit = fedslr_equations.local_fusion(env, 0, np.array(LIMIT), np.zeros(4))
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
