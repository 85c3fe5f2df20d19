"""Answers that come one after the other are saved together, and none of them is acknowledged before that."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import Step
from edge_sdk.contract.records import changed
from edge_sdk.contract.round import life_of
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.calls import Calls
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Outcome, Task
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.roles.members import Members
from edge_sdk.delivery.session import STAY_OPEN, Session
from edge_sdk.delivery.storage.snapshot import copy_store, make_another_disk
from edge_sdk.delivery.storage.store import NEW_DISK, Job, Store
from edge_sdk.live.membership.changes import let_removed_go
from edge_sdk.wire.frames import Message
from tests.delivery import roles

pytestmark = pytest.mark.usefixtures("closed_after")

RUN = Run(id="count", method="count", rounds=2)
CHILDREN = ("a", "b", "c")
ROLE = roles.assembly(roles.AGGREGATOR, RUN, sizes=dict.fromkeys(CHILDREN, 1))
NOW = 1000.0


def opened(directory: Path) -> Session:
    """The root of three children, in its own hand: nothing is on a network."""
    store = Store(directory / "count.db")
    log = logging.getLogger("test")
    session = Session("root", None, RUN, ROLE, store, Habits(worker=False), Counters(), lambda *_: None, print, log)
    session.members.note_presence(CHILDREN, ())
    session.settled = True
    if not session.node.record.started:  # questions are numbered from 1, and not from a number of this disk's own
        below = changed(session.node.record.below, number=0)
        session.node = nodes.with_record(session.node, below=below)
    return session


def answer(child: str, round: int = 1) -> Message:
    body = ROLE.messages.encode(roles.Answer(round, 1, np.ones(4, np.float32)))
    return Message(RUN.id, child, 7, round, round, (), round, False, body)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Has asked the first question."""
    found = opened(tmp_path)
    for child in CHILDREN:
        found.meet_peer(child, 7)
    found.commit(NOW)
    assert found.node.record.below.owed.keys() == set(CHILDREN)
    assert not found.store.db.in_transaction, "a question may leave as soon as somebody comes"
    return found


def heard(session: Session, *children: str, now: float = NOW) -> None:
    for child in children:
        assert session.take_message(answer(child)) == "new"
    session.commit(now)


def restarted(session: Session, tmp_path: Path) -> Session:
    """The session after a kill -9: what was not committed is gone."""
    session.store.close()
    return opened(tmp_path)


def test_an_answer_waits_for_the_others_unsaved_and_unacknowledged(session: Session, tmp_path: Path) -> None:
    heard(session, "a")
    assert not session.acks and session.store.db.in_transaction and session.get_timer(NOW) < 2 * STAY_OPEN
    again = restarted(session, tmp_path)
    assert again.node.record.below.owed.keys() == set(CHILDREN) and again.take_message(answer("a")) == "new"


def test_its_repetition_is_not_acknowledged_before_it_is_saved(session: Session) -> None:
    heard(session, "a")
    assert session.take_message(answer("a")) == "duplicate" and not session.acks
    session.commit(NOW + STAY_OPEN)
    assert session.take_message(answer("a")) == "duplicate" and session.acks.keys() == {"a"}


def test_the_last_answer_ends_the_waiting(session: Session, tmp_path: Path) -> None:
    for child in CHILDREN:
        heard(session, child)
    assert session.acks.keys() == set(CHILDREN) and not session.store.db.in_transaction
    again = restarted(session, tmp_path)
    assert again.node.record.state.round == 2 and again.take_message(answer("a")) == "duplicate"


def test_time_ends_it_too(session: Session, tmp_path: Path) -> None:
    heard(session, "a")
    heard(session, "b", now=NOW + STAY_OPEN / 2)
    session.commit(NOW + STAY_OPEN)
    assert session.acks.keys() == {"a", "b"}
    again = restarted(session, tmp_path)
    assert again.node.record.below.owed.keys() == {"c"} and again.node.record.state.devices == 2


def test_a_child_with_another_disk_ends_it_first(session: Session, tmp_path: Path) -> None:
    heard(session, "a")
    session.meet_peer("b", 8)
    assert session.acks.keys() == {"a"}
    again = restarted(session, tmp_path)
    assert again.node.record.below.owed.keys() == {"b", "c"} and again.take_message(answer("a")) == "duplicate"


def test_so_does_the_end(session: Session, tmp_path: Path) -> None:
    heard(session, "a")
    session.close(1.0)
    again = opened(tmp_path)
    assert again.node.record.below.owed.keys() == {"b", "c"} and again.take_message(answer("a")) == "duplicate"


