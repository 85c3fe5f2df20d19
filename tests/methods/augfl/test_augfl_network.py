"""AugFL with messages that are late, lost or out of order, and devices that are silent or diverge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.round import LEAP
from edge_sdk.methods.augfl import hospital as augfl_hospital
from edge_sdk.methods.augfl.messages import AugflModel, Upload
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.augfl.augfl_problems import (
    AUGFL,
    BASIC,
    FORMS,
    PULL,
    SMOOTH,
    THETA0,
    N,
    algorithm_1,
    counted_by_hospitals,
    error,
    play,
)
from tests.methods.lost_disks import replacing_a_disk
from tests.methods.problems import DEVICES, HASTY, LOSSY, TREE, told


@pytest.mark.parametrize(("upload", "start"), FORMS)
@pytest.mark.parametrize("seed", range(2))
def test_who_is_silent_counts_with_its_latest(upload, start, seed):
    """Also where an upload was made and lost: then the dual has not moved."""
    s = replace(BASIC, upload=upload, y_init=start, weighting="uniform")
    _, transcript, path = play(SMOOTH, s, 40, pull=PULL, faults=LOSSY, policies=HASTY, seed=seed)
    history = by_what_arrived(s, transcript, path)
    assert error(path, history) < 1e-10
    fresh = [m.devices for m in told(transcript, Progress)]
    assert min(fresh) < 6 and len(fresh) == 40


def by_what_arrived(s, transcript, path):
    """Algorithm 1 in which a hospital counts with what it had when the aggregator last heard it."""
    parts = counted_by_hospitals(transcript)
    closes = [c for c in transcript.closed["aggregator"] if c.state.round]
    heard = {c.state.round - 1: {h for h in c.children} for c in closes}
    rho, w = {d: c.rho for d, c in SMOOTH.items()}, dict.fromkeys(SMOOTH, 1 / 6)
    y, u, up, history = {}, {}, {}, []
    for t in range(len(path) - 1):
        theta = path[t]
        for h, devices in parts.get(t, {}).items():
            for d in devices:
                g = SMOOTH[d].meta_gradient(theta, s.alpha, s.delta(t), s.hvp)
                before = y.get(d, -w[d] * g if s.y_init == "plain" else np.zeros(N))
                theta_i = theta - (before + w[d] * g) / rho[d]
                y[d] = before + rho[d] * (theta_i - theta)
                u[d] = y[d] + rho[d] * theta_i
            if devices and h in heard[t]:
                up[h] = {d: u[d] for d in TREE[h] if d in u}
        known = {d: v for part in up.values() for d, v in part.items()}
        new = theta
        if any(parts.get(t, {}).get(h) for h in heard[t]):
            new = (sum(known.values()) - PULL.gradient(theta)) / sum(rho[d] for d in known)
        history.append(type("Round", (), {"next": new}))
    return history


@pytest.mark.parametrize(("upload", "start"), FORMS)
def test_the_order_of_arrival_leaves_no_trace(upload, start):
    """Bit for bit, in float32 as live."""
    s, ends = replace(BASIC, upload=upload, y_init=start), set()
    for seed in range(3):
        net, transcript, _ = play(SMOOTH, s, 8, pull=PULL, theta0=THETA0.astype(np.float32), seed=seed,
                             faults=NetworkFaults(delay=(0.1, 9.0)))  # fmt: skip
        told_ = tuple(m.sums["residual"] for m in told(transcript, Progress))
        ends.add((net.nodes["aggregator"].record.state.model.values.tobytes(), told_))
    assert len(ends) == 1


def test_a_device_that_comes_late_is_counted_from_then_on():
    faults = NetworkFaults(away={"d5": [(0, 40)]})
    net, transcript, path = play(SMOOTH, BASIC, 40, faults=faults, policies=HASTY)
    devices = [m.devices for m in told(transcript, Progress)]
    assert devices[0] == 5 and devices[-1] == 6
    assert sum(net.nodes["aggregator"].record.state.samples.values()) == sum(c.samples for c in SMOOTH.values())
    wanted = algorithm_1(SMOOTH, BASIC, 1000)[-1].next
    long = play(SMOOTH, BASIC, 250, faults=faults, policies=HASTY)[2]
    assert np.abs(long[-1] - wanted).max() < 1e-3 < np.abs(path[5] - wanted).max()


def test_a_part_of_the_devices():
    s = replace(BASIC, participation=3, weighting="uniform")
    _, transcript, path = play(SMOOTH, s, 30, pull=PULL)
    assert {m.devices for m in told(transcript, Progress)} == {3}
    assert error(path, by_what_arrived(s, transcript, path)) < 1e-12
    long = play(SMOOTH, s, 250, pull=PULL)[2]
    wanted = algorithm_1(SMOOTH, s, 2000, gradient=PULL.gradient, weights=dict.fromkeys(SMOOTH, 1 / 6))[-1].next
    assert np.abs(long[-1] - wanted).max() < 1e-6


def test_nobody_is_there_for_a_while():
    faults = NetworkFaults(away={d: [(0, 60)] for d in DEVICES})
    _, transcript, path = play(SMOOTH, BASIC, 20, pull=PULL, faults=faults, policies=HASTY)
    devices = [m.devices for m in told(transcript, Progress)]
    assert devices[0] == 0 and devices[-1] == 6 and len(devices) == 20
    assert np.array_equal(path[1], THETA0) and not np.array_equal(path[-1], THETA0)


def test_a_device_that_diverges_does_not_hold_up_the_others():
    wild = replace(SMOOTH["d2"], support=Steep(), query=Steep())
    _, transcript, path = play({**SMOOTH, "d2": wild}, BASIC, 8)
    assert {m.devices for m in told(transcript, Progress)} == {5} and np.isfinite(path[-1]).all()


class Steep:
    def __call__(self, x):
        return 0.0

    def gradient(self, x):
        return 1e30 * x


def test_a_device_with_one_sample_cannot_take_part():
    clients = {**SMOOTH, "d4": replace(SMOOTH["d4"], samples=1)}
    _, transcript, path = play(clients, BASIC, 8)
    rest = {d: c for d, c in clients.items() if d != "d4"}
    assert {m.devices for m in told(transcript, Progress)} == {5}
    assert error(path, algorithm_1(rest, BASIC, 8)) < 1e-12


@pytest.mark.parametrize("node", ["d1", "h0"])
@pytest.mark.parametrize(("upload", "start"), FORMS[2:])
def test_what_is_left_out_of_an_upload_is_right_when_a_disk_was_lost(node, upload, start):
    """What travels is a matter of bytes: u_i is not computed from a y_i^- that the other side has lost."""
    paths = [
        play(SMOOTH, replace(BASIC, upload=each, y_init=start), 12, method=replacing_a_disk(AUGFL, node, 6))[2]
        for each in (upload, "theta_y")
    ]
    assert max(np.abs(a - b).max() for a, b in zip(*paths, strict=True)) < 1e-12


@pytest.mark.parametrize("upload", ["u", "y"])
def test_a_hospital_that_is_put_back_leaves_nothing_out_of_its_next_sums(upload):
    """It closes the round of the backup again, and may have sent other sums of it before."""
    net, _, _ = play(SMOOTH, replace(BASIC, upload=upload), 4)
    env, s = replace(net.nodes["h0"].env, me="h0"), net.nodes["h0"].record.state
    s = getattr(s, "inner", s)
    devices = {d: Upload(9, theta=THETA0 + 1, y=THETA0) for d in s.held}
    question = AugflModel(net.nodes["aggregator"].record.state.model, 9, len(devices), 99, len(DEVICES))

    def sums(begun, closed, **counted):
        asked, _ = augfl_hospital.hospital_receive(replace(env, asked=begun), s, "up", question)
        answered, _ = augfl_hospital.hospital_close(replace(env, asked=closed), replace(asked, news=devices))
        told = replace(question, round=10, counted=counted)
        asked, _ = augfl_hospital.hospital_receive(replace(env, asked=closed), answered, "up", told)
        news = {d: Upload(9, **{upload: THETA0}) for d in devices}
        return augfl_hospital.hospital_close(replace(env, asked=closed), replace(asked, news=news))[1][0].message

    left_out = {"u": "y", "y": "u"}[upload]
    assert getattr(sums(5, 6, h0=9), left_out) is None
    assert getattr(sums(5, 6 + LEAP, h0=9), left_out) is not None
    assert getattr(sums(5, 6 + LEAP), left_out) is not None  # the aggregator has no sums of it at all
