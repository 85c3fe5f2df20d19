"""FedBCD and FedBCD-I over three tiers against the paper's algorithms, and the identities and goldens of the paper."""

from dataclasses import replace
from math import inf

import contract
import literal_fedbcd as literal
import numpy as np
import pytest
from problems import (
    DEVICES,
    LAYOUT,
    LOSSY,
    PROBLEMS,
    SEED,
    SIZES,
    THETA0,
    TREE,
    LeastSquares,
    devices_counted,
    devices_that_ran,
    envs_of,
    play,
    state,
    told,
)

from edge_sdk import lowrank
from edge_sdk.errors import PeerError
from edge_sdk.loopback import Loopback, Weather
from edge_sdk.method import UP
from edge_sdk.methods import consensus, fedbcd, gather, mixing
from edge_sdk.methods.evaluation import Models, Progress, Report, evaluated
from edge_sdk.methods.fedbcd import FEDBCD, FEDBCD_I, OfflineSettings, Settings, policies
from edge_sdk.methods.fedbcd_settings import cloud_eta
from edge_sdk.methods.gather import Sum
from edge_sdk.vectors import layout_of

GAMMAS = dict(zip(DEVICES, (1.0, 0.5, 2.0, 1.5, 1.0, 0.7), strict=True))
SMALL = {d: g / 4 for d, g in GAMMAS.items()}  # FedBCD-I: gamma_i is the step of the pull
ASPG = dict(eta_x=0.1, zeta=0.6, eta_z=0.08, eta_mode="raw", unit="step", batch=0, draw_steps=False, local_steps=1)
SYNC = Settings(gammas=GAMMAS, **ASPG)
DRAWN = replace(SYNC, local_steps=5, draw_steps=True, batch=8)
OFFLINE = OfflineSettings(gammas=SMALL, **(ASPG | dict(local_steps=2)))
X0 = np.clip(THETA0, -2, 2)
ONE = layout_of(("w", (1,), "other"))


def run(settings, rounds=30, *, seed=0, weather=Weather(), deadline=inf, hospital_deadline=inf, method=None, **more):  # noqa: B008
    method = method or (FEDBCD_I if isinstance(settings, OfflineSettings) else FEDBCD)
    kept = policies(settings, SIZES, deadline, hospital_deadline)
    return play(method, settings, rounds, weather=weather, policies=kept, seed=seed, **more)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def z_of(net, hospital):
    return lowrank.unpack(LAYOUT, net.nodes[hospital].record.state.inner.model)


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def personal_error(net, x):
    return max(max(off(state(net, d).x, x[d][0]), off(state(net, d).before, x[d][1])) for d in DEVICES)


def versions_known(trace):
    """Aggregator round -> {device: the round whose x_i is in the sum}."""
    at_hospital, at_aggregator, rounds = {}, {}, []
    part = {(h, c.above - 1): c.children for h in TREE for c in trace.closed.get(h, [])}
    for r, c in enumerate(trace.closed["aggregator"]):
        at_hospital |= {d: r for h in TREE for d in part.get((h, r), [])}
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
    away = Weather(away={"d1": [(4.0, inf)]})  # from round 1 on there is only d0
    net, trace = scalar(GOLDEN, {"d0": 0.0, "d1": 4.0}, 2, weather=away, policies=policies(GOLDEN, {"h": 2}, 9.0, 5.0))
    assert [c.state.model.values[0] for c in trace.closed["aggregator"]] == [0.4375, 0.7041015625]
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
    env = fedbcd.Env(layout=ONE, theta0=np.zeros(1), sizes={"a": 1, "b": 1}, settings=replace(GOLDEN, cloud="rigorous"))
    w = consensus.mixed(mixing.complete(["0", "1"]), np.array([[1.0], [3.0]]))[0]
    for z, (a, b), mixed in zip((1.0, 3.0, 8.0), copies, (w, w, None), strict=True):
        news = {"a": Sum(np.array([a]), 1.0), "b": Sum(np.array([b]), 1.0)}
        s, _ = fedbcd.hospital_close(env, fedbcd.Hospital(lowrank.dense(ONE, np.array([z])), 0, news))
        packed = None if mixed is None else lowrank.dense(ONE, mixed)
        after.append(fedbcd.take(env, s, packed, 1, 0.1).model.values[0])
    assert w == 2 and np.allclose(after, (1.7, 2.2, 8.2), atol=1e-15)


