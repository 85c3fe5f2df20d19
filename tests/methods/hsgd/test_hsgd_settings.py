"""HSGD's settings and refusals, what a run tells, and how it is judged."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import classification
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.method import DOWN, UP
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.evaluation import evaluated
from edge_sdk.methods.shared.reports import Progress, Report
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
    transcript = net.run()
    reports = told(transcript, Report)
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
