"""FedAL's variants and settings, what its rounds report, how it is judged, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedal import device as fedal_device
from edge_sdk.methods.fedal.equations import draw_public_rows
from edge_sdk.methods.fedal.messages import Consensus, Feedback, HospitalLogits, Local, Outputs, Settled, Share
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.settings import VARIANTS, Env, Settings
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
from edge_sdk.nodes.configuration.settings import from_mapping
from tests.methods.fedal.fedal_runs import NO_LF, SMALL
from tests.methods.fedal.logit_problems import CLASSES, envs_of, play
from tests.methods.problems import DEVICES, TREE, state, told


def test_variants_are_weights():
    made = {name: from_mapping(Settings, values, name) for name, values in VARIANTS.items()}
    assert {
        n: (s.al > 0, s.lf_local > 0, s.lf_transfer > 0, s.averaging != "none", s.tau) for n, s in made.items()
    } == {
        "fedmd": (False, False, False, False, 1),
        "fedmd-lf": (False, True, True, False, 5),
        "fedmd-al": (True, False, False, False, 5),
        "fedal": (True, True, True, False, 5),
        "feddf": (False, False, False, True, 10),
        "feddf-al": (True, True, True, True, 15),
    }


def test_rounds_report_the_game_and_forgetting():
    _, transcript = play(replace(SMALL, measure=2), 4)
    rounds = told(transcript, Progress)
    for m in rounds:
        n = m.sums["exchanged"]
        assert m.devices == 6 and n == 6 * SMALL.tau
        assert m.sums["floor"] / n == pytest.approx(-log(6)) and m.sums["payoff"] < 0
        assert 0 <= m.sums["caught"] <= n and m.sums["gap"] > 0 and m.sums["loss"] > 0
        assert m.sums["personal_accuracy"] <= 6 == m.sums["devices"]
    stages = [f"{when}{of}_accuracy" for when in ("started", "trained", "settled") for of in ("", "_own")]
    assert [all(name in m.sums for name in stages) for m in rounds] == [False, True, False, True]
    assert rounds[1].sums["settled_accuracy"] == rounds[1].sums["personal_accuracy"]


def test_evaluation_judges_the_models_where_a_round_ends():
    method = evaluated(FEDAL, every=2)
    net, transcript = play(SMALL, 5, method=method)
    plain, _ = play(SMALL, 5)
    reports = told(transcript, Report)
    assert [(m.round, m.final) for m in reports] == [(2, False), (4, False), (5, True)]
    rounds = {m.round: m.sums for m in told(transcript, Progress)}
    assert all(m.sums["personal_correct"] == rounds[m.round]["personal_correct"] for m in reports)
    for d in DEVICES:
        assert np.array_equal(state(net, d).theta, state(plain, d).theta)
        (kept,) = told(transcript, Models, d)
        assert np.array_equal(kept.models["personal"], state(net, d).theta)


def test_a_start_of_ones_own_has_the_same_entries_tensor_by_tensor():
    layout = layout_of(("a", (4, 3), "linear"), ("b", (5,), "bias"))
    theta0 = np.arange(17.0)
    common = dict(layout=layout, theta0=theta0, settings=replace(SMALL, start="own"), seed=3)
    first, second = (FEDAL.device.start(Env(me=d, **common))[0].theta for d in ("d0", "d1"))
    for theta in (first, second):
        assert sorted(theta[:12]) == list(range(12)) and sorted(theta[12:]) == list(range(12, 17))
    assert not np.array_equal(first, second) and not np.array_equal(first, theta0)
    assert FEDAL.device.start(Env(me="d0", **{**common, "settings": SMALL}))[0].theta is theta0


def test_learning_from_others_helps():
    alone = replace(SMALL, kd=0.0, al=0.0, **NO_LF)
    reached = {}
    for name, s in {"alone": alone, "fedal": SMALL}.items():
        _, transcript = play(replace(s, eta_l=0.1), 40)
        reached[name] = told(transcript, Progress)[-1].sums["personal_correct"]
    assert reached["fedal"] > reached["alone"]


def test_a_device_that_has_lost_its_state_sits_out():
    env = replace(envs_of(SMALL, 1)["d0"], me="d0")
    s, _ = fedal_device.device_start(env)
    m = Feedback(2, 1, 3, np.zeros((8, CLASSES)), None, "logits")
    after, sends = fedal_device.device_receive(env, s, UP, m)
    assert after is s and isinstance(sends[0].message, Nobody)


BAD_SETTINGS = [dict(tau=0), dict(temperature_d=0.5), dict(kd=-1.0), dict(target="some"), dict(averaging="often"),
    dict(start="somewhere"),
                dict(optimiser="newton"), dict(decay_l=0.0), dict(public_batch=0), dict(widths=(0,))]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_SETTINGS, ids=str)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Settings(**bad)


def test_what_cannot_work_is_refused():
    env = replace(envs_of(SMALL, 1)["aggregator"], me="aggregator")
    with pytest.raises(UsageError, match="at least 2"):
        FEDAL.aggregator.start(replace(env, sizes={"h0": 1}))
    device = replace(envs_of(replace(SMALL, public_batch=41), 1)["d0"], me="d0")
    with pytest.raises(UsageError, match="40 public inputs"):
        draw_public_rows(device, 0, 0)
    with pytest.raises(UsageError, match="no public inputs"):
        draw_public_rows(replace(device, public=None), 0, 0)


def test_messages_that_do_not_fit_are_refused():
    envs = {n: replace(env, me=n, here=TREE.get(n, ())) for n, env in envs_of(SMALL, 1).items()}
    h, _ = FEDAL.hospital.receive(envs["h0"], FEDAL.hospital.start(envs["h0"])[0], UP, Local(0, "logits"))
    for bad in (
        Outputs(np.zeros((7, CLASSES))),
        Outputs(np.zeros((8, CLASSES + 1))),
        Settled(),
        Share("a", np.ones(2), 1.0),
    ):
        with pytest.raises(PeerError, match="d0 sent"):
            FEDAL.hospital.receive(envs["h0"], h, "d0", bad)
    s, _ = FEDAL.aggregator.start(envs["aggregator"])
    for slots in ((0, 3), (5,)):
        with pytest.raises(PeerError, match="h0 sent logits"):
            FEDAL.aggregator.receive(
                envs["aggregator"], s, "h0", HospitalLogits(slots, np.zeros((len(slots), 8, CLASSES)))
            )
    with pytest.raises(PeerError, match="there are 3"):
        FEDAL.hospital.receive(envs["h0"], h, UP, Consensus(0, 0, 4, None, (3,), None, "logits"))
    for bad in (
        HospitalLogits((1, 0), np.zeros((2, 8, 3))),
        HospitalLogits((0,), np.zeros((2, 8, 3))),
        Local(0, "dance"),
    ):
        with pytest.raises(ValueError):
            bad.check(None)
