"""Devices that want no training now: not asked, named with their reason; a run waits where nobody wants to."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from edge_sdk.contract.children.device_facts import APPLICATION, DeviceFacts, Reason
from edge_sdk.contract.method import DOWN, NodeEnv, Role, Send, unchanged
from edge_sdk.contract.round import Policy, count_questions
from edge_sdk.errors import PeerError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.membership.permission import Willingness
from edge_sdk.methods.shared.aggregation import draw
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.frames import APPENDED, Birth, pack_frame, unpack_frame
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

LOW = Reason("battery", 0.18, 0.3)


def hospital_receive(env: roles.Env, state: roles.Sums, sender: str, m: object) -> object:
    """As the counting hospital, but it asks who wants to be asked, as methods do."""
    after, sends = roles.hospital_receive(env, state, sender, m)
    return after, [Send(draw.chosen(env, m.round, 99), s.message) for s in sends]  # type: ignore[attr-defined]


def ask_everybody(env: roles.Env, state: roles.Sums, sender: str, m: object) -> object:
    """As the counting hospital, but it asks all that are here, as phases of labelling and settling do."""
    after, sends = roles.hospital_receive(env, state, sender, m)
    return after, [Send(DOWN, s.message, all=True) for s in sends]  # type: ignore[attr-defined]


HOSPITAL = Role(roles.hospital_start, hospital_receive, roles.hospital_close, roles.Sums)
PHASES = Role(roles.hospital_start, ask_everybody, roles.hospital_close, roles.Sums)


class Moody:
    """A device whose willingness the test sets."""

    def __init__(self, net: Net, name: str, reason: Reason | None = None) -> None:
        self.reason, self.rounds = reason, list[int]()
        self.node: Runtime = net.device(
            name, "h", self.rounds.append, willingness=Willingness(lambda: self.reason, 60.0)
        )

    def say(self, reason: Reason | None) -> None:
        self.reason = reason
        self.node.wake()


def test_who_is_unwilling_is_not_asked_and_is_named(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    net = Net(tmp_path, quick.url)
    a, b = Moody(net, "a"), Moody(net, "b", LOW)
    hospital = net.node("h", HOSPITAL, "agg", ("a", "b"))
    with playing(net.aggregator("h"), hospital, a.node, b.node):
        eventually(lambda: net.rounds >= 4, 60)
        assert len(a.rounds) >= 4 and b.rounds == []
        assert "h: b is not willing to train now: battery 18 % < 30 %" in caplog.text
        assert "h: b is not in round 1: battery 18 % < 30 %" in caplog.text
        b.say(None)
        eventually(lambda: len(b.rounds) >= 3, 60)
        assert "h: b is willing to train" in caplog.text
        b.say(Reason("charging"))
        eventually(lambda: "h: b is not willing to train now: not charging" in caplog.text, 60)
    assert [done.round for _, done in net.told] == [*range(1, net.rounds + 1)]
    counted = {done.round: done.devices for _, done in net.told}
    assert all(counted[round] == 1 + (round in b.rounds) for round in counted)  # each upload counted once


@pytest.mark.parametrize("restarts", [False, True])
def test_where_nobody_is_willing_the_run_waits(
    tmp_path: Path,
    quick: LocalBroker,
    restarts: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("edge_sdk.live.membership.waiting_log.FIRST", 0.2)
    net = Net(tmp_path, quick.url)
    a = Moody(net, "a")
    with playing(net.aggregator("h")):
        hospital = net.node("h", HOSPITAL, "agg", ("a",))
        with playing(hospital, a.node):
            eventually(lambda: net.rounds >= 2, 60)
            a.say(LOW)
            eventually(lambda: "waiting for a device that is willing to train" in caplog.text, 60)
            assert "a (not willing to train now: battery 18 % < 30 %)" in caplog.text
            eventually(lambda: hospital.session is not None and bool(hospital.session.calls.jobs), 60)  # the next one
            rounds, quiet = net.rounds, threading.Event()
            quiet.wait(0.5)
            assert net.rounds == rounds, "a round of nobody"
            if not restarts:
                a.say(None)
                eventually(lambda: net.rounds >= rounds + 3, 60)
        if restarts:  # the question that waits is on the hospital's disk
            b = Moody(net, "a", LOW)
            with playing(net.node("h", HOSPITAL, "agg", ("a",)), b.node):
                b.say(None)
                eventually(lambda: net.rounds >= rounds + 3, 60)
    assert all(done.devices == 1 for _, done in net.told)


@pytest.mark.parametrize("reason", [Reason(APPLICATION), LOW], ids=["application", "battery"])
def test_whose_application_says_no_is_away_where_all_are_asked(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, reason: Reason
) -> None:
    """It held up the phases that ask everybody, of labelling and settling, for an hour each. A condition passes."""
    caplog.set_level(logging.INFO)
    net, over = Net(tmp_path, quick.url), threading.Event()
    b = net.device("b", "h", lambda round: assert_set(over), willingness=Willingness(lambda: reason, 60.0))
    hospital, a = net.node("h", PHASES, "agg", ("a", "b")), net.device("a", "h")
    parts = hospital.membership.assemble
    hospital.membership.assemble = lambda run: replace(parts(run), may_decline=True)
    with playing(net.aggregator("h", rounds=3), hospital, a, b):
        if reason.kind == APPLICATION:
            eventually(lambda: net.rounds == 3, 60)
            assert all(done.devices == 1 for _, done in net.told)
            assert "h: b is not in round 1: the application says no" in caplog.text
        else:
            eventually(lambda: hospital.node is not None and [*hospital.node.record.below.owed] == ["b"], 60)
            assert not net.told
        over.set()
        eventually(lambda: net.rounds == 3, 60)


def test_a_question_that_waits_for_a_willing_device_goes_when_its_round_is_over(
    tmp_path: Path, quick: LocalBroker
) -> None:
    net, over = Net(tmp_path, quick.url), threading.Event()
    a, hospital = Moody(net, "a", LOW), net.node("h", HOSPITAL, "agg", ("a",))
    parent = net.aggregator("h", "b", rounds=1, policy=Policy(need=1))
    with playing(parent, hospital, a.node, net.device("b", "agg", lambda round: assert_set(over))):
        eventually(lambda: hospital.session is not None and bool(hospital.session.calls.jobs), 60)
        over.set()
        eventually(lambda: not hospital.session.calls.jobs, 60)  # type: ignore[union-attr]
        a.say(None)
        eventually(lambda: not hospital.session.members.unwilling, 60)  # type: ignore[union-attr]
        assert hospital.node is not None and count_questions(hospital.node.record.below) == 0
    assert a.rounds == []


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_device_that_loses_its_will_in_a_round_answers_late_and_counts_once(
    tmp_path: Path, quick: LocalBroker
) -> None:
    net, go_on = Net(tmp_path, quick.url), threading.Event()
    mood: list[Reason | None] = [None]

    def work(round: int) -> None:
        if round == 2:
            mood[0] = LOW
            go_on.wait(30)

    device = net.device("a", "h", work, willingness=Willingness(lambda: mood[0], 0.05))
    hospital = net.node("h", HOSPITAL, "agg", ("a",))
    with playing(net.aggregator("h"), hospital, device):
        eventually(lambda: "a" in (hospital.session.members.unwilling if hospital.session else {}), 60)
        assert net.rounds == 1
        mood[0] = None
        go_on.set()
        eventually(lambda: net.rounds >= 4, 60)
    assert all(done.devices == 1 for _, done in net.told)


def test_a_draw_leaves_out_who_is_unwilling() -> None:
    env = NodeEnv(me="h", here=("a", "b", "c"), unwilling=("b", "z"), seed=1)
    assert all("b" not in draw.chosen(env, round, 2) and len(draw.chosen(env, round, 3)) == 2 for round in range(20))
    assert unchanged(env, 0) == (0, [])


def test_births_of_peers_that_know_no_willingness() -> None:
    birth = Birth("a", 9, 10, "run", True, "", False, 2, 12, LOW)
    assert unpack_frame(pack_frame(birth)) == birth
    old = old_birth(birth)
    assert unpack_frame(old) == Birth("a", 9, 10, "run", True, "", False, 2, 12, None)


def old_birth(birth: Birth) -> bytes:
    """The birth as the first version wrote it: without the appended fields."""
    whole = pack_frame(replace(birth, labelled=1, facts=DeviceFacts(), asked=1))
    header = msgpack.packb(msgpack.unpackb(header_of(whole))[: -APPENDED["b"]])
    return len(header).to_bytes(2, "little") + header + bytes(-(2 + len(header)) % 8)


def header_of(payload: bytes) -> bytes:
    return payload[2 : 2 + int.from_bytes(payload[:2], "little")]


@pytest.mark.parametrize(
    "reason", [["battery", 0.1], ["Battery!", 0.1, 0.2], ["battery", float("nan"), 0.2], "battery", ["battery", 1, 0.2]]
)
def test_a_reason_that_is_none_costs_its_frame(reason: object) -> None:
    fields = ["b", "a", 9, 10, "run", True, "", False, 2, 12, reason]
    header = msgpack.packb(fields)
    with pytest.raises(PeerError, match="frame 'b'"):
        unpack_frame(len(header).to_bytes(2, "little") + header + bytes(-(2 + len(header)) % 8))
