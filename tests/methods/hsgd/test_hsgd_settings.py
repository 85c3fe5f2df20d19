"""HSGD's settings and refusals, what a run tells, and how it is judged."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra.metrics import classification
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.method import DOWN, UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated, last_words
from edge_sdk.methods.shared.evaluation.reports import Progress, Report
from tests.methods.hsgd.hsgd_runs import BASIC, KNOWN, NET
from tests.methods.hsgd.split_problems import BIG, THETA0, Samples, Toy, drawn, envs_of, joined, layout, play, theta
from tests.methods.problems import told


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
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, hsgd_messages.Embed(THETA0[36:], 0, 0))


def test_deadlines_leave_time_for_all_intervals():
    policies = HSGD.policies(Settings(P=8, Q=2), {}, 100.0, 40.0)
    assert policies["hospital"].deadline == 40.0 / 8 and policies["aggregator"].deadline == 100.0


def test_warnings_where_the_constant_is_known():
    assert list(HSGD.warnings(BASIC, {})) == []
    assert "Theorem 1" in HSGD.warnings(replace(BASIC, rho=1.0), {})[0]


def test_progress_of_each_round():
    _, transcript = play(BIG, replace(BASIC, alpha=0.5), 4)
    found = told(transcript, Progress)
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
    net, transcript = play(data, replace(BASIC, keep=0.5, alpha=0.5), 2, theta0=THETA0.astype("f4"))
    assert theta(net).dtype == np.float32 and np.isfinite(theta(net)).all()
    assert {m.device.dtype for _, _, m in transcript.crossed if isinstance(m, hsgd_messages.Trained)} == {
        np.dtype("f4")
    }


# Evaluation -----------------------------------------------------------------------------------------------------
VALIDATION = {h: {d: drawn([8, int(d[1:])], 3) for d in ds} for h, ds in BIG.items()}
TEST = {h: {d: drawn([9, int(d[1:])], 5) for d in ds} for h, ds in BIG.items()}


def score(samples, w, z1, b):
    logits = np.concatenate([z1, NET.h2(b, samples.x2)], 1) @ w.reshape(4, 6).T
    right, shares = float((logits.argmax(1) == samples.y).sum()), classification.softmax(logits)
    return {"samples": float(len(samples)), "correct": right} | classification.histogram(samples.y, shares)


def judging_envs(*parts):
    """Everybody's env; devices are judged on these parts, between them and their hospitals."""
    envs = envs_of(BIG, NET, THETA0, BASIC, 6)
    for h, devices in BIG.items():

        def h1_judged(a, d, final, h=h):
            return np.concatenate([NET.h1(a, part[h][d].x1) for part in (parts if final else parts[:1])])

        envs[h] = replace(envs[h], h1_judged=h1_judged)
        for d in devices:
            mine = [part[h][d] for part in parts]
            judged = {
                "judged": tuple(map(len, mine)),
                "score_part": lambda k, *given, mine=mine: score(mine[k], *given),
            }
            envs[d] = replace(envs[d], **judged)
    return envs


def evaluated_run(*parts):
    net = Loopback(evaluated(HSGD, 2), {h: tuple(ds) for h, ds in BIG.items()}, judging_envs(*parts), {}, 0)
    return net, net.run()


def right_of(theta, part):
    """How many of all devices' samples the whole model gets right."""
    data = joined([x for ds in part.values() for x in ds.values()])
    w, a, b = (theta[block] for block in NET.split.blocks)
    logits = np.concatenate([NET.h1(a, data.x1), NET.h2(b, data.x2)], 1) @ w.reshape(4, 6).T
    return (logits.argmax(1) == data.y).sum()


def test_rounds_are_judged_on_validation_samples_and_test_samples_once_at_the_end():
    net, transcript = evaluated_run(VALIDATION, TEST)
    reports, final = told(transcript, Report), net.nodes["aggregator"].record.state.inner.theta
    assert [r.sums["samples"] for r in reports] == [39.0] * 3
    assert ["test_samples" in r.sums for r in reports] == [False, False, True]
    assert reports[-1].sums["global_correct"] == right_of(final, VALIDATION)
    assert reports[-1].sums["test_samples"] == 65 and reports[-1].sums["test_global_correct"] == right_of(final, TEST)
    assert final.tobytes() == theta(play(BIG, BASIC, 6)[0]).tobytes()


def test_no_device_sees_the_hospitals_part_of_the_model():
    """From theta_1 and zeta_1 a device could compute what its hospital knows of its patients."""
    _, transcript = evaluated_run(VALIDATION, TEST)
    devices = {d for ds in BIG.values() for d in ds}
    seen = [m.shown for _, to, m in transcript.crossed if to in devices and getattr(m, "shown", None) is not None]
    assert len(seen) == 3 * len(devices)
    assert all(not m.theta[NET.split.blocks[1]].any() and m.theta[NET.split.blocks[2]].any() for m in seen)


def test_a_device_that_missed_the_end_is_shown_as_much_and_judges():
    env = judging_envs(VALIDATION, TEST)
    h, d = next((h, next(iter(ds))) for h, ds in BIG.items())
    shown = HSGD.show(env["aggregator"], HSGD.aggregator.start(env["aggregator"])[0])
    words = last_words(replace(env[h], here=(), sizes={d: 1}), (), 6, shown, HSGD.forward)
    (mine,) = [s.message for s in words if s.to == d]
    assert not mine.shown.theta[NET.split.blocks[1]].any()
    role = evaluated(HSGD).device
    _, sends = role.receive(env[d], role.start(env[d])[0], UP, mine)
    (sums,) = [s.message.sums for s in sends if isinstance(s.message, Scores)]
    assert sums["samples"] == 3 and sums["test_samples"] == 5


def test_features_of_other_samples_are_refused():
    env = judging_envs(VALIDATION, TEST)
    d = next(d for ds in BIG.values() for d in ds)
    shown = HSGD.show(env["aggregator"], HSGD.aggregator.start(env["aggregator"])[0])
    with pytest.raises(PeerError, match="zeta_1 of 4 samples; this device is judged on 3 and 5"):
        HSGD.scorer(env[d], replace(shown, zeta_1=np.zeros((4, NET.split.d1))))


def test_evaluation_joins_what_hospital_and_device_hold():
    """Sums over the devices' own held-out samples are those of the whole model on all of them together."""
    net, transcript = evaluated_run(TEST)
    reports = told(transcript, Report)
    assert [r.round for r in reports] == [2, 4, 6] and reports[-1].final
    s, data = net.nodes["aggregator"].record.state.inner, joined([x for ds in TEST.values() for x in ds.values()])
    w, a, b = (s.theta[block] for block in NET.split.blocks)
    logits = np.concatenate([NET.h1(a, data.x1), NET.h2(b, data.x2)], 1) @ w.reshape(4, 6).T
    sums = reports[-1].sums
    assert sums["samples"] == len(data) == 65 and sums["global_correct"] == (logits.argmax(1) == data.y).sum()
    binned = np.minimum((classification.softmax(logits) * classification.BINS).astype(int), classification.BINS - 1)
    assert np.isclose(
        classification.binned_auc(sums, "global_"), classification.macro_auc(data.y, binned.astype(float))
    )
    assert s.theta.tobytes() == theta(play(BIG, BASIC, 6)[0]).tobytes()  # evaluation changes nothing
