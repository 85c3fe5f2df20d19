"""Bounds of what waits for a peer that is away: questions and answers always wait, notices within limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.contract.method import NodeEnv, Role, Send, unchanged
from edge_sdk.contract.run import Run
from edge_sdk.delivery.messages import outgoing as outgoing_module
from edge_sdk.delivery.messages.outgoing import Outgoing
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import EncodedMessage
from edge_sdk.delivery.storage.store import Store
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import QUICK, Live
from tests.delivery.nodes import make_runtime
from tests.delivery.roles import Answer, Ask, Floats

SIZE = 2500  # floats: 10 KB
ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """`lasts`: of the notices."""

    lasts: float = inf


@dataclass(frozen=True)
class Heard:
    """Rounds of the notices that have come."""

    rounds: tuple[int, ...] = ()


def vector(round: int) -> Floats:
    return roles.np.full(SIZE, round, roles.np.float32)


def ask(env: Env, round: int) -> list[Send]:
    """A question for `a`, and a notice for `b`."""
    sends = [Send(("a",), Ask(round, vector(round))), Send(("b",), Ask(round, vector(round)), answer=False)]
    if round == 1:
        return sends[:1]  # `b` is not told of the first
    return [sends[0], replace(sends[1], lasts=env.lasts)]


def parent_close(env: Env, state: roles.Tally) -> Any:
    round = state.count + 1
    return roles.Tally(round), ask(env, round + 1) if round < ROUNDS else []


def child_receive(env: Env, state: Heard, sender: str, m: Ask) -> Any:
    answer = [Send("up", Answer(m.round, 1, m.values))] if env.me == "a" else []
    return Heard((*state.rounds, m.round)), answer


PARENT = Role(
    lambda env: (roles.Tally(0), ask(env, 1)), lambda env, state, sender, m: (state, []), parent_close, roles.Tally
)
CHILD = Role(lambda env: (Heard(), []), child_receive, unchanged, Heard)


def node(base: Path, url: str, name: str, lasts: float = inf, **options: Any) -> Runtime:
    run, parent = Run(id="notices", method="none"), name == "p"

    def assemble(run: Run) -> Any:
        found = roles.assembly(PARENT if parent else CHILD, run)
        records = roles.Codec((roles.Record, roles.Tally, Heard, Ask, Answer))
        return replace(found, env=Env(lasts=lasts), records=records)

    who = {"children": ("a", "b"), "run": run, "wait_for": 1} if parent else {"parent": "p"}
    return make_runtime(
        name, directory=base / name, broker=url, assemble=assemble, worker=False, **who, **QUICK, **options
    )


def rounds(parent: Runtime) -> int:
    return parent.node.record.state.count if parent.node and parent.node.record.started else 0


def test_the_oldest_notices_go_first_and_questions_never(tmp_path: Path, quick: LocalBroker) -> None:
    parent, a, b = (node(tmp_path, quick.url, name, outbox_bytes=105_000) for name in "pab")
    with Live(parent), Live(a):
        eventually(lambda: rounds(parent) == ROUNDS)
        kept = 9  # and the last question
        eventually(lambda: parent.counters["dropped.b"] == ROUNDS - 1 - kept)
        assert 90_000 < parent.gauges()["outbox_bytes"] <= 105_000
        assert a.node is not None and a.node.record.state.rounds == tuple(range(1, ROUNDS + 1))
        with Live(b):
            eventually(lambda: b.node is not None and b.node.record.started and len(b.node.record.state.rounds) == kept)
            assert b.node is not None and b.node.record.state.rounds == tuple(range(ROUNDS - kept + 1, ROUNDS + 1))


def test_a_notice_expires(tmp_path: Path, quick: LocalBroker) -> None:
    parent, a, b = (node(tmp_path, quick.url, name, lasts=0.2) for name in "pab")
    with Live(parent), Live(a):
        eventually(lambda: rounds(parent) == ROUNDS)
        eventually(lambda: parent.counters["expired.b"] == ROUNDS - 1)
        assert parent.gauges()["messages_unacknowledged"] == 0
        with Live(b):
            eventually(lambda: "b" in parent.presence.here)
            assert b.node is not None and b.node.record.state.rounds == ()


def test_what_expires_while_a_node_is_down_is_not_sent_after_it(tmp_path: Path, quick: LocalBroker) -> None:
    first, a, b = (node(tmp_path, quick.url, name, lasts=0.5) for name in "pab")
    with Live(first), Live(a):
        eventually(lambda: rounds(first) == ROUNDS)
    end = time.monotonic() + 0.5
    eventually(lambda: time.monotonic() > end)
    again = node(tmp_path, quick.url, "p", lasts=0.5)
    with Live(again), Live(b):
        eventually(lambda: again.counters["expired.b"] == ROUNDS - 1)  # with those that the first has counted
        eventually(lambda: "b" in again.presence.here)
        assert b.node is not None and b.node.record.state.rounds == ()


@pytest.mark.parametrize("jump", [365 * 86400.0, -365 * 86400.0])
def test_a_clock_that_is_set_neither_expires_a_notice_nor_keeps_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The wall clock of a machine is set while a notice waits for a peer that is away."""
    store, now = Store(tmp_path / "run.db"), [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0] + sum(now[1:]))
    monkeypatch.setattr(outgoing_module, "time", clock)
    outgoing = Outgoing(store, Counters(), 2.0, inf)
    with store.transaction():
        outgoing.send_message(EncodedMessage(("b",), 0, False, False, b"notice", lasts=10.0), 1000, ("b",))
    now.append(jump)
    for passed, left in ((9.0, 1), (2.0, 0)):
        now[0] += passed
        with store.transaction():
            outgoing.drop_notices()
        assert len(outgoing.outbox.outs) == left and outgoing.counters["expired.b"] == 1 - left
    store.close()
