"""FedBCD where a disk is lost, a device has no samples, an answer is not among the first, or an upload is too large."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd.method import FEDBCD, FEDBCD_I
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus.consensus import Ready
from tests.methods.fedbcd.fedbcd_runs import OFFLINE, SMALL, SYNC, X0, model, off, run
from tests.methods.lost_disks import replacing_a_disk
from tests.methods.problems import DEVICES, LAYOUT, SIZES, TREE, envs_of, state

N = LAYOUT.size
STEADY = replace(SYNC, local_steps=20, participation=0.34)
CALM = NetworkFaults(repeat=0.0)


def path(transcript):
    return np.array([c.state.model.values for c in transcript.closed["aggregator"]])


@pytest.mark.parametrize("changes", [{}, dict(cloud="first-b", ready=3), dict(cloud_steps=2)])
def test_a_lost_disk_of_a_hospital_does_not_move_the_model(changes):
    """One device of each hospital takes part in a round, so that the hospital would count the others at the start.

    Under first-b z_n is stepped before devices are asked: one step lacks the pull of these devices, and no more.
    """
    settings, at = replace(STEADY, **changes), 200
    _, transcript = run(settings, at + 6, faults=CALM, method=replacing_a_disk(FEDBCD, "h0", at))
    z = path(transcript)
    steps, way = np.abs(np.diff(z, axis=0)).max(1), np.abs(z[at - 3] - X0).max()
    assert steps[at - 30 : at - 2].max() < 1e-4 * way and steps[at - 2 :].max() < 0.005 * way


def test_who_was_forgotten_is_asked_in_the_next_phase():
    settings, at = STEADY, 20
    net, transcript = run(settings, at + 1, faults=CALM, method=replacing_a_disk(FEDBCD, "h0", at))
    assert len(transcript.closed["h0"][-1].children) == 3
    assert set(state(net, "h0").inner.latest) == set(TREE["h0"])


def without_samples(settings, rounds, method):
    envs = envs_of(method, settings, rounds)
    envs["d5"] = replace(envs["d5"], samples=0, grad_fn=lambda theta, rows=None: (np.nan, np.full(N, np.nan)))
    return envs


@pytest.mark.parametrize("batch", [0, 8])
def test_a_device_without_samples_pulls_nowhere(batch):
    """Its x_i is z: the iterates are those of a run without it."""
    settings = replace(SYNC, batch=batch)
    net, _ = run(settings, 40, envs=without_samples(settings, 40, FEDBCD))
    tree = {h: TREE[h] for h in ("h0", "h1")}
    envs = envs_of(FEDBCD, settings, 40)
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: SIZES[h] for h in tree})
    alone, _ = run(settings, 40, tree=tree, envs=envs)
    assert off(model(net), model(alone)) < 1e-12
    assert off(state(net, "d5").x, X0) > 0.01


def test_a_device_of_fedbcd_i_without_samples_pulls_nowhere():
    net, _ = run(OFFLINE, 10, envs=without_samples(OFFLINE, 10, FEDBCD_I))
    assert np.isfinite(model(net)).all() and np.isfinite(state(net, "d5").x).all()
    assert off(state(net, "d5").x, X0) > 0.01


def test_of_those_that_are_too_late_nothing_moves():
    """selection = "fastest": the x_i of a device is the one that its hospital has added up, or the start."""
    settings = replace(SYNC, selection="fastest", participation=0.34, local_steps=3)
    net, transcript = run(settings, 25, faults=NetworkFaults(work={"d0": 3.0}))
    assert transcript.refused
    late = 0
    for h, devices in TREE.items():
        hospital = state(net, h).inner
        for d in devices:
            s = state(net, d)
            x = s.tried if hospital.counted.get(d, -1) == s.round else s.x
            late += x is s.x
            expected = hospital.latest[d].total / settings.weight(d) if d in hospital.latest else X0
            assert off(x, expected) < 1e-12
    assert late


# Bounds ---------------------------------------------------------------------------------------------------------
def upload(size, gamma):
    return Sum(np.full(N, size), gamma, 1)


@pytest.mark.parametrize("feasible, size", [("box", 2.0), ("ball", 2.0 / np.sqrt(N)), ("free", 4e9)])
def test_an_upload_outside_the_feasible_set_is_refused(feasible, size):
    settings = replace(SYNC, feasible=feasible)
    env, gamma = replace(envs_of(FEDBCD, settings, 3)["h0"], me="h0"), settings.weight("d0")
    s, _ = FEDBCD.hospital.start(env)
    FEDBCD.hospital.receive(env, s, "d0", upload(gamma * size, gamma))
    if feasible != "free":
        with pytest.raises(PeerError, match=f"d0 sent a model that reaches 2, the {feasible} ends at 2"):
            FEDBCD.hospital.receive(env, s, "d0", upload(gamma * size * 1.001, gamma))
        with pytest.raises(PeerError, match="d0"):
            FEDBCD.hospital.receive(env, s, "d0", upload(4e9, gamma))


def test_sums_outside_the_feasible_set_are_refused():
    env = replace(envs_of(FEDBCD, SYNC, 3)["aggregator"], here=tuple(TREE))
    s, _ = FEDBCD.aggregator.start(env)
    total = sum(SYNC.weight(d) for d in TREE["h0"])
    FEDBCD.aggregator.receive(env, s, "h0", Ready(None, Sum(np.full(N, 2.0 * total), total, 3), 3))
    with pytest.raises(PeerError, match="the box ends at 2"):
        FEDBCD.aggregator.receive(env, s, "h0", Ready(None, Sum(np.full(N, 2.1 * total), total, 3), 3))
    with pytest.raises(PeerError, match="weight 4e\\+09 of 3 devices"):
        FEDBCD.aggregator.receive(env, s, "h0", Ready(None, Sum(np.zeros(N), 4e9, 3), 3))


def test_pulled_uploads_of_fedbcd_i_are_within_bounds():
    _, transcript = run(replace(OFFLINE, gammas=SMALL), 5)
    assert not any("the box ends" in why for _, _, why in transcript.refused)
    assert {c for h in TREE for closed in transcript.closed[h] for c in closed.children} == set(DEVICES)