def test_golden_fedbcd_i():
    settings = OfflineSettings(
        gamma=0.5, eta_x=0.25, zeta=0.5, local_steps=2, draw_steps=False, unit="step", batch=0, feasible="free"
    )
    grad = LeastSquares(np.ones((1, 1)), np.array([4.0]))
    env = fedbcd.OfflineEnv(me="d", layout=ONE, theta0=np.zeros(1), settings=settings, grad_fn=grad, samples=1)
    s = fedbcd.train(env, fedbcd.device_start(env)[0])
    assert (s.x, s.before) == (2.125, 1.0)
    zero = fedbcd.Global(lowrank.dense(ONE, np.zeros(1)), 0)
    s, _ = fedbcd.offline_device_receive(env, s, UP, zero)
    assert (s.x, s.before, s.offline) == (0.53125, 1.0625, 0)
    env = replace(env, settings=replace(settings, after_pull="reset"))
    s, _ = fedbcd.offline_device_receive(env, fedbcd.train(env, fedbcd.device_start(env)[0]), UP, zero)
    assert s.before == s.x == 0.53125


# Three tiers against the literal algorithms: sync ---------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("settings", [
    replace(DRAWN, participation=1.0),
    replace(DRAWN, participation=0.4, cloud_steps=3),
    replace(DRAWN, unit="epoch", local_steps=2, participation=2.0),
], ids=["all", "drawn, K_z = 3", "epochs"])  # fmt: skip
def test_sync(settings, seed):
    net, trace = run(settings, seed=seed)
    ran = devices_that_ran(trace)
    assert devices_counted(trace) == ran and all(
        len(s) == sum(settings.taking_part(n) for n in SIZES.values()) for s in ran
    )
    path, x = literal.fedbcd(PROBLEMS, settings, X0, 0.08, 30, ran, versions_known(trace))
    assert off(model(net), path[-1]) < 1e-12 and personal_error(net, x) < 1e-12
    assert off(path[-1], X0) > 0.1 and trace.refused


@pytest.mark.parametrize("seed", range(4))
def test_sync_with_losses_a_dead_device_and_a_hospital_away(seed):
    weather = replace(LOSSY, away={"d5": [(0, inf)], "d0": [(20, 90)], "h1": [(0, 30), (60, 110)]})
    net, trace = run(DRAWN, seed=seed, weather=weather, deadline=9.0, hospital_deadline=4.0)
    heard = [c.children for c in trace.closed["aggregator"]]
    assert "h1" not in heard[0] and not all("h0" in c for c in heard)
    path, x = literal.fedbcd(PROBLEMS, DRAWN, X0, 0.08, 30, devices_that_ran(trace), versions_known(trace))
    assert off(model(net), path[-1]) < 1e-12 and personal_error(net, x) < 1e-12
    assert off(state(net, "d5").x, X0) == 0


def test_the_aggregators_own_terms():
    """A low-rank z, as FedSLR has it, and a smooth term: both act in the step of the aggregator."""
    pulled = replace(SYNC, server_penalty="l1", lam=0.5, local_steps=3)
    envs = envs_of(FEDBCD, pulled, 400)
    envs["aggregator"] = replace(envs["aggregator"], smooth_grad=lambda z: 0.3 * z)
    net, _ = run(pulled, 400, envs=envs, weather=Weather(repeat=0))
    z = model(net)
    G = sum(GAMMAS.values())
    slope = G * z - sum(GAMMAS[d] * state(net, d).x for d in DEVICES) + 0.3 * z
    for slot in LAYOUT.slots:
        part, g = z[slot.span], slope[slot.span]
        free = np.ones_like(part, bool) if slot.kind == "bias" else part != 0
        bound = 0.0 if slot.kind == "bias" else 0.5
        assert off(g[free], -bound * np.sign(part[free])) < 1e-9 and (np.abs(g[~free]) <= bound + 1e-9).all()
    assert (z == 0).any()


# First-B --------------------------------------------------------------------------------------------------------
SLOW = Weather(work={"d5": 9.0, "d0": 2.0})


def parts_of(trace):
    members = [sorted(c.children) for c in trace.closed["aggregator"]]
    return members, lambda n, k: sorted(trace.closed[n][k].children)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ready", [1, 2, 3])
@pytest.mark.parametrize("cloud_steps", [1, 3])
def test_first_b_with_carry_over(ready, cloud_steps, seed):
    settings = replace(DRAWN, cloud="first-b", ready=ready, participation=2.0, cloud_steps=cloud_steps)
    net, trace = run(settings, 40, seed=seed, weather=SLOW)
    members, active = parts_of(trace)
    shown, z, _ = literal.first_b(PROBLEMS, settings, X0, 0.08, members, active)
    assert len(members) == 40 and all(len(V) == ready for V in members)
    assert ready == 3 or 0 < sum("h2" in V for V in members) < 20  # h2 is slow, joins late, is never lost
    assert off(model(net), shown) < 1e-12
    assert all(off(z_of(net, h), z[h]) < 1e-12 for h in TREE if h not in members[-1])