@pytest.mark.parametrize("newer", [False, True])
def test_a_call_that_was_given_up_is_made_again_unless_there_is_a_newer_question(tmp_path: Path, newer: bool) -> None:
    """A role hears that the node stops before its session does. Its question was once dropped then, and never answered;
    the run waited for ever."""
    assembly = roles.assembly(roles.DEVICE, RUN)
    store, log = Store(tmp_path / "count.db"), logging.getLogger("test")
    calls = Calls("a", "root", assembly, store, Members(store, (), {}), Counters(), None, log)
    with store.transaction():
        calls.add_job(Job("root", 1, True, b"asked"), lasting=True)
        if newer:
            calls.add_job(Job("root", 2, True, b"asked"), lasting=True)
    node = nodes.new("a", assembly.role, assembly.env, "root", assembly.policy, NOW)
    task = Task("arrive", node, NOW, calls.jobs[0])
    calls.busy = 1
    with store.transaction():
        assert calls.end_call(Outcome(task, cancelled=True)) == newer
    assert [job.number for job in store.load_jobs()] == ([2] if newer else [1])
    assert [job.number for job in calls.jobs] == ([2] if newer else [1])
    store.close()


def test_a_child_that_says_without_end_that_it_has_another_disk(session: Session) -> None:
    """The role hears of it when its turn comes; what waits until then does not grow."""
    told: list[str] = []

    def renew(env: Any, state: Any, child: str) -> Step:
        told.append(child)
        return state, []

    session.assembly = changed(session.assembly, role=changed(session.assembly.role, renew=renew))
    for epoch in range(8, 100):
        session.meet_peer("b", epoch)
    assert len(session.calls.jobs) == len(session.store.load_jobs()) == 1
    session.node = changed(session.node, role=session.assembly.role)
    session.commit(NOW)
    assert told == ["b"] and not session.calls.jobs


def test_a_child_that_comes_for_the_first_time_is_told_what_it_knows_nothing_of(
    session: Session, tmp_path: Path
) -> None:
    """Once, also after a kill; not where its mail waits for it, and again after it was removed."""
    session.children = frozenset(CHILDREN) | {"d", "e"}
    session.outbox.pending["e"] = {1: None}
    for child in (*CHILDREN, "d", "e", "d"):
        session.meet_peer(child, 7)
    assert [(job.sender, job.number) for job in session.calls.jobs] == [("d", NEW_DISK)]
    again = restarted(session, tmp_path)
    assert [job.sender for job in again.calls.jobs] == ["d"] and again.inbox.is_of("d", 7)
    again.commit(NOW)
    again.children = frozenset(CHILDREN)
    let_removed_go(again)
    again.children = session.children
    again.meet_peer("d", 7)
    assert again.inbox.is_of("d", 7) and not again.inbox.is_unknown("d")


def test_a_device_of_another_hospital_answers_its_questions_from_the_first_on(tmp_path: Path) -> None:
    """It refused those with lower numbers than the latest of the hospital before, which may be all of them."""
    role, log = roles.assembly(roles.DEVICE, RUN), logging.getLogger("test")
    for hospital, number in (("north", 9), ("south", 1), ("north", 2)):
        store = Store(tmp_path / "count.db")
        parts = Habits(worker=False), Counters(), lambda *_: None, print, log
        session = Session("a", hospital, RUN, role, store, *parts)
        let_removed_go(session)
        session.settled = True
        session.meet_peer(hospital, 7)
        body = role.messages.encode(roles.Ask(number, np.ones(4, np.float32)))
        assert session.take_message(Message(RUN.id, hospital, 7, number, 0, (), number, True, body)) == "new"
        session.commit(NOW)
        assert session.node.record.above == number and session.outbox.pending.keys() == {hospital}
        session.close(1.0)


def test_a_backup_that_is_put_back_twice_numbers_its_questions_elsewhere_each_time(
    session: Session, tmp_path: Path
) -> None:
    """Else an answer to the first fits a question of the second, and children seem to know questions not asked yet."""
    session.store.put_value("run", RUN.id.encode())
    session.close(1.0)
    numbers = [session.node.record.below.number]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        copy_store(tmp_path / "count.db", tmp_path / name / "count.db")
        make_another_disk(tmp_path / name / "count.db")
        again = opened(tmp_path / name)
        numbers.append(again.node.record.below.number)
        again.store.close()
    assert len({life_of(number) for number in numbers}) == 3 and numbers[0] == min(numbers)
