"""A message after which nothing could be sent costs its sender's step, and no run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import UP, Role, Send
from edge_sdk.contract.records import changed
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly, Outcome, Task, perform
from edge_sdk.delivery.storage.store import Job
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.codec.codec import Codec
from edge_sdk.wire.codec.coders import LARGEST_INT
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

MOST = LARGEST_INT  # of a whole number in a message: one device more, and a sum of devices cannot be sent
RUN = Run(id="count", method="count", rounds=3)


def assemble(role: Role, **given: Any) -> Assembly:
    """The counting run with ranges for the numbers in its messages, as the runs of all methods have them."""
    ranged = Codec(roles.MESSAGES, layout=EMPTY_LAYOUT)
    return replace(roles.assembly(role, RUN, **given), messages=ranged)


def refused(env: roles.Env, state: roles.Sums, sender: str, why: str) -> Any:
    """Counts a refusal as something heard, to be seen in the state."""
    return replace(state, heard={**state.heard, f"no {sender}": 1}), []


def asked(role: Role) -> tuple[Assembly, nodes.Node]:
    """A hospital of a and b that has passed a question on."""
    assembly = assemble(role, sizes={"a": 1, "b": 1})
    node = nodes.new("h", role, assembly.env, "agg", assembly.policy, 0.0, ("a", "b"))
    node = nodes.start(node, 0.0).node
    question = assembly.messages.encode(roles.Ask(1, np.zeros(4, np.float32)))
    node = perform(assembly, Task("arrive", node, 1.0, Job("agg", 1, True, question))).node
    assert node is not None and node.record.below.owed.keys() == {"a", "b"}
    return assembly, node


def hear(assembly: Assembly, node: nodes.Node, child: str, devices: int) -> Outcome:
    body = assembly.messages.encode(roles.Answer(1, devices, np.ones(4, np.float32)))
    number = node.record.below.owed[child]
    return perform(assembly, Task("arrive", node, 2.0, Job(child, number, False, body)))


def test_who_makes_the_sum_unsendable_is_refused_and_the_others_are_sent() -> None:
    assembly, node = asked(replace(roles.HOSPITAL, refuse=refused))
    first = hear(assembly, node, "a", 1)
    assert first.node is not None
    last = hear(assembly, first.node, "b", MOST)
    assert not last.unusable and not last.failed and last.node is not None
    assert "what follows from it cannot be sent" in last.broken and "devices" in last.broken
    (sent,) = last.messages
    found = assembly.messages.decode(sent.body)
    assert (sent.to, found.devices, found.values.tolist()) == (("agg",), 1, [1.0] * 4)
    assert last.node.record.state.heard == {"a": 1, "no b": 1}, "the role hears of it, and of nothing else of b"
    assert not last.node.record.below.owed and not last.node.record.below.open


def test_it_is_refused_before_anything_of_it_is_in_the_sum() -> None:
    """The role would send something at once, and not when all have answered."""

    def passed_on(env: roles.Env, state: roles.Sums, sender: str, m: Any) -> Any:
        state, sends = roles.hospital_receive(env, state, sender, m)
        return state, sends if sender == UP else [Send(UP, replace(m, devices=m.devices + 1))]

    assembly, node = asked(replace(roles.HOSPITAL, receive=passed_on))
    found = hear(assembly, node, "b", MOST)
    assert "cannot be sent" in found.broken and found.node is not None and not found.messages
    assert found.node.record.state is node.record.state
    assert found.node.record.below.owed.keys() == {"a"}, "b has given its answer, and a has not"


def test_what_a_node_makes_of_its_parents_question_is_its_own_affair() -> None:
    """There is no child whose step it is: the node says so, and its parent goes on without it."""

    def answer(env: roles.Env, state: roles.Tally, sender: str, m: roles.Ask) -> Any:
        return state, [Send(UP, roles.Answer(m.round, MOST + 1, m.values))]

    assembly = assemble(replace(roles.DEVICE, receive=answer))
    node = nodes.start(nodes.new("a", assembly.role, assembly.env, "h", assembly.policy, 0.0), 0.0).node
    body = assembly.messages.encode(roles.Ask(1, np.zeros(4, np.float32)))
    found = perform(assembly, Task("arrive", node, 1.0, Job("h", 1, True, body)))
    assert found.node is None and not found.messages and not found.broken
    assert found.unusable.startswith("what a is to send now cannot be sent: ") and "devices" in found.unusable


def test_a_sum_that_was_unsendable_before_is_not_laid_on_who_comes_last() -> None:
    assembly, node = asked(replace(roles.HOSPITAL, refuse=refused))
    node = hear(assembly, node, "a", 1).node or node
    node = nodes.with_record(node, state=changed(node.record.state, devices=MOST + 1))
    found = hear(assembly, node, "b", 1)
    assert found.unusable.startswith("what h is to send now cannot be sent: ") and not found.broken


@pytest.mark.parametrize("worker", [True, False])
def test_over_a_broker_it_costs_one_answer(tmp_path: Path, quick: LocalBroker, worker: bool) -> None:
    net = Net(tmp_path, quick.url, worker=worker)
    hospital = net.hospital("h", "a", "b", assemble=lambda run: assemble(roles.HOSPITAL, sizes={"a": 1, "b": 1}))

    def a_is_counted() -> bool:
        node = hospital.node
        return node is not None and getattr(node.record.state, "devices", 0) == 1

    def receive(env: roles.Env, state: roles.Tally, sender: str, m: roles.Ask) -> Any:
        state, (sent,) = roles.device_receive(env, state, sender, m)
        if m.round > 1:
            return state, [sent]
        eventually(a_is_counted)
        return state, [Send(UP, replace(sent.message, devices=MOST))]

    liar = net.node("b", replace(roles.DEVICE, receive=receive), "h", (), worker=True)
    with playing(net.aggregator("h", rounds=3), hospital, net.device("a", "h"), liar):
        eventually(lambda: net.rounds == 3)
        assert hospital.counters["refused.broken.b"] == 1 and not hospital.refusal
    assert [(done.devices, done.total) for _, done in net.told] == [(1, 4.0), (2, 8.0), (2, 12.0)]
