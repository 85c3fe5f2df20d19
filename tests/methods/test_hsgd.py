"""HSGD over three tiers against Algorithm 1, the scalar oracle, and the invariants of its specification (I1 to I15)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

import contract
import literal_hsgd as literal
import numpy as np
import pytest
from problems import HASTY, told
from split_problems import (
    BIG,
    SEVERAL,
    START,
    THETA0,
    TOY,
    Net,
    Samples,
    Toy,
    drawn,
    envs_of,
    groups,
    intervals,
    joined,
    layout,
    play,
    theta,
)

from edge_sdk import classification, costs
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.loopback import Loopback, Weather
from edge_sdk.method import DOWN, UP
from edge_sdk.methods import compression, hsgd, hsgd_hospital, hsgd_plan
from edge_sdk.methods.evaluation import evaluated
from edge_sdk.methods.hsgd import HSGD, Settings
from edge_sdk.methods.hsgd_hospital import GROUP
from edge_sdk.methods.hsgd_plan import Constants, Planned
from edge_sdk.methods.hsgd_settings import Plan
from edge_sdk.methods.reports import Progress, Report
from edge_sdk.vectors import layout_of

TABLE = {
    (1, 1): (0.0380591665, 0.9192108814, -0.3261813342), (2, 1): (0.0307894376, 0.9471650439, -0.3403184695),
    (2, 2): (0.0282550431, 0.9485467309, -0.2788846917), (4, 1): (0.0146375638, 0.9764316677, -0.3515951092),
    (4, 2): (0.0121771114, 0.9799546072, -0.2976284077), (4, 4): (-0.0299347070, 0.9800807208, -0.1606384115),
}  # fmt: skip
SUBSETS = {
    (1, 1): (0.0593898476, 0.9338234643, -0.3039479845), (2, 1): (0.0137474208, 0.9407733982, -0.3351389875),
    (2, 2): (0.0603523754, 0.9888601559, -0.2363617476), (4, 1): (-0.0102066305, 0.9679005858, -0.3414563903),
    (4, 2): (-0.0171481973, 0.9848609604, -0.2557954560), (4, 4): (0.1428833344, 1.1093665057, -0.0941611328),
}  # fmt: skip
BASIC = Settings(P=4, Q=2, eta=0.3)
NET = Net()


def whole(data):
    """A for `literal`: everybody, all samples."""
    return lambda m, r, k: {d: np.arange(len(s)) for d, s in data[m].items()}


def by_literal(net, trace, data, plans, model=NET, theta0=THETA0, **more):
    """The literal algorithm on the sets that the trace shows."""
    found = intervals(trace)

    def A(m, r, k):
        env = net.nodes[m].env
        return {d: hsgd.minibatch(env, r, k, d, len(data[m][d])) for d in found.A.get((m, r, k), [])}

    def back(m, r, k):
        return found.back.get((m, r, k), [])

    return literal.hsgd(model, data, np.asarray(theta0), plans, A, back, found.groups, **more)


def error(net, path):
    return np.abs(theta(net) - path[-1]).max()


def toy(P, Q, iterations=4, **more):
    return play(TOY, Settings(P=P, Q=Q, eta=0.1), iterations // P, model=Toy(), theta0=START, **more)


# The oracle -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("P, Q", TABLE)
def test_oracle(P, Q, seed):
    net, trace = toy(P, Q, seed=seed)
    assert np.abs(theta(net) - TABLE[P, Q]).max() < 1e-10
    plans = [(P, Q, 0.1)] * (4 // P)
    assert error(net, literal.hsgd(Toy(), TOY, np.array(START), plans, whole(TOY))) < 1e-14
    assert trace.refused  # duplicates did arrive


@pytest.mark.parametrize("P, Q", SUBSETS)
def test_oracle_with_subsets(P, Q, monkeypatch):
    """Group 1 trains only device k % 2 in local interval k; the average is over the one that has trained."""

    def alternating(env, among, *seed):
        k = seed[0] * (P // Q) + seed[1]
        return (f"d{k % 2}",) if env.me == "h0" else ("d2",)

    monkeypatch.setattr(hsgd_hospital, "sample", alternating)
    net, _ = toy(P, Q)
    assert np.abs(theta(net) - SUBSETS[P, Q]).max() < 1e-10


def test_trace_of_the_oracle():
    """(P, Q) = (4, 2): group models at the ends of intervals, device copies inside them."""
    _, trace = toy(4, 2)
    copies = np.array([s.copies[GROUP] for s in trace.states["h0"]])
    for expected in [(0.3430700684, 0.9873809814), (0.3012742783, 0.9992832546)]:
        assert (np.abs(copies - expected).max(1) < 1e-10).any()
    for device, values in {"d0": (-0.31, -0.2455300030), "d1": (-0.4259375, -0.3472518853)}.items():
        found = np.array([s.theta_2[0] for s in trace.states[device]])
        assert all((np.abs(found - v) < 1e-10).any() for v in values)
    steps: list = []
    literal.hsgd(Toy(), TOY, np.array(START), [(4, 2, 0.1)], whole(TOY), trace=steps)
    rows = [(t, w[0], a[0], [v[0] for v in b.values()]) for t, m, w, a, b in steps if m == "h0"]
    assert np.allclose(rows[2][1:3], (0.3189809317, 0.9926350257), atol=1e-10)
    assert np.allclose(rows[2][3], (-0.3052735686, -0.3575489989), atol=1e-10)


# Three tiers against the literal algorithm ----------------------------------------------------------------------
VARIANTS = {
    "plain": {},
    "one step": dict(P=1, Q=1),
    "long intervals": dict(P=4, Q=4),
    "half of the devices": dict(alpha=0.5),
    "mini-batches": dict(batch=2, alpha=0.5),
    "regulariser": dict(mu=0.2),
}


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_agrees_with_the_literal_algorithm(change):
    settings = replace(BASIC, **change)
    net, trace = play(SEVERAL, settings, 3)
    plans = [(settings.P, settings.Q, settings.eta)] * 3
    assert error(net, by_literal(net, trace, SEVERAL, plans, mu=settings.mu)) < 1e-13


def test_step_size_is_halved_by_iterations():
    settings = replace(BASIC, halve_every=3)
    net, trace = play(SEVERAL, settings, 3)
    path = by_literal(net, trace, SEVERAL, [(4, 2, 0.3)] * 3, eta=lambda eta, t: eta * 0.5 ** (t // 3))
    assert error(net, path) < 1e-13


def test_devices_are_drawn_anew_for_each_interval():
    net, trace = play(BIG, replace(BASIC, alpha=0.5), 6)
    found = intervals(trace)
    for m, size in {"h0": 3, "h1": 2, "h2": 2}.items():
        drawn = [tuple(a) for key, a in found.A.items() if key[0] == m]
        assert len(drawn) == 12 and {len(a) for a in drawn} == {size} and len({*drawn}) > 2
    assert error(net, by_literal(net, trace, BIG, [(4, 2, 0.3)] * 6)) < 1e-13


@pytest.mark.parametrize("seed", range(4))
def test_lost_messages_shrink_the_means(seed):
    weather = Weather(drop=0.15, away={"d0": [(0, inf)], "d10": [(0, 60)], "h1": [(70, 140)]}, slow={("d1", 4): 30.0})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=20.0), "hospital": HASTY["hospital"]}
    net, trace = play(BIG, replace(BASIC, alpha=0.7), 10, weather=weather, policies=policies, seed=seed)
    found = intervals(trace)
    assert len(found.groups) == 10 and all("d0" not in a for a in found.A.values())
    assert any(len(g) < 3 for g in found.groups) and any(found.A[k] != found.back[k] for k in found.A)
    assert error(net, by_literal(net, trace, BIG, [(4, 2, 0.3)] * 10)) < 1e-12


def test_a_hospital_that_missed_a_round_is_overwritten():
    weather = Weather(away={"h1": [(8, 45)]})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=20.0), "hospital": HASTY["hospital"]}
    net, trace = play(BIG, BASIC, 6, weather=weather, policies=policies)
    found = intervals(trace)
    assert ["h0", "h2"] in found.groups and found.groups[-1] == ["h0", "h1", "h2"]
    assert error(net, by_literal(net, trace, BIG, [(4, 2, 0.3)] * 6)) < 1e-12


def test_a_group_without_devices_rests_and_is_not_in_the_average():
    weather = Weather(away={d: [(0, inf)] for d in BIG["h2"]})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    net, trace = play(BIG, BASIC, 3, weather=weather, policies=policies)
    assert intervals(trace).groups == [["h0", "h1"]] * 3
    assert error(net, by_literal(net, trace, BIG, [(4, 2, 0.3)] * 3)) < 1e-12
    assert [p.devices for p in told(trace, Progress)] == [10, 10, 10]


def test_a_device_without_samples_is_never_asked():
    data = {h: {d: s[:0] if d == "d1" else s for d, s in ds.items()} for h, ds in SEVERAL.items()}
    net, trace = play(data, BASIC, 3)
    assert not trace.ran.get("d1") and len(trace.ran["d0"]) == 12
    assert error(net, by_literal(net, trace, data, [(4, 2, 0.3)] * 3)) < 1e-13


def test_nobody_at_all_is_the_same_model_again_and_no_iteration():
    weather = Weather(away={d: [(0, 30)] for ds in BIG.values() for d in ds})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    net, trace = play(BIG, replace(BASIC, halve_every=4), 6, weather=weather, policies=policies)
    found, s = intervals(trace), net.nodes["aggregator"].record.state
    rested = found.groups.count([])
    assert rested and s.round == 6 and s.t == 4 * (6 - rested)
    path = by_literal(net, trace, BIG, [(4, 2, 0.3)] * 6, eta=lambda eta, t: eta * 0.5 ** (t // 4))
    assert error(net, path) < 1e-12


def test_the_hospital_works_while_its_devices_work():
    """ME: the hospital's own steps start when its questions have left, not when the answers are in."""
    _, trace = toy(4, 4, weather=Weather(work={"d0": 10.0}))
    states = [s for s in trace.states["h0"] if s.now.training]
    assert not states[0].now.moved and states[0].copies[GROUP][0] == START[0]
    assert states[1].now.moved and not states[1].now.heard and states[1].copies[GROUP][0] != START[0]