@pytest.mark.parametrize("graph", ["ring", "identity", "h0~h1, h1~h2"])
def test_other_graphs(graph):
    settings = replace(DRAWN, cloud="first-b", ready=3, graph=graph, cloud_steps=2)
    net, trace = run(settings, 20)
    members, active = parts_of(trace)
    edges = mixing.ring(TREE) if graph == "ring" else [("h0", "h1"), ("h1", "h2")]
    a = np.eye(3) if graph == "identity" else mixing.metropolis(sorted(TREE), edges)
    shown, _, _ = literal.first_b(PROBLEMS, settings, X0, 0.08, members, active, lambda V: a)
    assert off(model(net), shown) < 1e-12


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
@pytest.mark.parametrize("seed", range(2))
def test_asynchronous_under_loss_lives_and_stays_in_the_feasible_set(cloud, seed):
    """A dead device, a hospital away for several rounds, 15 % loss. In first-B, who waits keeps its z_n."""
    settings = replace(DRAWN, cloud=cloud, eta_mode="relative", eta_z=1.0)
    weather = replace(LOSSY, away={"d5": [(0, inf)], "h1": [(20, 60)]})
    _net, trace = run(settings, 30, seed=seed, weather=weather, deadline=9.0, hospital_deadline=4.0)
    assert [m.round for m in told(trace, Progress)] == list(range(1, 31))
    for h in TREE:
        shown = [lowrank.unpack(LAYOUT, s.inner.model) for s in trace.states[h]]
        assert max(np.abs(z).max() for z in shown) <= 2 + 1e-12
        phases = [s.phase for s in trace.states[h]]
        assert phases == sorted(phases) and phases[-1] > 3
    assert sum("h1" in c.children for c in trace.closed["aggregator"][-8:]) or cloud == "rigorous"


@pytest.mark.parametrize("ready, until", [(2, 30), (3, 30)])
def test_a_hospital_that_dies_does_not_stop_first_b(ready, until):
    """Of three, with two needed; with three needed, the deadline goes on with two."""
    settings = replace(DRAWN, cloud="first-b", ready=ready)
    _, trace = run(settings, until, weather=Weather(away={"h2": [(15, inf)]}), deadline=40.0)
    assert len(trace.closed["aggregator"]) == until


def test_a_hospital_that_comes_late_joins_first_b():
    settings = replace(DRAWN, cloud="first-b")
    _, trace = run(settings, 30, weather=Weather(away={"h2": [(0, 20)]}))
    assert any("h2" in c.children for c in trace.closed["aggregator"])


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
def test_the_final_evaluation_ends_an_asynchronous_run(cloud):
    settings = replace(DRAWN, cloud=cloud)
    net, trace = run(settings, 10, method=evaluated(FEDBCD), weather=SLOW)
    (report,) = told(trace, Report)
    assert report.final and report.sums["devices"] == len(DEVICES)  # of all hospitals, though a round needs only two
    assert all(net.nodes[d].record.state.final for d in DEVICES)


# Rigorous -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cloud_steps", [1, 3])
def test_rigorous(cloud_steps, seed):
    settings = replace(DRAWN, cloud="rigorous", ready=2, participation=2.0, cloud_steps=cloud_steps)
    net, trace = run(settings, 30, seed=seed, weather=SLOW)
    members, active = parts_of(trace)
    mean = literal.rigorous(PROBLEMS, settings, X0, 0.08, members, active)
    assert all(len(V) == 2 for V in members) and sum("h2" in V for V in members) < 15
    assert off(model(net), mean) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_rigorous_when_a_hospital_is_away(seed):
    """Who has missed rounds steps alone until it has caught up: nobody skips a round. One device is dead."""
    settings = replace(DRAWN, cloud="rigorous", ready=2)
    weather = Weather(away={"h2": [(8, 25)], "d1": [(0, inf)]}, slow={("d3", 3): 50.0})
    net, trace = run(settings, 40, seed=seed, weather=weather, hospital_deadline=4.0)
    members, heard = parts_of(trace)
    assert sum("h2" not in V for V in members[:20]) > 1 and any("h2" in V for V in members[-5:])
    asked = lambda n, k: [d for d in TREE[n] if k + 1 in trace.ran.get(d, [])]  # noqa: E731
    assert asked("h1", 2) == ["d3", "d4"] != heard("h1", 2)  # an answer was lost: the copy is older than x
    lost = {(t, n) for t, V in enumerate(members[:-1]) for n in V if t + 2 not in trace.ran[n]}
    mean = literal.rigorous(PROBLEMS, settings, X0, 0.08, members, asked, heard, lost)
    assert off(model(net), mean) < 1e-12


