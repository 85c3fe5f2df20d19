"""A noisy answer is drawn once: what a killed device sends again is what it had saved, to the byte."""

from __future__ import annotations

import errno
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.delivery.storage.store import Store
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.noisy_phases.contents import phase_of
from edge_sdk.methods.noisy_phases.messages import NoisySums
from edge_sdk.nodes.configuration.assembly import make_assembly, method_of, settings_of
from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger, rho_of_answer
from edge_sdk.wire.frames import Message
from tests.methods.noisy_phases import runs as phases
from tests.methods.problems import DEVICES, envs_of, play

pytestmark = pytest.mark.usefixtures("closed_after")

RUNS = {
    name: Run(id="noisy", method=name, rounds=2, seed=7, privacy={"clip": 1.0, "noise": 1.0, "cohort": 1})
    for name in ("fedavg", "fedslr")
}
each_method = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
"""One whose devices remember nothing, and one whose devices remember what moves with their uploads."""


class CountedEntropy:
    """The operating system's, and how often it was asked."""

    drawn = 0

    def __call__(self, count: int) -> bytes:
        self.drawn += 1
        return os.urandom(count)


def first_question(run: Run) -> Changes:
    envs = envs_of(method_of(run), settings_of(run), run.rounds, np.float32)
    envs |= {d: replace(envs[d], entropy=os.urandom) for d in DEVICES}
    faults = NetworkFaults(repeat=0.0)
    _, transcript = play(method_of(run), settings_of(run), run.rounds, faults=faults, envs=envs)
    found: Changes = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    return found


def first_env(run: Run) -> NodeEnv:
    return envs_of(method_of(run), settings_of(run), run.rounds, np.float32)["d0"]


def first_question_of_phases(run: Run) -> Any:
    _, transcript = phases.played(run)
    return next(m for _, to, m in transcript.crossed if to == "d0" and phase_of(m))


def assembly(run: Run, entropy: CountedEntropy, directory: Path) -> Assembly:
    env = phases.envs_of(run)["d0"] if run.settle else first_env(run)
    made = make_assembly(run, "device", replace(env, entropy=entropy))
    return replace(made, role=EpsilonLedger(directory).guard(run, made.role))


def opened(run: Run, directory: Path, parts: Assembly) -> Session:
    """The device, in its own hand: nothing is on a network."""
    log, store = logging.getLogger("test"), Store(directory / "noisy.db")
    session = Session("d0", "h0", run, parts, store, Habits(worker=False), Counters(), lambda *_: None, print, log)
    session.settled = True
    return session


def answers(session: Session) -> list[bytes]:
    """Bodies that the device's store has for its hospital."""
    rows = session.store.db.execute("SELECT body FROM outbox ORDER BY seq").fetchall()
    return [bytes(body) for (body,) in rows]


@each_method
def test_a_killed_device_repeats_its_noise(run: Run, tmp_path: Path) -> None:
    entropy, question = CountedEntropy(), first_question(run)
    parts = assembly(run, entropy, tmp_path)
    session = opened(run, tmp_path, parts)
    session.meet_peer("h0", 7)
    body = parts.messages.encode(question)
    assert session.take_message(Message(run.id, "h0", 7, 1, 1, (), 1, True, body)) == "new"
    session.commit(time.monotonic())
    (before,) = answers(session)
    drawn = entropy.drawn
    assert isinstance(parts.messages.decode(before), Integers) and drawn > 0
    session.store.drop()
    again = opened(run, tmp_path, assembly(run, entropy, tmp_path))
    again.meet_peer("h0", 7)
    again.take_message(Message(run.id, "h0", 7, 1, 1, (), 1, True, body))
    again.commit(time.monotonic())
    assert answers(again) == [before] and entropy.drawn == drawn
    assert EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)


@each_method
def test_a_call_that_left_nothing_is_made_again_with_other_noise_and_charged_once(run: Run, tmp_path: Path) -> None:
    entropy, question = CountedEntropy(), first_question(run)
    found = []
    for _ in range(2):
        role = assembly(run, entropy, tmp_path).role
        env = replace(assembly(run, entropy, tmp_path).env, me="d0")
        found.append(role.receive(env, role.start(env)[0], "up", question)[1][0].message)
    assert not np.array_equal(found[0].steps, found[1].steps)
    assert EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)


