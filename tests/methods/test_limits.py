"""What a node's own settings allow its children: registered samples, suspension; and training that diverges."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract import node as nodes
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.method import OUT, UP
from edge_sdk.contract.node import Record
from edge_sdk.contract.round import Policy
from edge_sdk.delivery.roles import engine
from edge_sdk.delivery.storage.store import Job
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.evaluation import Evaluate, evaluated
from edge_sdk.methods.shared.evaluation.reports import Diverged, Models, Progress, Report
from edge_sdk.nodes.configuration.assembly import record_codec
from edge_sdk.wire.codec.codec import Codec
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, TREE, envs_of, play, state, told
from tests.methods.test_bad_devices import BAD, GARBAGE, attacked, settings_of
from tests.methods.test_contract import settings_of as contract_settings

SAMPLES = {d: len(problem.b) for d, problem in PROBLEMS.items()}


def played(change=None, rounds: int = 12, every: int = 0, name: str = "fedavg", bad: str = BAD, **limits: Any):
    """A run in which every node has these limits, and one device sends change(its upload, round)."""
    method, settings = evaluated(METHODS[name], every), settings_of(name)
    envs = envs_of(method, settings, rounds, np.float32, limits=Limits(**limits))
    return play(method if change is None else attacked(method, change, bad), settings, rounds, envs=envs)


def model(played_run) -> np.ndarray:
    return state(played_run[0], "aggregator").model.values


# Registered samples ---------------------------------------------------------------------------------------------
def heavier(times: float, first: int = 0):
    """The honest model with a claim of so many times the samples, from that round on."""

    def change(m: Sum, round: int) -> Sum:
        return replace(m, total=times * m.total, weight=times * m.weight) if round >= first else m

    return change


def test_a_claim_above_what_is_registered_counts_with_what_is_registered() -> None:
    """Fifty times its samples is within what siblings may differ; without the registration it has 9 of 10 votes."""
    honest = model(played())
    assert np.linalg.norm(model(played(heavier(50.0))) - honest) > 0.05 * np.linalg.norm(honest)
    found = played(heavier(50.0), samples=SAMPLES)
    assert np.allclose(model(found), honest, atol=1e-6)
    said = told(found[1], Overclaimed, "h0")
    assert len(said) == 12 and {(m.sender, m.counted) for m in said} == {(BAD, float(SAMPLES[BAD]))}
    assert said[0].to_sentence() == (
        f"d0 claims a weight of {50 * SAMPLES[BAD]} and counts with {SAMPLES[BAD]}, as registered; if it has more "
        "samples by now, say so in limits.samples.d0 of this node's settings file"
    )


def test_a_later_claim_is_bounded_by_the_first_one() -> None:
    found = played(heavier(50.0, first=4))
    assert np.allclose(model(found), model(played()), atol=1e-6)
    assert len(told(found[1], Overclaimed, "h0")) == 8


def test_a_limit_for_devices_that_nobody_has_registered() -> None:
    found = played(heavier(50.0), most_samples=SAMPLES[BAD])
    assert {m.counted for m in told(found[1], Overclaimed, "h0")} == {float(SAMPLES[BAD])}


def test_a_hospital_counts_with_what_its_devices_have_together() -> None:
    """At the aggregator; claims of devices are bounded by what their hospital knows first."""
    method = METHODS["fedavg"]
    settings = settings_of("fedavg")
    envs = envs_of(method, settings, 4, np.float32)
    least = sum(SAMPLES[d] for d in TREE["h0"]) - 10
    envs["aggregator"] = replace(envs["aggregator"], limits=Limits(samples={"h0": least}))
    _, transcript = play(evaluated(method), settings, 4, envs=envs)
    assert [(m.sender, m.counted) for m in told(transcript, Overclaimed)] == [("h0", float(least))] * 4


def test_where_devices_weigh_the_same_none_weighs_more() -> None:
    method = METHODS["fedavg"]
    settings = replace(settings_of("fedavg"), weighting="uniform")
    results = []
    for one in (evaluated(method), attacked(evaluated(method), heavier(50.0))):
        results.append(play(one, settings, 6, envs=envs_of(method, settings, 6, np.float32)))
    assert np.allclose(model(results[0]), model(results[1]), atol=1e-6)
    assert {m.counted for m in told(results[1][1], Overclaimed, "h0")} == {1.0}


def test_honest_runs_hear_nothing_of_it() -> None:
    for name in ("fedavg", "perfedavg", "augfl", "fedbcd", "fedper"):
        _, transcript = played(None, 4, name=name, samples=SAMPLES)
        complaints = (Overclaimed, Suspended, Refused, Diverged)
        assert not [m for _, m in transcript.told if isinstance(m, complaints)], name


# Suspension -----------------------------------------------------------------------------------------------------
def test_a_device_is_suspended_after_three_refusals_in_a_row_and_not_asked_again() -> None:
    found = played(GARBAGE["all 4e9"], every=4)
    assert len(told(found[1], Refused, "h0")) == 3
    (suspended,) = told(found[1], Suspended, "h0")
    assert (suspended.sender, suspended.times) == (BAD, 1)
    assert "set limits.lift.d0 = 1 in this node's settings file" in suspended.to_sentence()
    assert [p.devices for p in told(found[1], Progress)] == [5] * 12
    trainings = [m for _, to, m in found[1].crossed if to == BAD and type(m).__name__ == "FedavgModel"]
    assert len({m.round for m in trainings}) == 3
    assert [r.sums["devices"] for r in told(found[1], Report)] == [5.0] * 3  # nor do its scores count


def test_the_node_remembers_over_restarts_and_settings_lift_it() -> None:
    method = evaluated(METHODS["fedavg"])
    net, transcript = played(GARBAGE["all 4e9"])
    codec = record_codec(method.hospital, method.messages, LAYOUT)
    record: Record = codec.decode(codec.encode(net.nodes["h0"].record), Record)
    s = record.state
    question = next(m for _, to, m in transcript.crossed if to == "h0" and type(m).__name__ == "FedavgModel")
    base = replace(net.nodes["h0"].env, me="h0", here=TREE["h0"])

    def asked(**limits: Any) -> tuple[str, ...]:
        sends = method.hospital.receive(replace(base, limits=Limits(**limits)), s, UP, question)[1]
        return sends[0].to

    assert asked() == ("d1", "d2")
    assert asked(lift={"d0": 1}) == TREE["h0"]


def test_a_lift_is_for_one_suspension() -> None:
    found = played(GARBAGE["all 4e9"], lift={"d0": 1})
    (suspended,) = told(found[1], Suspended, "h0")
    assert suspended.times == 2 and len(told(found[1], Refused, "h0")) == 3


def test_refusals_that_are_not_in_a_row_suspend_nobody() -> None:
    def change(m: Sum, round: int) -> Sum:
        return GARBAGE["all 4e9"](m, round) if round % 3 else m

    found = played(change)
    assert not told(found[1], Suspended, "h0") and len(told(found[1], Refused, "h0")) == 8


def test_silence_between_them_does_not_forgive() -> None:
    def change(m: Sum, round: int) -> Any:
        return GARBAGE["all 4e9"](m, round) if round % 2 else Nobody()

    assert len(told(played(change)[1], Suspended, "h0")) == 1


def test_it_can_be_switched_off_and_the_last_child_stays() -> None:
    found = played(GARBAGE["all 4e9"], suspend_after=0)
    assert not told(found[1], Suspended, "h0") and len(told(found[1], Refused, "h0")) == 12
    found = played(GARBAGE["-10 times"], bad="d5")  # the only device of its hospital
    assert told(found[1], Refused, "h2") and not told(found[1], Suspended, "h2")


def test_what_a_method_refuses_counts_too() -> None:
    """FedBCD's box: its role raises, which costs that message, and a third time the device."""
    _, transcript = played(lambda m, round: replace(m, total=m.total + 3 * m.weight), 8, name="fedbcd")
    refused = told(transcript, Refused, "h0")
    assert len(refused) == 3 and "d0 sent a model that reaches" in refused[0].reason
    assert len(told(transcript, Suspended, "h0")) == 1


