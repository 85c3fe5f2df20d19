"""AugFL's support and query sets, its stopping rule, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.augfl import adding
from edge_sdk.methods.augfl import aggregator as augfl_aggregator
from edge_sdk.methods.augfl import hospital as augfl_hospital
from edge_sdk.methods.augfl import settings as augfl_settings
from edge_sdk.methods.augfl import theory as augfl_theory
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Sums, Upload
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
from edge_sdk.methods.shared.training import meta
from edge_sdk.wire.codec.codec import Codec
from edge_sdk.wire.codec.coders import LARGEST_INT
from tests.methods.augfl.augfl_problems import (
    BASIC,
    LAYOUT,
    PULL,
    QUADRATIC,
    SMOOTH,
    THETA0,
    Client,
    N,
    algorithm_1,
    clients_of,
    envs_of,
    error,
    log_cosh,
    path_of,
    play,
)
from tests.methods.problems import DEVICES, HASTY, TREE, told


# Support, query, devices that never train -----------------------------------------------------------------------
def test_support_and_query_are_disjoint_and_fixed():
    for count, share, support in ((10, 0.5, 5), (11, 0.5, 5), (2, 0.5, 1), (5, 0.1, 1), (4, 0.9, 3), (40, 0.2, 8)):
        env = augfl_settings.Env(me="d1", seed=3, samples=count)
        s, q = meta.support_and_query(env, share)
        assert len(s) == support and len(q) == count - support
        assert sorted([*s, *q]) == list(range(count))
        again = meta.support_and_query(replace(env, rounds=9), share)
        assert np.array_equal(s, again[0]) and np.array_equal(q, again[1])
    assert not len(meta.support_and_query(augfl_settings.Env(samples=1), 0.5)[0])


def test_devices_that_never_train_are_judged_by_themselves():
    s = replace(BASIC, unseen=0.34, adapt_steps=3)
    clients = clients_of(log_cosh)
    envs = envs_of(clients, s, 5)
    for d, c in clients.items():
        score = lambda theta, c=c: {"samples": 4.0, "correct": 2.0, "loss": c.query(theta)}  # noqa: E731
        envs[d] = replace(envs[d], score=score)
    net = Loopback(evaluated(AUGFL), TREE, envs, {"aggregator": Policy(quorum=1)})
    transcript = net.run()
    trains = {h: meta.training_devices(replace(envs[h], me=h), 0.34) for h in TREE}
    out = {h: set(devices) - set(trains[h]) for h, devices in TREE.items()}
    unseen = {d for devices in out.values() for d in devices}
    assert [len(out[h]) for h in TREE] == [1, 1, 0]
    assert all(not clients[d].calls or set(clients[d].calls) == {"support"} for d in unseen)
    rest = {d: c for d, c in clients.items() if d not in unseen}
    assert error(path_of(transcript), algorithm_1(rest, s, 5)) < 1e-12
    (report,) = told(transcript, Report)
    assert report.sums["devices"] == 6 and report.sums["unseen_devices"] == 2 and report.sums["unseen_samples"] == 8
    for d in DEVICES:
        (m,) = told(transcript, Models, d)
        theta = m.models["global"]
        phi = theta
        for _ in range(3):
            phi = phi - s.alpha * clients[d].support.gradient(phi)
        assert np.abs(m.models["personal"] - phi).max() < 1e-12
        assert ("unseen" in m.models) == (d in unseen)


# Stopping, telling, refusing ------------------------------------------------------------------------------------
def test_the_run_stops_where_the_residual_is_small():
    s = replace(BASIC, stop=1e-6)
    _, transcript, path = play(QUADRATIC, s, 5000, pull=PULL)
    residuals = [m.sums["residual"] for m in told(transcript, Progress)]
    assert len(residuals) < 1000 and residuals[-1] <= 1e-6 < residuals[-2]
    assert error(path, algorithm_1(QUADRATIC, s, len(residuals), gradient=PULL.gradient)) < 1e-11


def test_what_is_told_of_a_round():
    _, transcript, _ = play(SMOOTH, BASIC, 5, pull=PULL)
    history = algorithm_1(SMOOTH, BASIC, 5, gradient=PULL.gradient)
    for m, h in zip(told(transcript, Progress), history, strict=True):
        loss = sum(c.value(h.theta, 0.3) for c in SMOOTH.values())
        assert abs(m.sums["loss"] - loss) < 1e-10
        assert abs(m.sums["primal_residual"] - sum(((v - h.theta) ** 2).sum() for v in h.theta_i.values())) < 1e-10
        change = sum(((h.y[d] - h.y_before[d]) ** 2).sum() for d in DEVICES)
        assert abs(m.sums["dual_residual"] - change) < 1e-10
        assert abs(m.sums["regulariser"] - PULL(h.theta, 0, None).value) < 1e-10


def test_four_gradients_a_round():
    clients = clients_of(log_cosh)
    play(clients, BASIC, 7, faults=NetworkFaults(repeat=0.0))
    for c in clients.values():
        assert len(c.calls) == 4 * 7 and c.calls[:4] == ["support", "query", "support", "support"]


def test_what_a_device_must_not_send():
    envs = envs_of(SMOOTH, replace(BASIC, upload="u"), 3)
    s, _ = augfl_hospital.hospital_start(envs["h0"])
    with pytest.raises(PeerError, match="d0 sent y, upload is 'u'"):
        augfl_hospital.hospital_receive(envs["h0"], s, "d0", Upload(4, y=THETA0))
    with pytest.raises(PeerError, match="expected Counted or Upload or Nobody"):
        augfl_hospital.hospital_receive(envs["h0"], s, "d0", Census())
    top, _ = augfl_aggregator.aggregator_start(envs["aggregator"])
    with pytest.raises(PeerError, match="h2 counts 3 devices, it has 1"):
        augfl_aggregator.aggregator_receive(envs["aggregator"], top, "h2", Sums(1.0, 9, 3, 1, u=THETA0))
    with pytest.raises(PeerError, match="h2 counts 3 devices, it has 1"):
        augfl_aggregator.aggregator_receive(envs["aggregator"], top, "h2", Counted(9, 3))
    with pytest.raises(PeerError, match="d0 counts 4096 devices, it has 1"):
        augfl_hospital.hospital_receive(envs["h0"], s, "d0", Counted(2**44, 4096))
    with pytest.raises(PeerError, match="d0 counts 4096 devices, it has 1"):
        adding.add_count(envs["h0"], Counted(0, 0), "d0", Counted(2**44, 4096))


@pytest.mark.parametrize(
    "message",
    [
        Upload(0, u=THETA0),
        Upload(3, u=np.full(N, np.inf)),
        Upload(3, u=THETA0, scores={"loss": np.nan}),
        Sums(0.0, 3, 1, 1, u=THETA0),
        Sums(1.0, 3, 1, 2, u=THETA0),
        Sums(1.0, 3, 1, 1),
        Counted(-1),
        Counted(LARGEST_INT),
        Counted(2**33, 1),
        Upload(LARGEST_INT, u=THETA0),
        Sums(1.0, LARGEST_INT, 1, 1, u=THETA0),
        AugflModel(lowrank.dense(LAYOUT, THETA0), -1, 0),
    ],
)
def test_messages_are_checked(message):
    peer = Codec(AUGFL.messages, layout=LAYOUT, dtype=np.float64, finite=False)  # one that checks nothing
    with pytest.raises(PeerError):
        Codec(AUGFL.messages, layout=LAYOUT, dtype=np.float64).decode(peer.encode(message))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alpha", -1.0), ("support", 0.0), ("support", 1.0), ("hvp", "x"), ("delta_power", -1.0), ("delta_scale", 0.0),
        ("adapt_steps", -1), ("unseen", 1.0), ("rho", 0.0), ("weighting", "x"), ("upload", "x"), ("y_init", "x"),
        ("participation", 0.0), ("participation", 1.5), ("selection", "x"), ("penalty", "x"), ("stop", -1.0),
        ("smoothness", 0.0),
    ],
)  # fmt: skip
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})


def test_settings_that_do_not_go_together():
    with pytest.raises(UsageError, match=r"rhos\.d1 = 0"):
        Settings(rhos={"d1": 0.0})
    with pytest.raises(UsageError, match="nothing to send"):
        Settings(upload="y", dual=False)
    with pytest.raises(UsageError, match="given no Hessian-vector product"):
        play({"d": Client(SMOOTH["d0"].support, SMOOTH["d0"].query)}, replace(BASIC, hvp="exact"), 1, tree={"h": ["d"]},
             method=replace(AUGFL, env=without_hessian))  # fmt: skip


def without_hessian(**given):
    return augfl_settings.Env(**{**given, "hessian": None})


def test_the_penalty_of_the_aggregator_composes_with_its_regulariser():
    """At the fixed point of the step: 0 in grad F + lambda grad R_h + the subdifferential of the penalty."""
    s = replace(BASIC, penalty="nuclear", penalty_weight=0.3, weighting="uniform")
    _, transcript, path = play(QUADRATIC, s, 800, pull=PULL)
    theta = path[-1]
    w = dict.fromkeys(QUADRATIC, 1 / 6)
    slope = sum(w[d] * c.meta_gradient(theta, s.alpha, 1e-3) for d, c in QUADRATIC.items()) + PULL.gradient(theta)
    assert np.abs(slope[4:]).max() < 1e-8  # the bias is not penalised
    a, sv, bt = np.linalg.svd(theta[:4].reshape(2, 2))
    rank = int((sv > 1e-9).sum())
    dual = -slope[:4].reshape(2, 2) / 0.3
    assert 0 < rank <= 2 and np.linalg.norm(dual, 2) <= 1 + 1e-8
    assert np.abs(a[:, :rank].T @ dual @ bt[:rank].T - np.eye(rank)).max() < 1e-8
    assert all("residual" not in m.sums for m in told(transcript, Progress))


def test_warnings_name_what_the_theorem_does_not_cover():
    assert augfl_theory.warnings(Settings(), {"h": 40}) == []
    (part,) = augfl_theory.warnings(Settings(participation=0.5), {"h": 40})
    assert "participation" in part
    said = " ".join(augfl_theory.warnings(Settings(smoothness=1.0), {"h": 40}))
    assert "delta_power" in said and "(23)" in said and "(21)" not in said
    said = augfl_theory.warnings(Settings(smoothness=100.0, delta_power=2.0), {"h": 40})
    assert len(said) == 4 and "the sum of rho is 28, and below" in said[-1]
    assert augfl_theory.warnings(Settings(smoothness=0.1, delta_power=2.0, rho=2.0), {"h": 40}) == []
    assert "(22)" in augfl_theory.warnings(Settings(smoothness=0.1, delta_power=2.0, rho=2.0), {"h": 40}, pull=1e3)[0]


def test_a_silent_device_does_not_stop_the_census():
    _, transcript, _ = play(SMOOTH, BASIC, 4, faults=NetworkFaults(away={"d5": [(0, inf)]}), policies=HASTY)
    assert [m.round for m in told(transcript, Progress)] == [1, 2, 3, 4]