# FedBCD-I -------------------------------------------------------------------------------------------------------
def trainings(trace):
    """Round -> {device: trainings just before that contact}: its ticks since the last one, at least 1, at most 4."""
    rounds = [{} for _ in trace.closed["aggregator"]]
    parent = {d: h for h, devices in TREE.items() for d in devices}
    for d in DEVICES:
        times, ticks = trace.times[d], [c.time for c in trace.closed.get(d, [])]
        for before, (now, number) in zip([(0, 0), *times], times, strict=False):
            offline = sum(before[0] <= t < now for t in ticks)
            rounds[trace.asked[parent[d]][number] - 1][d] = min(max(offline, 1), 4)
    return rounds


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("after_pull", ["keep", "reset"])
@pytest.mark.parametrize("mode", ["raw", "relative", "mean"])
def test_offline_training_and_suspension(mode, after_pull, seed):
    weather = Weather(away={"d0": [(30, 200)], "d3": [(25, 70), (90, 130)]})
    settings = replace(OFFLINE, offline_every=15.0, after_pull=after_pull, eta_mode=mode, draw_steps=True)
    net, trace = run_until(settings, 30, 700.0, seed, weather)
    contact, trained = devices_that_ran(trace), trainings(trace)
    eta_z = lambda count: cloud_eta(settings, SIZES, count)  # noqa: E731
    path, _ = literal.fedbcd_i(PROBLEMS, settings, X0, eta_z, trained, contact, devices_counted(trace))
    assert off(model(net), path[-1]) < 1e-12
    assert max(t.get("d0", 0) for t in trained) == 4  # suspended after 4
    missed = [t for t, c in enumerate(contact) if "d0" not in c]
    assert len(missed) >= 5 and "d0" in contact[missed[-1] + 1]


def run_until(settings, rounds, until, seed, weather, method=FEDBCD_I):
    """Devices' clocks never stop, so the virtual one must."""
    kept = policies(settings, SIZES, 20.0, 10.0)
    net = Loopback(method, TREE, envs_of(method, settings, rounds), kept, seed, weather)
    return net, net.run(until)


def test_after_the_end_nobody_trains_by_itself():
    """What was judged and told last is what the device keeps, however long its clock goes on."""
    settings = replace(OFFLINE, offline_every=0.5, offline_limit=100)
    net, trace = run_until(settings, 3, 500.0, 0, Weather(), evaluated(FEDBCD_I))
    for d in DEVICES:
        (last,) = [m for n, m in trace.told if n == d and isinstance(m, Models)]
        assert (net.nodes[d].record.state.inner.x == last.models["personal"]).all()


def test_a_round_without_anybody_moves_nothing_in_fedbcd_i():
    weather = Weather(away={d: [(12, inf)] for d in DEVICES})
    net, trace = run(OFFLINE, 10, weather=weather, deadline=9.0, hospital_deadline=4.0)
    counted = devices_counted(trace)
    assert counted[0] and not counted[-1]
    path, _ = literal.fedbcd_i(
        PROBLEMS, OFFLINE, X0, lambda n: 0.08, [dict.fromkeys(c, 1) for c in devices_that_ran(trace)],
        devices_that_ran(trace), counted,
    )  # fmt: skip
    assert off(model(net), path[-1]) < 1e-12


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
@pytest.mark.parametrize("seed", range(2))
def test_asynchronous_fedbcd_i(cloud, seed):
    settings = replace(OFFLINE, cloud=cloud, eta_mode="relative", eta_z=0.5, participation=2.0, cloud_steps=1 + seed)
    net, trace = run(settings, 25, weather=SLOW, seed=seed)
    members, active = parts_of(trace)
    eta_z = cloud_eta(settings, SIZES, 0)
    assert eta_z == 0.5 / (0.5 * 2)
    play_it = literal.first_b if cloud == "first-b" else literal.rigorous
    shown = play_it(PROBLEMS, settings, X0, eta_z, members, active)
    assert off(model(net), shown[0] if cloud == "first-b" else shown) < 1e-12
    assert off(model(net), X0) > 0.05


def test_a_device_that_is_not_always_able_trains_offline_less_often():
    """|Q~_n| of the paper: 8 of 10 can train in a round, connected or not."""
    settings = replace(OFFLINE, offline_every=5.0, offline_share=0.5, offline_limit=100)
    net, _ = run_until(settings, 3, 400.0, 0, Weather(away={"d0": [(0, inf)]}))
    assert 20 < state(net, "d0").trainings < 60 and state(net, "d0").ticks == 80