@pytest.mark.parametrize(
    "limits, what",
    [
        ({"suspend_after": -1}, "suspend_after = -1: 0 or more"),
        ({"samples": {"d0": 0}}, "samples.d0 = 0: 1 or more"),
        ({"lift": {"d0": 0}}, "lift.d0 = 0: 1 or more"),
    ],
)
def test_wrong_limits_are_said(limits: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Limits(**limits)


def test_limits_of_a_child_that_there_is_not() -> None:
    with pytest.raises(UsageError, match=r"limits\.lift.watch: is none of d0, d1"):
        Limits(lift={"watch": 1}).check_children(("d0", "d1"))


# Divergence -----------------------------------------------------------------------------------------------------
def glitch(theta, rows=None):
    return float("nan"), np.full_like(theta, np.nan)


PLAIN = [name for name, method in METHODS.items() if method.kernels == "plain"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_device_whose_gradient_is_no_number_answers_and_goes_on(name: str) -> None:
    """It left the run for good: 'cannot take part in it: what was computed here has diverged'."""
    method = evaluated(METHODS[name])
    settings = contract_settings(METHODS[name])
    envs = envs_of(method, settings, 2, np.float32)
    _, transcript = play(method, settings, 2, envs=envs)
    questions = [m for _, to, m in transcript.crossed if to == BAD]
    env, messages = replace(envs[BAD], grad_fn=glitch), Codec(method.messages, layout=LAYOUT)
    records = record_codec(method.device, method.messages, LAYOUT)
    assembly = engine.Assembly(method.device, env, Policy(), messages, records)
    node = nodes.start(nodes.new(BAD, method.device, env, "h0", Policy(), 0.0), 0.0).node
    before = node.record.state
    question = next(m for m in questions if type(m).__name__ not in ("Census", "Evaluate", "Finished"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = Job("h0", 1, True, messages.encode(question))
        out = engine.perform(assembly, engine.Task("arrive", node, 1.0, job))
    assert not (out.failed or out.broken or out.unusable)
    assert [type(messages.decode(m.body)) for m in out.messages] == [Nobody]
    assert [m for m, _ in out.told if isinstance(m, Diverged)]
    if not name.startswith("fedslr"):
        assert out.node is not None and records.encode(out.node.record.state) == records.encode(before)


def test_a_private_state_that_is_no_number_begins_again() -> None:
    method, settings = evaluated(METHODS["ditto"]), contract_settings(METHODS["ditto"])
    envs = envs_of(method, settings, 2, np.float32)
    env = replace(envs[BAD], me=BAD)
    question = method.aggregator.start(replace(envs["aggregator"], here=("h0",)))[1][0].message
    fresh = method.device.start(env)[0]
    s, _ = method.device.receive(env, fresh, UP, question)
    spoilt = replace(s, inner=spoil(s.inner))
    with np.errstate(all="ignore"):
        s, sends = method.device.receive(env, spoilt, UP, question)
    said = next(x.message for x in sends if x.to == OUT)
    assert isinstance(said, Diverged) and "begins as on the first day" in said.what
    assert [type(x.message) for x in sends if x.to == UP] == [Nobody]
    s, sends = method.device.receive(env, s, UP, question)
    assert [type(x.message) for x in sends if x.to == UP] == [Sum]


def spoil(s: Any) -> Any:
    arrays = {k: np.full_like(v, np.inf) for k, v in vars(s).items() if isinstance(v, np.ndarray)}
    assert arrays
    return replace(s, **arrays)


def test_a_device_whose_numbers_are_too_large_to_travel_answers() -> None:
    """Its own codec lets them pass, its hospital could not read the answer."""
    method, settings = evaluated(METHODS["fedavg"]), settings_of("fedavg")
    envs = envs_of(method, settings, 2, np.float32)
    question = method.aggregator.start(replace(envs["aggregator"], here=("h0",)))[1][0].message
    env = replace(envs[BAD], me=BAD, grad_fn=lambda theta, rows=None: (1.0, np.full_like(theta, -1e3 * LARGEST)))
    _, sends = method.device.receive(env, method.device.start(env)[0], UP, question)
    assert [type(x.message) for x in sends if x.to == UP] == [Nobody]


def test_a_glitch_in_one_round_costs_that_round() -> None:
    """One of six devices computes nonsense once; everybody counts in all other rounds, and the run learns."""
    method, settings = METHODS["fedavg"], settings_of("fedavg")
    envs, calls = envs_of(method, settings, 8, np.float32), [0]

    def sometimes(theta, rows=None):
        calls[0] += 1
        return glitch(theta) if calls[0] == 7 else PROBLEMS[BAD](theta, rows)

    envs[BAD] = replace(envs[BAD], grad_fn=sometimes)
    with np.errstate(all="ignore"):
        _, transcript = play(evaluated(method), settings, 8, envs=envs)
    counted = [p.devices for p in told(transcript, Progress)]
    assert sorted(counted) == [5] + [6] * 7 and len(DEVICES) == 6
    assert len([m for name, m in transcript.told if name == BAD and isinstance(m, Diverged)]) == 1


@pytest.mark.parametrize("tier, child", [("hospital", "d0"), ("aggregator", "h0")])
def test_what_cannot_be_read_counts_like_a_refused_upload(tier: str, child: str) -> None:
    """Three messages that are no messages, on either tier: the third one suspends, and nobody is waited for."""
    method, settings = evaluated(METHODS["fedavg"]), settings_of("fedavg")
    envs = envs_of(method, settings, 4, np.float32)
    env = envs["h0" if tier == "hospital" else "aggregator"]
    here = TREE["h0"] if tier == "hospital" else tuple(TREE)
    name, parent = ("h0", "aggregator") if tier == "hospital" else ("aggregator", None)
    node = nodes.new(name, getattr(method, tier), env, parent, Policy(), 0.0, here)
    codec = Codec(method.messages, layout=LAYOUT)
    records = record_codec(getattr(method, tier), method.messages, LAYOUT)
    assembly = engine.Assembly(getattr(method, tier), env, Policy(), codec, records)
    node = nodes.start(node, 0.0).node
    if tier == "hospital":
        asked = nodes.start(
            nodes.new("aggregator", method.aggregator, envs["aggregator"], None, Policy(), 0.0, tuple(TREE)), 0.0
        )
        node = nodes.arrive(node, next(e for e in asked.out if e.to == "h0"), 0.0).node
    told: list[Any] = []
    for number in (1, 2, 3, 4):
        assert (child in node.record.below.owed) == (number == 1)
        done = engine.perform(assembly, engine.Task("arrive", node, 0.0, Job(child, number, False, b"\xc1 no message")))
        assert done.broken and done.node is not None
        node, told = done.node, told + [m for m, _ in done.told]
        assert records.decode(records.encode(node.record)).state.guard == node.record.state.guard
    assert [type(m) for m in told] == [Refused, Refused, Refused, Suspended] and {m.sender for m in told} == {child}
    assert node.record.state.guard.suspended == {child: 1}


def test_a_personal_model_that_diverges_gives_way_to_the_global_one() -> None:
    """The run was good, and training further with its step is not: the device keeps and is judged by numbers."""
    method, settings = evaluated(METHODS["fedavg"]), METHODS["fedavg"].settings(fine_tune_epochs=2)
    envs = envs_of(method, settings, 2, np.float32)
    net, _ = play(method, settings, 2, envs=envs)
    shown = method.show(envs["aggregator"], net.nodes["aggregator"].record.state)
    env = replace(envs[BAD], me=BAD, grad_fn=glitch)
    with np.errstate(all="ignore"):
        _, sends = method.device.receive(env, method.device.start(env)[0], UP, Evaluate(2, True, shown))
    (models,) = [x.message for x in sends if isinstance(x.message, Models)]
    assert models.models["personal"].tobytes() == models.models["global"].tobytes()
    assert np.isfinite(models.models["global"]).all()
    (said,) = [x.message for x in sends if isinstance(x.message, Diverged)]
    assert "predicts with the global one" in said.what and said.round == 2
