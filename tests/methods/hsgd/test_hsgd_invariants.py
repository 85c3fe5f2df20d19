"""The invariants of HSGD's specification, I1 to I13: what it is equal to, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd.hospital import GROUP
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.hsgd_runs import BASIC, NET, whole
from tests.methods.hsgd.split_problems import BIG, SEVERAL, THETA0, Net, envs_of, groups, intervals, joined, play, theta


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
    net, transcript = play(BIG, Settings(eta=0.3, alpha=0.5), 4)
    A = intervals(transcript).A

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
    _, transcript = play(BIG, replace(BASIC, P=4, Q=2), 2)
    sent = {}
    for a, b, m in transcript.crossed:
        if isinstance(m, hsgd_messages.Embed):
            sent.setdefault((a, m.round, m.interval), set()).add(m.device.tobytes())
        if isinstance(m, hsgd_messages.Trained):
            sent.setdefault((b, "back"), set()).add(m.device.tobytes())
    assert all(len(v) == 1 for k, v in sent.items() if len(k) == 3)
    assert len({*sent["h0", 1, 0], *sent["h1", 1, 0], *sent["h2", 1, 0]}) == 1  # after the global average
    assert len({*sent["h0", 1, 1], *sent["h1", 1, 1], *sent["h2", 1, 1]}) == 3  # after a local one
    assert len(sent["h0", "back"]) == 6 * 4  # inside intervals all differ


def test_I6_who_is_not_drawn_rests_and_local_averages_leave_the_hospital_alone():
    _, transcript = play(BIG, replace(BASIC, alpha=0.2), 4)
    A = intervals(transcript).A
    for h in BIG:
        for d in BIG[h]:
            asked = sum(1 for m in transcript.states.get(d, [])) // 2
            assert asked == sum(d in a for k, a in A.items() if k[0] == h)
    states = transcript.states["h0"]
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
    Loopback(HSGD, {h: tuple(ds) for h, ds in BIG.items()}, envs, {}, 0, NetworkFaults(repeat=0)).run()
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