def test_a_deadline_before_the_hospitals_own_turn_does_not_skip_it():
    env = replace(envs_of(TOY, Toy(), np.array(START), BASIC, 1)["h0"], me="h0", here=("d0", "d1"))
    state, _ = HSGD.hospital.receive(
        env, HSGD.hospital.start(env)[0], UP, hsgd.Global(np.array(START), 0, 0, Plan(2, 2, 0.1))
    )
    for d, z in {"d0": -1.0, "d1": 0.5}.items():
        state, _ = HSGD.hospital.receive(env, state, d, hsgd.Embedding(compression.Dense(np.array([[z]]))))
    state, sends = HSGD.hospital.close(env, state)
    assert [s.to for s in sends] == ["d0", "d1", "me"]
    late, (upload,) = HSGD.hospital.close(env, state)
    moved, _ = HSGD.hospital.receive(env, state, "me", hsgd.OwnSteps())
    assert late.copies[GROUP].tobytes() == moved.copies[GROUP].tobytes() and upload.to == UP
    assert upload.message.total[2] == 2 * START[2]  # nobody came back: theta_2 as it was


# Invariants -----------------------------------------------------------------------------------------------------
def central(data, iterations, eta, weights=lambda t: None):
    """Gradient descent on F by complex steps; `weights`(t) of the samples: stochastic."""
    v = THETA0
    for t in range(iterations):
        v = v - eta * literal.grad(lambda x, t=t: literal.objective(NET, data, x, weights(t)), v)
    return v


@pytest.mark.parametrize("data", [BIG, SEVERAL], ids=["one sample each", "several samples"])
def test_I1_everybody_at_every_step_is_gradient_descent(data):
    net, _ = play(data, Settings(eta=0.3), 4)
    assert np.abs(theta(net) - central(data, 4, 0.3)).max() < 1e-13


def test_I2_subsets_at_every_step_are_stratified_sgd():
    net, trace = play(BIG, Settings(eta=0.3, alpha=0.5), 4)
    A = intervals(trace).A

    def weights(t):
        return lambda m, n, i: len(BIG[m]) / len(A[m, t, 0]) * (n in A[m, t, 0])

    assert np.abs(theta(net) - central(BIG, 4, 0.3, weights)).max() < 1e-13


