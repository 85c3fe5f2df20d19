"""FedBCD over three tiers against the paper's synchronous algorithm, the goldens, the contract of all clouds."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.methods.fedbcd import device as fedbcd_device
from edge_sdk.methods.fedbcd import hospital as fedbcd_hospital
from edge_sdk.methods.fedbcd import messages as fedbcd_messages
from edge_sdk.methods.fedbcd import settings as fedbcd_settings
from edge_sdk.methods.fedbcd.method import FEDBCD, FEDBCD_I, policies
from edge_sdk.methods.fedbcd.settings import OfflineSettings, Settings
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus import consensus, mixing
from tests.methods import contract
from tests.methods.fedbcd import literal_fedbcd as literal
from tests.methods.fedbcd.fedbcd_runs import DRAWN, GAMMAS, OFFLINE, SYNC, X0, model, off, run
from tests.methods.problems import (
    DEVICES,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    SEED,
    SIZES,
    TREE,
    LeastSquares,
    devices_counted,
    devices_that_ran,
    envs_of,
    play,
    state,
)

ONE = layout_of(("w", (1,), "other"))


def personal_error(net, x):
    return max(max(off(state(net, d).x, x[d][0]), off(state(net, d).before, x[d][1])) for d in DEVICES)


def versions_known(transcript):
    """Aggregator round -> {device: the round whose x_i is in the sum; ("z", round): the model of that round is}.

    A hospital whose first question is not that of round 0 cannot tell whether its disk was lost before. It counts a
    device that it has not heard with the present model.
    """
    at_hospital, at_aggregator, rounds = {}, {}, []
    late = {h for h in TREE if transcript.ran[h][0] > 1}
    part = {(h, c.above - 1): c.children for h in TREE for c in transcript.closed.get(h, [])}
    for r, c in enumerate(transcript.closed["aggregator"]):
        at_hospital |= {d: r for h in TREE for d in part.get((h, r), [])}
        at_aggregator |= {d: ("z", r) for h in c.children for d in TREE[h] if h in late and d not in at_hospital}
        at_aggregator |= {d: at_hospital[d] for h in c.children for d in TREE[h] if d in at_hospital}
        rounds.append(dict(at_aggregator))
    return rounds


# Golden traces --------------------------------------------------------------------------------------------------
def scalar(settings, targets, rounds, method=FEDBCD, **more):
    """One hospital, devices with g_i = (x - b)^2 / 2, everything starts at 0."""
    tree = {"h": tuple(targets)}
    common = dict(seed=SEED, rounds=rounds, layout=ONE, theta0=np.zeros(1), settings=settings)
    envs = {"aggregator": method.env(**common, sizes={"h": len(targets)})}
    envs["h"] = method.env(**common, sizes=dict.fromkeys(targets, 1))
    for d, b in targets.items():
        envs[d] = method.env(**common, grad_fn=LeastSquares(np.ones((1, 1)), np.array([b])), samples=1)
    return play(method, settings, rounds, tree=tree, envs=envs, **more)


GOLDEN = Settings(
    eta_x=0.25,
    zeta=0.5,
    local_steps=2,
    draw_steps=False,
    unit="step",
    batch=0,
    feasible="free",
    eta_z=0.25,
    eta_mode="raw",
)


def test_golden_aspg_and_sync():
    away = NetworkFaults(away={"d1": [(4.0, inf)]})  # from round 1 on there is only d0
    net, transcript = scalar(
        GOLDEN, {"d0": 0.0, "d1": 4.0}, 2, faults=away, policies=policies(GOLDEN, {"h": 2}, 9.0, 5.0)
    )
    assert [c.state.model.values[0] for c in transcript.closed["aggregator"]] == [0.4375, 0.7041015625]
    d0, d1 = state(net, "d0"), state(net, "d1")
    assert (d0.x, d0.before) == (0.19140625, 0.109375)
    assert (d1.x, d1.before) == (1.75, 1.0)


@pytest.mark.parametrize(
    "feasible, z, x", [("free", 2.0, (1, 3)), ("box", 4 / 3, (2 / 3, 2)), ("ball", 4 / 3, (2 / 3, 2))]
)
def test_golden_optimum(feasible, z, x):
    settings = replace(GOLDEN, feasible=feasible)
    net, _ = scalar(settings, {"d0": 0.0, "d1": 4.0}, 60)
    got = [state(net, "aggregator").model.values[0], state(net, "d0").x[0], state(net, "d1").x[0]]
    assert np.allclose(got, (z, *x), atol=1e-9)
    if feasible == "free":
        assert np.isclose(sum((x - b) ** 2 / 2 + (x - z) ** 2 / 2 for x, b in zip(got[1:], (0, 4), strict=True)), 2)


def test_golden_first_b():
    """The last is the step alone of the rigorous protocol."""
    copies, after = [(0.0, 1.0), (2.0, 4.0), (8.0, 10.0)], []
    env = fedbcd_settings.Env(
        layout=ONE, theta0=np.zeros(1), sizes={"a": 1, "b": 1}, settings=replace(GOLDEN, cloud="rigorous")
    )
    w = consensus.apply_mixing(mixing.complete(["0", "1"]), np.array([[1.0], [3.0]]))[0]
    for z, (a, b), mixed in zip((1.0, 3.0, 8.0), copies, (w, w, None), strict=True):
        news = {"a": Sum(np.array([a]), 1.0), "b": Sum(np.array([b]), 1.0)}
        s, _ = fedbcd_hospital.hospital_close(
            env, fedbcd_hospital.HospitalState(lowrank.dense(ONE, np.array([z])), 0, news)
        )
        packed = None if mixed is None else lowrank.dense(ONE, mixed)
        after.append(fedbcd_hospital.take_mixed(env, s, packed, 1, 0.1).model.values[0])
    assert w == 2 and np.allclose(after, (1.7, 2.2, 8.2), atol=1e-15)


def test_golden_fedbcd_i():
    settings = OfflineSettings(
        gamma=0.5, eta_x=0.25, zeta=0.5, local_steps=2, draw_steps=False, unit="step", batch=0, feasible="free"
    )
    grad = LeastSquares(np.ones((1, 1)), np.array([4.0]))
    env = fedbcd_settings.OfflineEnv(me="d", layout=ONE, theta0=np.zeros(1), settings=settings, grad_fn=grad, samples=1)
    s = fedbcd_device.train(env, fedbcd_device.device_start(env)[0])
    assert (s.x, s.before) == (2.125, 1.0)
    zero = fedbcd_messages.FedbcdModel(lowrank.dense(ONE, np.zeros(1)), 0)
    s, _ = fedbcd_device.offline_device_receive(env, s, UP, zero)
    assert (s.x, s.before, s.offline) == (0.53125, 1.0625, 0)
    env = replace(env, settings=replace(settings, after_pull="reset"))
    s, _ = fedbcd_device.offline_device_receive(
        env, fedbcd_device.train(env, fedbcd_device.device_start(env)[0]), UP, zero
    )
    assert s.before == s.x == 0.53125


# Three tiers against the literal algorithms: sync ---------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("settings", [
    replace(DRAWN, participation=1.0),
    replace(DRAWN, participation=0.4, cloud_steps=3),
    replace(DRAWN, unit="epoch", local_steps=2, participation=2.0),
], ids=["all", "drawn, K_z = 3", "epochs"])  # fmt: skip
def test_sync(settings, seed):
    net, transcript = run(settings, seed=seed)
    ran = devices_that_ran(transcript)
    assert devices_counted(transcript) == ran and all(
        len(s) == sum(settings.taking_part(n) for n in SIZES.values()) for s in ran
    )
    path, x = literal.fedbcd(PROBLEMS, settings, X0, 0.08, 30, ran, versions_known(transcript))
    assert off(model(net), path[-1]) < 1e-12 and personal_error(net, x) < 1e-12
    assert off(path[-1], X0) > 0.1 and transcript.refused


@pytest.mark.parametrize("seed", range(4))
def test_sync_with_losses_a_dead_device_and_a_hospital_away(seed):
    faults = replace(LOSSY, away={"d5": [(0, inf)], "d0": [(20, 90)], "h1": [(0, 30), (60, 110)]})
    net, transcript = run(DRAWN, seed=seed, faults=faults, deadline=9.0, hospital_deadline=4.0)
    heard = [c.children for c in transcript.closed["aggregator"]]
    assert "h1" not in heard[0] and not all("h0" in c for c in heard)
    path, x = literal.fedbcd(PROBLEMS, DRAWN, X0, 0.08, 30, devices_that_ran(transcript), versions_known(transcript))
    assert off(model(net), path[-1]) < 1e-12 and personal_error(net, x) < 1e-12
    assert off(state(net, "d5").x, X0) == 0


def test_the_aggregators_own_terms():
    """A low-rank z, as FedSLR has it, and a smooth term: both act in the step of the aggregator."""
    pulled = replace(SYNC, server_penalty="l1", lam=0.5, local_steps=3)
    envs = envs_of(FEDBCD, pulled, 400)
    envs["aggregator"] = replace(envs["aggregator"], smooth_grad=lambda z: 0.3 * z)
    net, _ = run(pulled, 400, envs=envs, faults=NetworkFaults(repeat=0))
    z = model(net)
    G = sum(GAMMAS.values())
    slope = G * z - sum(GAMMAS[d] * state(net, d).x for d in DEVICES) + 0.3 * z
    for slot in LAYOUT.slots:
        part, g = z[slot.span], slope[slot.span]
        free = np.ones_like(part, bool) if slot.kind == "bias" else part != 0
        bound = 0.0 if slot.kind == "bias" else 0.5
        assert off(g[free], -bound * np.sign(part[free])) < 1e-9 and (np.abs(g[~free]) <= bound + 1e-9).all()
    assert (z == 0).any()


# The contract, also for the asynchronous clouds -----------------------------------------------------------------
CONTRACT = {
    "fedbcd": (FEDBCD, replace(DRAWN, local_steps=2)),
    "fedbcd first-b": (FEDBCD, replace(DRAWN, local_steps=2, cloud="first-b")),
    "fedbcd rigorous": (FEDBCD, replace(DRAWN, local_steps=2, cloud="rigorous", cloud_steps=2)),
    "fedbcd-i": (FEDBCD_I, OFFLINE),
    "fedbcd-i rigorous": (FEDBCD_I, replace(OFFLINE, cloud="rigorous")),
}


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name, check):
    check(*CONTRACT[name])