def ask(session: Session, run: Run, body: bytes) -> None:
    """The hospital asks, as often as it is not acknowledged."""
    session.meet_peer("h0", 7)
    session.take_message(Message(run.id, "h0", 7, 1, 1, (), 1, True, body))
    session.commit(time.monotonic())


def run_with_phases() -> tuple[Run, Any]:
    run = phases.noisy_run(noise=1.0)
    return run, first_question_of_phases(run)


@pytest.mark.parametrize("asked", [lambda: (RUNS["fedavg"], first_question(RUNS["fedavg"])), run_with_phases])
def test_a_disk_that_is_full_for_an_hour_uses_up_no_epsilon(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's small file fitted, the answer did not: each attempt of the same process was charged like an answer
    that had left, until none was allowed and the device was silent for good."""
    (run, question), save = asked(), Store.save_sent
    parts, left = assembly(run, CountedEntropy(), tmp_path), [DiskError("database or disk is full")] * 20

    def full(*given: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return save(*given, **named)

    session = opened(run, tmp_path, parts)
    session.commit(time.monotonic())  # it takes part in the run
    session.store.drop()
    monkeypatch.setattr(Store, "save_sent", full)
    while left:
        session = opened(run, tmp_path, parts)  # as Membership.reopen_session does
        with pytest.raises(DiskError):
            ask(session, run, parts.messages.encode(question))
        session.store.drop()
    session = opened(run, tmp_path, parts)
    ask(session, run, parts.messages.encode(question))
    assert len(answers(session)) == 1
    assert EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)


def test_a_store_that_is_made_anew_in_one_process_does_not_answer_without_charge(tmp_path: Path) -> None:
    """What was charged for an answer that had left is no charge for those after it."""
    run, price = RUNS["fedavg"], rho_of_answer(RUNS["fedavg"])
    parts, spent = assembly(run, CountedEntropy(), tmp_path), list[float]()
    for _ in range(3):
        session = opened(run, tmp_path, parts)
        ask(session, run, parts.messages.encode(first_question(run)))
        spent.append(EpsilonLedger(tmp_path).spent_by(run) / price)
        session.store.drop()
        for path in tmp_path.glob("noisy.db*"):
            path.unlink()
    assert spent == [1, 1, 2]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_question_waits_until_its_charge_can_be_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk that took no charge cost the question: it was set aside, and its hospital waited for nobody."""
    run = RUNS["fedavg"]
    parts = assembly(run, CountedEntropy(), tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    body = parts.messages.encode(first_question(run))
    session = opened(run, tmp_path, parts)
    with monkeypatch.context() as patched, pytest.raises(OSError, match=os.strerror(code)):
        patched.setattr("edge_sdk.nodes.policy.epsilon_ledger.write_text", full)
        ask(session, run, body)
    session.store.drop()
    session = opened(run, tmp_path, parts)
    ask(session, run, body)
    assert len(answers(session)) == 1 and EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)


def test_a_killed_device_repeats_the_noise_of_a_phase(tmp_path: Path) -> None:
    run = phases.noisy_run(noise=1.0)
    entropy, question = CountedEntropy(), first_question_of_phases(run)
    parts = assembly(run, entropy, tmp_path)
    session = opened(run, tmp_path, parts)
    body = parts.messages.encode(question)
    found = []
    for _ in range(2):
        session.meet_peer("h0", 7)
        session.take_message(Message(run.id, "h0", 7, 1, 1, (), 1, True, body))
        session.commit(time.monotonic())
        found.append((answers(session), entropy.drawn))
        session.store.drop()
        session = opened(run, tmp_path, assembly(run, entropy, tmp_path))
    (before,), drawn = found[0]
    assert found[1] == ([before], drawn) and isinstance(parts.messages.decode(before), NoisySums)
    assert EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)