def test_I3_one_group_does_not_depend_on_P():
    data = groups((5,))
    runs = [theta(play(data, Settings(P=P, Q=2, eta=0.3), 8 // P)[0]) for P in (2, 4, 8)]
    assert max(np.abs(r - runs[0]).max() for r in runs) < 1e-14


def test_I4_equal_groups_are_one_group():
    one = groups((3,))
    copies = {f"h{m}": {f"d{3 * m + i}": s for i, s in enumerate(one["h0"].values())} for m in range(3)}
    runs = [theta(play(data, Settings(P=P, Q=2, eta=0.3), 8 // P)[0]) for data in (one, copies) for P in (2, 8)]
    assert max(np.abs(r - runs[0]).max() for r in runs) < 1e-14


def test_I5_copies_are_equal_at_boundaries_and_only_there():
    _, trace = play(BIG, replace(BASIC, P=4, Q=2), 2)
    sent = {}
    for a, b, m in trace.crossed:
        if isinstance(m, hsgd.Embed):
            sent.setdefault((a, m.round, m.interval), set()).add(m.device.tobytes())
        if isinstance(m, hsgd.Trained):
            sent.setdefault((b, "back"), set()).add(m.device.tobytes())
    assert all(len(v) == 1 for k, v in sent.items() if len(k) == 3)
    assert len({*sent["h0", 1, 0], *sent["h1", 1, 0], *sent["h2", 1, 0]}) == 1  # after the global average
    assert len({*sent["h0", 1, 1], *sent["h1", 1, 1], *sent["h2", 1, 1]}) == 3  # after a local one
    assert len(sent["h0", "back"]) == 6 * 4  # inside intervals all differ


def test_I6_who_is_not_drawn_rests_and_local_averages_leave_the_hospital_alone():
    _, trace = play(BIG, replace(BASIC, alpha=0.2), 4)
    A = intervals(trace).A
    for h in BIG:
        for d in BIG[h]:
            asked = sum(1 for m in trace.states.get(d, [])) // 2
            assert asked == sum(d in a for k, a in A.items() if k[0] == h)
    states = trace.states["h0"]
    ends = [(a, b) for a, b in pairwise(states) if a.now.training and not b.now.training]
    own = [(a, b) for a, b in ends if a.now.moved and a.round == b.round]
    assert own and all(a.copies[GROUP].tobytes() == b.copies[GROUP].tobytes() for a, b in own)


def test_I7_within_an_interval_everything_exchanged_stays():
    """Each gradient of an interval is given the same rows, zeta and theta_0, bit for bit."""
    envs, seen = envs_of(BIG, NET, THETA0, replace(BASIC, P=4, Q=4), 1), {}

    def spy(name, kernel, keep):
        def call(*args):
            seen.setdefault(name, []).append(tuple(np.asarray(args[i]).tobytes() for i in keep))
            return kernel(*args)

        return call

    for h, devices in BIG.items():
        envs[h] = replace(envs[h], grad_hospital=spy(h, envs[h].grad_hospital, (2, 3)))
        envs |= {d: replace(envs[d], grad_device=spy(d, envs[d].grad_device, (0, 1, 3))) for d in devices}
    Loopback(HSGD, {h: tuple(ds) for h, ds in BIG.items()}, envs, {}, 0, Weather(repeat=0)).run()
    assert {len(v) for v in seen.values()} == {4} and {len({*v}) for v in seen.values()} == {1}


def test_I8_first_gradients_are_partial_derivatives_of_the_joint_loss():
    data = joined(SEVERAL["h0"].values())
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    _, g_0, g_1 = NET.hospital(w, a, NET.h2(b, data.x2), data)
    _, g_2 = NET.device(w, NET.h1(a, data.x1), b, data)
    found = np.concatenate([g_0, g_1, g_2])
    exact = literal.grad(lambda v: literal.objective(NET, {"h0": SEVERAL["h0"]}, v), THETA0)
    assert np.abs(found - exact).max() < 1e-14
    h = 1e-6 * np.eye(len(THETA0))
    f = lambda v: literal.objective(NET, {"h0": SEVERAL["h0"]}, v)  # noqa: E731
    assert max(abs((f(THETA0 + e) - f(THETA0 - e)) / 2e-6 - g) for e, g in zip(h, found, strict=True)) < 1e-8


class Alone(Net):
    """Only one of the two towers has parameters; the other embedding is empty."""

    def __init__(self, tower):
        self.tower, full = tower, Net.split
        self.split = replace(full, **({"s2": 0, "d2": 0, "s0": 12} if tower == 1 else {"s1": 0, "d1": 0, "s0": 12}))

    def h1(self, a, x1):
        return super().h1(a, x1) if self.tower == 1 else np.zeros((*x1.shape[:-1], 0))

    def h2(self, b, x2):
        return super().h2(b, x2) if self.tower == 2 else np.zeros((*x2.shape[:-1], 0))

    def f(self, w, z1, z2, y):
        logits = w.reshape(4, 3) @ np.concatenate([z1, z2])
        return np.log(np.exp(logits).sum()) - logits[int(y)]

    def head(self, w, z1, z2, y):
        wide = np.zeros((4, 6), w.dtype)
        span = slice(0, 3) if self.tower == 1 else slice(3, 6)
        wide[:, span] = w.reshape(4, 3)
        zero = np.zeros((len(y), 3), w.dtype)
        z1, z2 = (z1, zero) if self.tower == 1 else (zero, z2)
        loss, g_0, g_z = super().head(wide.ravel(), z1, z2, y)
        return loss, g_0.reshape(4, 6)[:, span].ravel(), g_z

    def hospital(self, w, a, z2, s):
        if self.tower == 1:
            return super().hospital(w, a, z2, s)
        loss, g_0, _ = self.head(w, None, z2, s.y)
        return loss, 0 * g_0, a  # theta_0 frozen

    def device(self, w, z1, b, s):
        return super().device(w, z1, b, s) if self.tower == 2 else (0.0, b)


def test_I9_without_devices_features_it_is_fedavg_of_the_hospitals():
    model, P, eta = Alone(1), 4, 0.3
    start = THETA0[:24]
    net, _ = play(BIG, Settings(P=P, Q=2, eta=eta), 2, model=model, theta0=start)
    v, sizes = start, {m: len(ds) for m, ds in BIG.items()}
    for _ in range(2):
        local = dict.fromkeys(BIG, v)
        for m in BIG:
            for _ in range(P):
                local[m] = local[m] - eta * literal.grad(
                    lambda x, m=m: literal.objective(model, {m: BIG[m]}, x), local[m]
                )
        v = sum(sizes[m] * local[m] for m in BIG) / sum(sizes.values())
    assert np.abs(theta(net) - v).max() < 1e-13


def test_I10_with_theta_0_frozen_it_is_hierarchical_fedavg_of_the_devices():
    model, eta = Alone(2), 0.3
    start = np.concatenate([THETA0[:12], THETA0[36:]])
    net, _ = play(BIG, Settings(P=4, Q=2, eta=eta), 2, model=model, theta0=start)
    w, b, sizes = start[:12], start[12:], {m: len(ds) for m, ds in BIG.items()}
    for _ in range(2):
        local = dict.fromkeys(BIG, b)
        for m in BIG:
            for _ in range(2):
                own = dict.fromkeys(BIG[m], local[m])
                for d, s in BIG[m].items():
                    for _ in range(2):
                        f = lambda v, s=s: model.f(w, np.zeros(0), model.h2(v, s.x2[0]), s.y[0])  # noqa: E731
                        own[d] = own[d] - eta * literal.grad(f, own[d])
                local[m] = sum(own.values()) / len(own)
        b = sum(sizes[m] * local[m] for m in BIG) / sum(sizes.values())
    assert np.abs(theta(net) - np.concatenate([w, b])).max() < 1e-13


def test_I11_one_device_is_two_party_block_coordinate_descent():
    """M = 1, |A| = 1, Q > 1: both parties step in parallel with the other's stale embedding (FedBCD-p)."""
    data = groups((1,), lambda i: 5)
    s, eta, Q = data["h0"]["d0"], 0.3, 3
    net, _ = play(data, Settings(P=6, Q=Q, eta=eta), 1)
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    for _ in range(2):
        w0, z1, z2 = w, NET.h1(a, s.x1), NET.h2(b, s.x2)
        for _ in range(Q):
            _, g_0, g_1 = NET.hospital(w, a, z2, s)
            b = b - eta * NET.device(w0, z1, b, s)[1]
            w, a = w - eta * g_0, a - eta * g_1
    assert np.abs(theta(net) - np.concatenate([w, a, b])).max() < 1e-14


def test_I11_one_group_at_every_step_is_split_network_sgd():
    data = groups((4,), lambda i: 2)
    net, _ = play(data, Settings(P=5, Q=1, eta=0.3), 1)
    assert np.abs(theta(net) - central(data, 5, 0.3)).max() < 1e-13


def test_I12_jfl_at_every_step_is_hsgd():
    runs = [theta(play(BIG, Settings(eta=0.3, alpha=0.5, copies=c), 4)[0]) for c in ("group", "pair")]
    assert np.abs(runs[0] - runs[1]).max() < 1e-14


def test_I12_tdcd_is_one_group_with_all_patients():
    """Pooled data, no global step: any P is the same; and it is not what several groups do."""
    pooled = {"h0": {d: s for devices in BIG.values() for d, s in devices.items()}}
    runs = [theta(play(pooled, Settings(P=P, Q=2, eta=0.3), 4 // P)[0]) for P in (2, 4)]
    path = literal.hsgd(NET, pooled, THETA0, [(4, 2, 0.3)], whole(pooled))
    assert max(np.abs(r - path[-1]).max() for r in runs) < 1e-14
    assert np.abs(theta(play(BIG, BASIC, 1)[0]) - path[-1]).max() > 1e-4


def test_I13_no_step_size_moves_nothing():
    net, _ = play(BIG, Settings(P=4, Q=2, eta=0.0), 2)
    assert np.abs(theta(net) - THETA0).max() < 1e-15


def test_I13_keeping_everything_is_no_compression():
    plain = theta(play(SEVERAL, BASIC, 2)[0])
    squeezed = literal.hsgd(
        NET, SEVERAL, THETA0, [(4, 2, 0.3)] * 2, whole(SEVERAL), squeeze=lambda x: literal.top(x, len(x))
    )
    assert np.abs(plain - squeezed[-1]).max() < 1e-13
    assert theta(play(SEVERAL, replace(BASIC, keep=1.0), 2)[0]).tobytes() == plain.tobytes()


# Baselines ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("P, Q", [(1, 1), (4, 2), (4, 1), (4, 4)])
def test_jfl_agrees_with_the_literal_algorithm(P, Q):
    net, trace = play(SEVERAL, Settings(P=P, Q=Q, eta=0.3, alpha=0.7, copies="pair"), 3)
    assert error(net, by_literal(net, trace, SEVERAL, [(P, Q, 0.3)] * 3, pairs=True)) < 1e-13


@pytest.mark.parametrize("seed", range(2))
def test_jfl_with_lost_messages(seed):
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    settings = replace(BASIC, copies="pair")
    net, trace = play(BIG, settings, 4, weather=Weather(drop=0.1), policies=policies, seed=seed)
    found = intervals(trace)
    sound = [r for r, g in enumerate(found.groups) if all(found.back.get((m, r, 1)) for m in g)]
    assert sound == [0, 1, 2, 3] and any(found.A[k] != found.back[k] for k in found.A)
    assert error(net, by_literal(net, trace, BIG, [(4, 2, 0.3)] * 4, pairs=True)) < 1e-12


def test_jfl_sends_theta_2_only_for_the_global_average():
    _, trace = play(BIG, replace(BASIC, P=4, Q=1, copies="pair"), 1, weather=Weather(repeat=0))
    sent = [m for _, _, m in trace.crossed if isinstance(m, hsgd.Embed)]
    back = [m for _, _, m in trace.crossed if isinstance(m, hsgd.Trained)]
    assert sum(m.device is not None for m in sent) == sum(m.device is not None for m in back) == 13
    assert len(sent) == len(back) == 4 * 13


@pytest.mark.parametrize("pairs", [False, True], ids=["C-HSGD", "JFL"])
def test_top_k_agrees_with_the_literal_algorithm(pairs):
    settings = replace(BASIC, keep=0.4, copies="pair" if pairs else "group")
    net, trace = play(SEVERAL, settings, 3)
    squeeze = lambda x: literal.top(x, max(1, int(0.4 * len(x))))  # noqa: E731
    path = by_literal(net, trace, SEVERAL, [(4, 2, 0.3)] * 3, squeeze=squeeze, pairs=pairs)
    assert error(net, path) < 1e-13


def test_theta_0_is_compressed_tensor_by_tensor():
    env = envs_of(BIG, NET, THETA0, replace(BASIC, keep=0.5), 1)["h0"]
    sizes = (("weight", (4, 5), "linear"), ("bias", (4,), "bias"), ("towers", (22,), "other"))
    found = compression.unpack(hsgd_hospital.packed_theta_0(replace(env, layout=layout_of(*sizes)), THETA0[:24]))[0]
    assert (found == np.concatenate([literal.top(THETA0[:20], 10), literal.top(THETA0[20:24], 2)])).all()


def test_levels_agree_with_the_literal_algorithm():
    def coarse(x, b=16):
        step = (x.max() - x.min()) / (b - 1)
        return x.min() + np.array([min(range(b), key=lambda k: abs(v - x.min() - k * step)) for v in x]) * step

    net, trace = play(SEVERAL, replace(BASIC, levels=16), 2)
    assert error(net, by_literal(net, trace, SEVERAL, [(4, 2, 0.3)] * 2, squeeze=coarse)) < 1e-12


def test_columns_are_chosen_by_the_last_gradient():
    """First exchange in full; then whole columns of zeta_2, those whose bias moved most."""
    envs = envs_of(SEVERAL, NET, THETA0, replace(BASIC, keep=0.4, columns=True), 2)
    envs = {n: replace(e, bias=slice(0, 3)) for n, e in envs.items()}
    trace = Loopback(HSGD, {h: tuple(ds) for h, ds in SEVERAL.items()}, envs, {}, 0, Weather(repeat=0)).run()
    sent = [m.zeta_2 for a, _, m in trace.crossed if a == "d1" and isinstance(m, hsgd.Embedding)]
    assert isinstance(sent[0], compression.Dense) and len(sent) == 4
    weights = [s.weights for s in trace.states["d1"]]
    for parcel, before in zip(sent[1:], weights[1::2], strict=False):
        assert {tuple(row) for row in compression.bits(parcel).tolist()} == {tuple(before == before.max())}
    rows = [m.zeta_1 for _, b, m in trace.crossed if b == "d1" and isinstance(m, hsgd.Train)]
    assert isinstance(rows[0], compression.Dense) and all(isinstance(p, compression.Sparse) for p in rows[1:])


# The contract, for settings that send and remember other things than the defaults -------------------------------
OTHERS = {
    "intervals": dict(P=4, Q=2, alpha=0.6, batch=2),
    "JFL": dict(P=4, Q=2, copies="pair"),
    "C-HSGD": dict(P=2, Q=1, keep=7 / 32),
    "columns": dict(P=2, Q=1, keep=0.4, columns=True),
    "JFL with columns": dict(P=2, Q=1, keep=0.4, columns=True, copies="pair"),
    "levels": dict(P=2, Q=2, levels=16),
    "strategies": dict(P=4, Q=2, pretraining=3, strategies=("rate",), alpha=0.6),
}
CHECKS = (contract.survives_the_codec, contract.order_does_not_matter, contract.replays, contract.inputs_untouched)


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_contract(change, check):
    check(evaluated(HSGD, every=2), Settings(eta=0.05, **change))


# Privacy and the wire -------------------------------------------------------------------------------------------
def test_only_what_the_paper_names_leaves_a_node():
    _, trace = play(BIG, BASIC, 2)
    crossed = {(a[0], b[0], type(m).__name__) for a, b, m in trace.crossed}
    assert crossed == {
        ("a", "h", "Global"), ("h", "d", "Embed"), ("d", "h", "Embedding"), ("h", "d", "Train"), ("d", "h", "Trained"),
        ("h", "a", "Sum"),
    }  # fmt: skip
    private = {v.tobytes() for ds in BIG.values() for s in ds.values() for v in (s.x1, s.x2, s.x1[0], s.x2[0])}
    for _, _, m in trace.crossed:
        for value in vars(m).values():
            value = compression.unpack(value) if isinstance(value, compression.Parcel) else value
            assert not (isinstance(value, np.ndarray) and value.tobytes() in private)


def test_each_device_is_sent_its_own_rows_only():
    _, trace = play(SEVERAL, BASIC, 1)
    for _, b, m in trace.crossed:
        if isinstance(m, hsgd.Train):
            own = next(devices[b] for devices in SEVERAL.values() if b in devices)
            assert m.zeta_1.values.shape == (len(own), 3)


@pytest.mark.parametrize(
    "message",
    [
        hsgd.Embedding(compression.Dense(np.zeros((2, 3)))),
        hsgd.Embedding(compression.Dense(np.zeros((1, 4)))),
        hsgd.Trained(np.zeros(10)),
        hsgd.OwnSteps(),
    ],
    ids=["rows", "columns", "too early", "of another"],
)
def test_a_device_that_answers_something_else_is_refused(message):
    env = replace(envs_of(BIG, NET, THETA0, BASIC, 1)["h0"], me="h0", here=tuple(BIG["h0"]))
    state, _ = HSGD.hospital.receive(env, HSGD.hospital.start(env)[0], UP, hsgd.Global(THETA0, 0, 0, BASIC.plan))
    with pytest.raises(PeerError):
        HSGD.hospital.receive(env, state, "d0", message)


def test_steps_without_their_exchange_are_refused():
    env = replace(envs_of(BIG, NET, THETA0, BASIC, 1)["d0"], me="d0")
    dense = compression.Dense(np.zeros((1, 24)))
    train = hsgd.Train(dense, compression.Dense(np.zeros((1, 3))), 0, 0, 0, BASIC.plan)
    with pytest.raises(PeerError, match="interval 0; the model is of -1"):
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, train)
    with pytest.raises(PeerError, match="theta_2 of 9 numbers, expected 10"):
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, hsgd.Embed(np.zeros(9), 0, 0))


@pytest.mark.parametrize("pairs", [False, True], ids=["HSGD", "JFL"])
def test_the_ledger_is_what_crosses(pairs):
    """Against the messages of a run over three tiers, hop by hop. Edge and hospital are one node there."""
    settings = Settings(P=4, Q=2, alpha=0.5, copies="pair" if pairs else "group")
    _, trace = play(BIG, settings, 3, weather=Weather(repeat=0))
    traffic = costs.Traffic(Net.split, [(6, 3), (4, 2), (3, 2)], pairs=pairs)
    listed = list(costs.ledger(traffic, [(4, 2)] * 3))

    def total(*rows):
        return sum(m.floats for m in listed if (m.sender, m.to, m.what) in rows)

    def crossed(kind):
        return sum(size(v) for _, _, m in trace.crossed if isinstance(m, kind) for v in vars(m).values())

    assert crossed(hsgd.Embed) == total(("edge", "device", "theta_2"))
    assert crossed(hsgd.Embedding) == total(("device", "edge", "zeta_2"))
    assert crossed(hsgd.Train) == total(("edge", "device", "theta_0, zeta_1"))
    assert crossed(hsgd.Trained) == total(("device", "edge", "theta_2"))
    down = total(("cloud", "hospital", "theta_0, theta_1"), ("cloud", "edge", "theta_2"))
    assert crossed(hsgd.Global) == down
    if not pairs:
        up = total(*((a, "cloud", f"theta_{i}") for i, a in enumerate(("hospital", "hospital", "edge"))))
        assert crossed(hsgd.Sum) == up


def size(value):
    if isinstance(value, compression.Dense):
        return value.values.size
    return value.size if isinstance(value, np.ndarray) else 0


# Evaluation -----------------------------------------------------------------------------------------------------
def test_evaluation_joins_what_hospital_and_device_hold():
    """Sums over the devices' own held-out samples are those of the whole model on all of them together."""
    others = {h: {d: drawn([9, int(d[1:])], 5) for d in ds} for h, ds in BIG.items()}

    def score(samples):
        def of(w, z1, b):
            logits = np.concatenate([z1, NET.h2(b, samples.x2)], 1) @ w.reshape(4, 6).T
            right = float((logits.argmax(1) == samples.y).sum())
            return {"samples": 5.0, "correct": right} | classification.histogram(
                samples.y, classification.softmax(logits)
            )

        return of

    envs = envs_of(BIG, NET, THETA0, BASIC, 6)
    for h, devices in others.items():
        envs[h] = replace(envs[h], h1_held_out=lambda a, d, devices=devices: NET.h1(a, devices[d].x1))
        envs |= {d: replace(envs[d], score_held_out=score(s)) for d, s in devices.items()}
    net = Loopback(evaluated(HSGD, 2), {h: tuple(ds) for h, ds in BIG.items()}, envs, {}, 0)
    trace = net.run()
    reports = told(trace, Report)
    assert [r.round for r in reports] == [2, 4, 6] and reports[-1].final
    s, data = net.nodes["aggregator"].record.state.inner, joined([x for ds in others.values() for x in ds.values()])
    w, a, b = (s.theta[block] for block in NET.split.blocks)
    logits = np.concatenate([NET.h1(a, data.x1), NET.h2(b, data.x2)], 1) @ w.reshape(4, 6).T
    sums = reports[-1].sums
    assert sums["samples"] == len(data) == 65 and sums["global_correct"] == (logits.argmax(1) == data.y).sum()
    binned = np.minimum((classification.softmax(logits) * classification.BINS).astype(int), classification.BINS - 1)
    assert np.isclose(
        classification.binned_auc(sums, "global_"), classification.macro_auc(data.y, binned.astype(float))
    )
    assert s.theta.tobytes() == theta(play(BIG, BASIC, 6)[0]).tobytes()  # evaluation changes nothing


# Adaptive strategies --------------------------------------------------------------------------------------------
KNOWN = dict(f0=2.0, rho=1.5, delta=0.5)


def test_a_plan_may_change_at_every_global_round(monkeypatch):
    plans = [(8, 2, 0.05), (4, 4, 0.3), (8, 1, 0.1), (4, 2, 0.2)]

    def planned(env, s):
        return Planned(s.round, Plan(*plans[s.round]), 1.0, 1.0)

    monkeypatch.setattr(hsgd, "chosen", planned)
    settings = Settings(strategies=("size",), alpha=0.5, **KNOWN)
    net, trace = play(BIG, settings, 4)
    assert error(net, by_literal(net, trace, BIG, plans)) < 1e-13
    assert [p.plan for p in told(trace, Planned)] == [Plan(*p) for p in plans]
    assert net.nodes["aggregator"].record.state.t == 24


def test_size_and_rate_apply_at_global_rounds():
    settings = Settings(eta=0.02, strategies=("size", "rate"), iterations=40, **KNOWN)
    net, trace = play(BIG, settings, 60)
    plans = told(trace, Planned)
    c = Constants(**KNOWN)
    assert {(p.plan.P, p.plan.Q) for p in plans} == {(hsgd_plan.size(c, 0.02, 40),) * 2}
    assert plans[0].plan.eta == 0.02  # ||grad F|| is not known yet
    path = by_literal(net, trace, BIG, [(p.plan.P, p.plan.Q, p.plan.eta) for p in plans])
    assert error(net, path) < 1e-12 and net.nodes["aggregator"].record.state.t >= 40
    for p, before, after in zip(plans[1:], path, path[1:], strict=False):
        last = plans[p.round - 1].plan
        gradient = np.linalg.norm(before - after) / (last.P * last.eta)
        assert np.isclose(p.plan.eta, hsgd_plan.rate(replace(c, gradient=gradient), last.P, last.Q))


def test_relation_applies():
    settings = Settings(P=8, Q=8, eta=0.01, strategies=("relation",), target=1.21, iterations=1000, **KNOWN)
    _, trace = play(BIG, settings, 2)
    (first, _) = told(trace, Planned)
    assert (first.plan.P, first.plan.Q) == (8, 2) and first.bound <= 1.21 and first.reachable
    unreachable = replace(settings, target=1e-3)
    assert [(p.plan.Q, p.reachable) for p in told(play(BIG, unreachable, 1)[1], Planned)] == [(1, False)]


def test_pretraining_estimates_the_constants_and_leaves_no_trace():
    settings = Settings(P=4, Q=2, eta=0.3, alpha=0.5, pretraining=4, pretraining_eta=0.01)
    net, trace = play(SEVERAL, settings, 7)
    s = net.nodes["aggregator"].record.state
    e, f = s.estimate, lambda v: literal.objective(NET, SEVERAL, v)
    points = [THETA0]
    for _ in range(4):
        points.append(points[-1] - 0.01 * literal.grad(f, points[-1]))
    slopes = [literal.grad(f, v) for v in points[:4]]
    moved = zip(slopes[1:], slopes, points[1:4], points, strict=False)
    rho = max(np.linalg.norm(a - b) / np.linalg.norm(x - y) for a, b, x, y in moved)
    assert e.steps == 4 and np.isclose(e.f0, f(THETA0)) and np.isclose(e.rho, rho, rtol=1e-6)
    assert np.isclose(e.first, np.linalg.norm(slopes[0])) and s.t == 12
    path = by_literal(net, shifted(trace, 4), SEVERAL, [(4, 2, 0.3)] * 7)
    assert error(net, path) < 1e-13


def shifted(trace, rounds):
    """The trace without its first rounds, which move nothing."""
    closed = {n: [c for c in cs if n == "aggregator" or c.above > rounds] for n, cs in trace.closed.items()}
    return replace(trace, closed=closed)


def test_the_variance_of_the_devices_gradients_is_exact():
    """With everybody in A_m the stochastic gradients of theta_0 and theta_1 are those of the groups, of theta_2 the
    devices' own."""
    settings = Settings(pretraining=1, pretraining_eta=0.01, alpha=1.0)
    net, _ = play(SEVERAL, settings, 2)
    found = net.nodes["aggregator"].record.state.estimate.variance
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    K = sum(len(s) for ds in SEVERAL.values() for s in ds.values())
    exact = np.zeros(3)
    means, parts = [0, 0, 0], [[], [], []]
    for devices in SEVERAL.values():
        data = joined(devices.values())
        _, g_0, g_1 = NET.hospital(w, a, NET.h2(b, data.x2), data)
        parts[0].append((len(data) / K, g_0))
        parts[1].append((len(data) / K, g_1))
        parts[2] += [(len(s) / K, NET.device(w, NET.h1(a, s.x1), b, s)[1]) for s in devices.values()]
    for i in range(3):
        means[i] = sum(p * g for p, g in parts[i])
        exact[i] = sum(p * ((g - means[i]) ** 2).sum() for p, g in parts[i])
    assert np.allclose(found, exact, rtol=1e-6)


def test_I15_size_minimises_bound_times_cost():
    c, eta, T = Constants(f0=2.3, rho=1.7, delta=0.9**0.5), 0.01, 5000
    Q = np.linspace(0.05, 20, 400_001)
    products = (4 * c.f0 / (eta * T) + 12 * Q * c.rho * eta * c.delta**2 + 96 * (Q * c.rho * eta * c.delta) ** 2) / Q
    best = hsgd_plan.best_size(c, eta, T)
    assert np.isclose(Q[np.argmin(products)], best, atol=1e-4) and np.isclose(best, 2.7146, atol=1e-4)
    assert np.isclose(hsgd_plan.best_size(c, eta, T, printed=True), 0.271, atol=1e-3)
    assert hsgd_plan.size(c, eta, T) == 3
    assert hsgd_plan.size(c, 0.05, 5000) == 1  # the cap 1 / (8 rho eta) = 1.47


def test_I15_rate_minimises_the_bound_of_a_round():
    c, P, Q = Constants(f0=0, rho=1.7, delta=0.9**0.5, gradient=0.6**0.5), 4, 2
    a, b, slope = hsgd_plan.decrease(c, P, Q)
    eta = np.linspace(1e-6, 0.05, 500_001)
    best = hsgd_plan.best_rate(c, P, Q)
    assert np.isclose(eta[np.argmin(a * eta**3 + b * eta**2 - slope * eta)], best, atol=1e-6)
    assert np.isclose(best, (-2 * b + np.sqrt(4 * b * b + 12 * a * slope)) / (6 * a))
    assert hsgd_plan.rate(c, P, Q) == min(best, 1 / (8 * P * 1.7))
    assert hsgd_plan.rate(replace(c, delta=0.0), P, Q) == hsgd_plan.step_limit(P, 1.7)
    rates = [hsgd_plan.best_rate(c, P, 2) for P in (2, 4, 8, 16)]
    assert rates == sorted(rates, reverse=True)
    twice = [Q * hsgd_plan.best_rate(c, 2 * Q, Q) for Q in (1, 2, 4)]
    assert np.allclose(twice, twice[0])  # P / Q fixed: as 1 / Q


def test_relation_is_the_least_that_reaches_the_target():
    c, P, eta, T = Constants(f0=2.3, rho=1.7, delta=0.9), 24, 0.002, 5000
    for target in np.linspace(1.5, 4.0, 6):
        least = hsgd_plan.least_relation(c, P, eta, T, target)
        if least < inf:
            at = replace_bound(c, P, P / least, eta, T)
            assert np.isclose(at, target)
        bounds = {n: hsgd_plan.bound(c, Plan(P, P // n, eta), T) for n in range(1, P + 1) if P % n == 0}
        fits = [n for n, value in bounds.items() if value <= target]
        assert hsgd_plan.relation(c, P, eta, T, target) == (min(fits) if fits else None)


def replace_bound(c, P, Q, eta, T):
    return 4 * c.f0 / (eta * T) + 12 * P * c.rho * eta * c.delta**2 + 96 * (Q * c.rho * eta * c.delta) ** 2


def test_the_step_check_warns():
    assert hsgd_plan.step_warnings(Plan(4, 2, 0.01), rho=1.0) == []
    (text,) = hsgd_plan.step_warnings(Plan(4, 2, 0.1), rho=1.0)
    assert "0.0312" in text


@pytest.mark.parametrize("P, Q", [(2, 2), (4, 1)])
def test_soft_the_bound_holds_for_full_batches_and_the_loss_falls(P, Q):
    """Theorem 1 with delta = 0 on equal groups: measured rho, step size at the limit."""
    one = groups((4,), lambda i: 3)
    data = {f"h{m}": {f"d{4 * m + i}": s for i, s in enumerate(one["h0"].values())} for m in range(2)}
    f = lambda v: literal.objective(NET, data, v)  # noqa: E731
    rho, rounds = 2.0, 12
    eta = hsgd_plan.step_limit(P, rho)
    net, trace = play(data, Settings(P=P, Q=Q, eta=eta), rounds)
    path = by_literal(net, trace, data, [(P, Q, eta)] * rounds)
    mean = np.mean([np.sum(literal.grad(f, v) ** 2) for v in path[:-1]])
    c = Constants(f0=f(path[0]) - f(path[-1]), rho=rho, delta=0.0)
    assert mean <= hsgd_plan.bound(c, Plan(P, Q, eta), P * rounds) and f(path[-1]) < f(path[0])


# Settings, and what is told -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change, names",
    [
        (dict(P=3, Q=2), "P = 3, Q = 2"), (dict(P=0), "P = 0"), (dict(Q=0), "Q = 0"), (dict(eta=-0.1), "eta"),
        (dict(alpha=0.0), "alpha"), (dict(alpha=1.5), "alpha"), (dict(batch=-1), "batch"), (dict(mu=inf), "mu"),
        (dict(keep=0.0), "keep"), (dict(keep=2.0), "keep"), (dict(levels=1), "levels"), (dict(levels=300), "levels"),
        (dict(levels=8, keep=0.5), "levels"), (dict(copies="none"), "copies"), (dict(strategies=("fast",)), "fast"),
        (dict(strategies=("size",)), "f0, rho and delta"), (dict(rho=-1.0), "rho"),
        (dict(halve_every=-1), "halve_every"),
        (dict(strategies=("size", "relation"), **KNOWN), "relation"), (dict(pretraining=-1), "pretraining"),
        (dict(strategies=("rate",), halve_every=5, **KNOWN), "halve_every"), (dict(target=0.0), "target"),
        (dict(columns=True), "columns"),
    ],
)  # fmt: skip
def test_settings_are_checked(change, names):
    with pytest.raises(UsageError, match=names):
        Settings(**change)


def test_what_does_not_fit_is_refused_at_the_start():
    envs = envs_of(BIG, NET, THETA0, BASIC, 2)
    with pytest.raises(UsageError, match="no device"):
        HSGD.aggregator.start(replace(envs["aggregator"], sizes={}))
    with pytest.raises(UsageError, match="46 parameters, the model has 3"):
        HSGD.aggregator.start(replace(envs["aggregator"], layout=layout(Toy.split)))
    with pytest.raises(UsageError, match="pretraining = 2 of 2 rounds"):
        HSGD.aggregator.start(replace(envs["aggregator"], settings=replace(BASIC, pretraining=2)))
    with pytest.raises(UsageError, match="no h2"):
        env = replace(envs["d0"], h2=None, me="d0")
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, hsgd.Embed(THETA0[36:], 0, 0))


def test_deadlines_leave_time_for_all_intervals():
    policies = HSGD.policies(Settings(P=8, Q=2), {}, 100.0, 40.0)
    assert policies["hospital"].deadline == 40.0 / 8 and policies["aggregator"].deadline == 100.0


def test_warnings_where_the_constant_is_known():
    assert list(HSGD.warnings(BASIC, {})) == []
    assert "Theorem 1" in HSGD.warnings(replace(BASIC, rho=1.0), {})[0]


def test_progress_of_each_round():
    _, trace = play(BIG, replace(BASIC, alpha=0.5), 4)
    found = told(trace, Progress)
    assert [p.round for p in found] == [1, 2, 3, 4] and all(7 <= p.devices <= 13 for p in found)
    losses = [p.sums["loss"] / p.devices for p in found]
    assert losses[-1] < losses[0]


def test_the_end_is_told_once_and_a_run_is_the_same_twice():
    runs = [play(BIG, replace(BASIC, alpha=0.5), 3) for _ in range(2)]
    assert theta(runs[0][0]).tobytes() == theta(runs[1][0]).tobytes()
    assert [m for _, m in runs[0][1].told] == [m for _, m in runs[1][1].told]
    shown = HSGD.show(runs[0][0].nodes["aggregator"].env, runs[0][0].nodes["aggregator"].record.state)
    assert HSGD.models(None, None, shown)["global"] is shown.theta and DOWN


def test_float32_stays_float32():
    data = {h: {d: Samples(s.x1.astype("f4"), s.x2.astype("f4"), s.y) for d, s in ds.items()} for h, ds in BIG.items()}
    net, trace = play(data, replace(BASIC, keep=0.5, alpha=0.5), 2, theta0=THETA0.astype("f4"))
    assert theta(net).dtype == np.float32 and np.isfinite(theta(net)).all()
    assert {m.device.dtype for _, _, m in trace.crossed if isinstance(m, hsgd.Trained)} == {np.dtype("f4")}


def test_second_moments_are_unbiased_over_the_draws(monkeypatch):
    """Over all A of 2 of 4 devices the mean is that of ||g(A)||^2; and no draw says less than ||g||^2."""
    data = groups((4,))
    env = replace(envs_of(data, NET, THETA0, Settings(alpha=0.5), 2)["h0"], me="h0")
    w, a, b = (THETA0[block] for block in NET.split.blocks)
    zeta_2 = {d: NET.h2(b, s.x2) for d, s in data["h0"].items()}
    s = replace(HSGD.hospital.start(env)[0], now=hsgd_hospital.Interval(zeta_2))
    whole, stacked = joined(data["h0"].values()), np.concatenate(list(zeta_2.values()))
    full = NET.hospital(w, a, stacked, whole)[1:]
    found, exact = [], []
    for pair in combinations(data["h0"], 2):
        monkeypatch.setattr(hsgd_hospital, "sample", lambda env, among, *seed, pair=pair: pair)
        found.append(hsgd_hospital.moments(env, s, (w, a), stacked, np.arange(4)))
        some = [d in pair for d in data["h0"]]
        exact.append([(g**2).sum() for g in NET.hospital(w, a, stacked[some], whole[some])[1:]])
    assert np.allclose(np.mean(found, 0), np.mean(exact, 0))
    assert (np.array(found) >= [(g**2).sum() for g in full]).all()
