"""AugFL over three tiers: Algorithm 1 as printed, whatever the network does, and all forms of the upload."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.augfl import aggregator as augfl_aggregator
from edge_sdk.methods.augfl import hospital as augfl_hospital
from edge_sdk.methods.augfl import settings as augfl_settings
from edge_sdk.methods.augfl import theory as augfl_theory
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Sums, Upload
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.shared import meta
from edge_sdk.methods.shared.evaluation import Models, Progress, Report, evaluated
from edge_sdk.wire.codec.codec import Codec
from tests.methods.augfl.augfl_problems import (
    L2,
    LAYOUT,
    QUADRATIC,
    SMOOTH,
    THETA0,
    Client,
    N,
    algorithm_1,
    clients_of,
    envs_of,
    log_cosh,
    path_of,
    play,
    weights_of,
)
from tests.methods.problems import DEVICES, HASTY, LOSSY, TREE, told

BASIC = Settings(alpha=0.3)
PULL = L2(0.4)
Y0 = {d: np.random.default_rng([5, i]).normal(size=N) for i, d in enumerate(DEVICES)}
FORMS = [(upload, start) for upload in ("theta_y", "u", "y") for start in ("zero", "plain")]


def error(path, history):
    assert len(path) == len(history) + 1
    return max(np.abs(a - h.next).max() for a, h in zip(path[1:], history, strict=True))


def counted_by_hospitals(transcript):
    """Aggregator round -> devices whose upload its hospital had, where the aggregator heard that hospital."""
    rounds = {}
    for h in TREE:
        for c in transcript.closed.get(h, []):
            if c.state.asked is not None:
                rounds.setdefault(c.state.asked.round, {})[h] = set(c.children)
    return rounds


# Algorithm 1 ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(4))
def test_equals_algorithm_1(seed):
    net, _, path = play(SMOOTH, BASIC, 30, pull=PULL, y0=Y0, seed=seed)
    history = algorithm_1(SMOOTH, BASIC, 30, gradient=PULL.gradient, y0=Y0)
    assert error(path, history) < 1e-12
    assert max(np.abs(net.nodes[d].record.state.tried - history[-1].y[d]).max() for d in DEVICES) < 1e-12


@pytest.mark.parametrize(("upload", "start"), FORMS)
@pytest.mark.parametrize("hvp", ["central", "exact", "none"])
def test_every_form_of_the_upload_gives_these_iterates(upload, start, hvp):
    s = replace(BASIC, upload=upload, y_init=start, hvp=hvp)
    _, transcript, path = play(SMOOTH, s, 20, pull=PULL)
    history = algorithm_1(SMOOTH, s, 20, gradient=PULL.gradient)
    assert error(path, history) < 1e-12
    for m, h in zip(told(transcript, Progress), history, strict=True):
        residual = np.linalg.norm(h.gR - sum(h.y.values()))
        assert abs(m.sums["residual"] - residual) < 1e-10


def test_the_short_forms_have_half_the_numbers_on_both_hops():
    for upload, device, hospital in (("theta_y", 2 * N, 2 * N), ("u", N, N), ("y", N, N)):
        _, transcript, _ = play(SMOOTH, replace(BASIC, upload=upload), 6, faults=NetworkFaults(repeat=0.0))
        ups = [m for _, _, m in transcript.crossed if isinstance(m, Upload)]
        sums = [m for _, _, m in transcript.crossed if isinstance(m, Sums)]
        assert {sum(v.size for v in (m.theta, m.y, m.u) if v is not None) for m in ups} == {device}
        assert {sum(v.size for v in (m.u, m.y) if v is not None) for m in sums} == {hospital}
        assert {m.model.values.size for _, _, m in transcript.crossed if isinstance(m, AugflModel)} == {N}


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_weights_are_shares_of_all_training_devices(weighting):
    s = replace(BASIC, weighting=weighting)
    _, _, path = play(SMOOTH, s, 10)
    w = weights_of(SMOOTH) if weighting == "samples" else dict.fromkeys(SMOOTH, 1 / 6)
    assert abs(sum(w.values()) - 1) < 1e-12
    assert error(path, algorithm_1(SMOOTH, s, 10, weights=w)) < 1e-12


def test_without_devices_weight_only_the_model_of_the_aggregator_is_distilled():
    s = replace(BASIC, weighting="none")
    clients = clients_of(log_cosh)
    _, transcript, path = play(clients, s, 50, pull=PULL)
    theta, rho = THETA0, sum(c.rho for c in clients.values())
    for _ in range(50):
        theta = theta - PULL.gradient(theta) / rho
    assert np.abs(path[-1] - theta).max() < 1e-12
    assert not any(c.calls for c in clients.values())
    assert all("loss" not in m.sums for m in told(transcript, Progress))


# Whatever the network does --------------------------------------------------------------------------------------
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
    with pytest.raises(PeerError, match="d0 sent theta, y, upload is 'u'"):
        augfl_hospital.hospital_receive(envs["h0"], s, "d0", Upload(4, theta=THETA0, y=THETA0))
    with pytest.raises(PeerError, match="expected Counted or Upload or Nobody"):
        augfl_hospital.hospital_receive(envs["h0"], s, "d0", Census())
    top, _ = augfl_aggregator.aggregator_start(envs["aggregator"])
    with pytest.raises(PeerError, match="h2 counts 3 devices, it has 1"):
        augfl_aggregator.aggregator_receive(envs["aggregator"], top, "h2", Sums(1.0, 9, 3, 1, u=THETA0))
    with pytest.raises(PeerError, match="h2 counts 3 devices, it has 1"):
        augfl_aggregator.aggregator_receive(envs["aggregator"], top, "h2", Counted(9, 3))


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
        AugflModel(lowrank.dense(LAYOUT, THETA0), -1, 0),
    ],
)
def test_messages_are_checked(message):
    codec = Codec(AUGFL.messages, layout=LAYOUT, dtype=np.float64, finite=False)
    with pytest.raises(PeerError):
        codec.decode(codec.encode(message))


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