# What is kept and what is sent ----------------------------------------------------------------------------------
def test_running_sums_equal_direct_sums_bit_for_bit():
    settings = replace(DRAWN, participation=2.0)
    net, trace = run(settings, 25, weather=LOSSY, deadline=9.0, hospital_deadline=4.0)
    for h, devices in TREE.items():
        env = net.nodes[h].env
        for s in (c.state.inner for c in trace.closed[h]):
            direct = gather.total(fedbcd.added(None, s.latest), THETA0) if s.latest else None
            assert s.sums is None or (gather.total(s.sums, THETA0).total == direct.total).all()
            total = fedbcd.sums_of(env, s)
            x = {d: s.latest[d].total if d in s.latest else GAMMAS[d] * X0 for d in devices}
            assert off(total.total, sum(x.values())) < 1e-14
            assert np.isclose(total.weight, sum(GAMMAS[d] for d in devices), rtol=1e-15)


def test_who_does_not_take_part_does_not_move():
    settings = replace(DRAWN, participation=1.0, selection="drawn", cloud="first-b")
    settings = replace(settings, participation=0.3)
    _net, trace = run(settings, 20, weather=SLOW)
    for d in DEVICES:
        assert len(trace.states.get(d, [])) == len(trace.ran.get(d, []))
    for h in TREE:  # between two questions of the aggregator z_n is one object
        for before, after in zip(trace.states[h], trace.states[h][1:], strict=False):
            assert before.round != after.round or before.inner.model is after.inner.model


@pytest.mark.parametrize("settings, up, down", [
    (replace(DRAWN, participation=0.4), 3 * 10, 3 * 10),
    (replace(DRAWN, cloud="first-b"), None, 3 + 2 * 9),
], ids=["sync", "first-b"])  # fmt: skip
def test_vectors_on_the_clouds_links(settings, up, down):
    """Section 2.4: sync 2 N per round, first-B 2 B; devices 2 |Q|."""
    _, trace = run(settings, 10, weather=Weather(repeat=0))
    count = lambda kind: sum(isinstance(m, kind) for _, _, m in trace.crossed)  # noqa: E731
    assert count(consensus.Mixed) == down and (up is None or count(consensus.Ready) == up)
    assert count(consensus.Isolated) == 0
    if up:
        assert count(fedbcd.Global) == count(Sum) == 10 * sum(settings.taking_part(n) for n in SIZES.values())
        assert all(m.model is None and m.sums is not None for _, _, m in trace.crossed if type(m) is consensus.Ready)
    else:
        assert all(m.sums is None for _, _, m in trace.crossed if type(m) is consensus.Ready)


def test_the_fastest_count():
    settings = replace(SYNC, selection="fastest", participation=1.0 / 3)
    _, trace = run(settings, 10, weather=Weather(work={"d0": 5.0, "d1": 5.0}, repeat=0))
    assert all(len(c.children) == 1 for h in TREE for c in trace.closed[h])
    assert any(c.children == ["d2"] for c in trace.closed["h0"])


def test_scores_ride():
    _, trace = run(replace(DRAWN, cloud="first-b"), 8)
    for m in told(trace, Progress):
        assert m.devices == m.sums["devices"] > 0
        assert {"loss", "global_accuracy", "personal_accuracy", "disagreement", "hospitals"} <= set(m.sums)
    assert m.sums["hospitals"] == 2 and m.sums["disagreement"] > 0


def test_a_device_with_another_weight_is_refused():
    env = envs_of(FEDBCD, SYNC, 1)["h0"]
    s, _ = fedbcd.hospital_start(env)
    fedbcd.hospital_receive(env, s, "d0", Sum(X0, 1.0))
    with pytest.raises(PeerError, match=r"weight 1\.5, expected 1 with 1\.0"):
        fedbcd.hospital_receive(env, s, "d0", Sum(X0, 1.5))
    aggregator = envs_of(FEDBCD, replace(SYNC, cloud="rigorous"), 1)["aggregator"]
    c, _ = fedbcd.aggregator_start(aggregator)
    with pytest.raises(PeerError, match="no model"):
        fedbcd.aggregator_receive(aggregator, c, "h0", consensus.Ready(None, Sum(X0, 1.0), 1))
    with pytest.raises(PeerError, match="more devices"):
        fedbcd.aggregator_receive(aggregator, c, "h2", consensus.Ready(X0, None, 2))


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
