"""One node: a role, the debts of its children, and the last message to each peer. Sans-I/O, the same for all tiers.

`Record` is plain data: it is saved as one piece before anything in `Effects.out` leaves. `Node` adds what the process
brings along (role, env, names), which is not saved.

Verbs take `now` and return `Effects`; the caller (runtime.py, loopback.py) does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any

from edge_sdk.contract import round as rounds
from edge_sdk.contract.children.choice import in_order
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.method import DOWN, ME, OUT, UP, NodeEnv, Role, Send
from edge_sdk.contract.records import changed, record


@record
class Envelope:
    """One message to one peer.

    Attributes:
        number: downward: the sender's question; upward: the question that this answers.
        asks: downward: the receiver owes an answer.
        lasts: seconds for which it is worth sending.
    """

    sender: str
    to: str
    number: int
    message: Any
    asks: bool = False
    lasts: float = inf


@record
class Record:
    """What a node remembers, all of it.

    Attributes:
        below: the debts of its children.
        above: the parent's latest question.
        started: whether the role's `start` has run.
        state: the role's own.
        last: peer -> the latest message to it, for repetition.
    """

    below: rounds.Round
    above: int = 0
    started: bool = False
    state: Any = None
    last: Mapping[str, Envelope] = field(default_factory=dict)


@record
class Node:
    """A node at one instant. `here`: children connected now, copied into env.here at every call."""

    name: str
    role: Role
    env: NodeEnv
    parent: str | None
    record: Record
    here: tuple[str, ...] = ()


@record
class Effects:
    """What one call did.

    Attributes:
        node: afterwards.
        out: envelopes to send, once `node.record` is saved.
        again: envelopes that were sent before, for a network that may have lost them.
        told: messages for the application on this node.
        refused: why the message that arrived did not count; None if it did.
    """

    node: Node
    out: tuple[Envelope, ...] = ()
    again: tuple[Envelope, ...] = ()
    told: tuple[Any, ...] = ()
    refused: str | None = None

    def then(self, later: Effects) -> Effects:
        return Effects(
            later.node, self.out + later.out, self.again + later.again, self.told + later.told, later.refused
        )


def new(
    name: str, role: Role, env: NodeEnv, parent: str | None, policy: rounds.Policy, now: float, here: Sequence[str] = ()
) -> Node:
    """A node that has never run."""
    return Node(name, role, env, parent, Record(rounds.begin(policy, now)), in_order(here))


def start(node: Node, now: float) -> Effects:
    state, sends = node.role.start(env_of(node))
    node = with_record(node, state=state, started=True)
    return post(node, sends, now)


def arrive(node: Node, e: Envelope, now: float) -> Effects:
    """A message from a peer (or from the node itself: ME). Duplicates, stale ones and strangers change nothing."""
    if e.sender == node.parent:
        if e.number <= node.record.above:
            reason = f"question {e.number} of {e.sender}, now at {node.record.above}"
            return Effects(node, again=repeated_answer(node, e), refused=reason)
        below, above, sender = node.record.below, e.number, UP
    else:
        below, why = rounds.hear(node.record.below, e.sender, e.number, now)
        if why:
            return Effects(node, refused=why)
        above, sender = node.record.above, ME if e.sender == node.name else e.sender
    state, sends = node.role.receive(env_of(node), node.record.state, sender, e.message)
    done = post(with_record(node, below=below, above=above, state=state), sends, now)
    return done.then(tick(done.node, now)) if now >= rounds.next_look(done.node.record.below) else done


def arrive_together(node: Node, answers: Sequence[Envelope], now: float) -> tuple[Effects, int]:
    """Children's answers that arrive at one time, as `arrive` takes them one after the other, and how many it took.

    It stops before one that may end the round, and behind one after which the node sends something: what comes next may
    find another round. As nobody sees the node between two answers, it is made once for all of them.
    """
    record, env, told = node.record, env_of(node), list[Any]()
    below, state, taken = record.below, record.state, 0
    if now >= rounds.next_look(below):
        return Effects(node), 0
    for e in answers:
        if rounds.may_close(below):
            break
        taken += 1
        below, why = rounds.hear(below, e.sender, e.number, now)
        if why:
            continue
        state, sends = node.role.receive(env, state, e.sender, e.message)
        if any(send.to != OUT for send in sends):
            done = Effects(with_record(node, below=below, state=state), told=tuple(told))
            return done.then(post(done.node, sends, now)), taken
        told += [send.message for send in sends]
    return Effects(with_record(node, below=below, state=state), told=tuple(told)), taken


def excused(node: Node, child: str, number: int, now: float, why: str = "") -> Effects:
    """The answer of a child has come and is of no use. It will not come again, so it is not waited for any longer.

    Args:
        why: what is wrong with the message, for the role; "": there is none, the child does not take part.
    """
    done = Effects(node)
    if why and node.role.refuse is not None:
        state, sends = node.role.refuse(env_of(node), node.record.state, child, why)
        done = post(with_record(node, state=state), sends, now)
    below = rounds.excuse(done.node.record.below, child, number, now)
    if below is done.node.record.below:
        return done
    return done.then(tick(with_record(done.node, below=below), now))


def renewed(node: Node, child: str, now: float) -> Effects:
    """A child has another disk than before, or is new. What it owes an answer to it is asked again by the caller."""
    if node.role.renew is None:
        return Effects(node)
    state, sends = node.role.renew(env_of(node), node.record.state, child)
    return post(with_record(node, state=state), sends, now)


def tick(node: Node, now: float) -> Effects:
    """Close the round if it is over; repeat the question if it is stuck."""
    done = Effects(node)
    while rounds.is_over(done.node.record.below, now):
        node = done.node
        state, sends = node.role.close(env_of(node), node.record.state)
        node = with_record(node, state=state, below=rounds.close(node.record.below, now))
        done = done.then(post(node, sends, now))
    node = done.node
    if rounds.is_stuck(node.record.below, now):
        again = tuple(node.record.last[c] for c in node.record.below.owed if c in node.here)
        node = with_record(node, below=rounds.extend(node.record.below, now))
        done = done.then(Effects(node, again=again))
    return done


def joined(node: Node, child: str) -> Effects:
    """A child is back: it is here again, and hears the question it still owes an answer to."""
    node = changed(node, here=in_order({*node.here, child}))
    owes = child in node.record.below.owed
    return Effects(node, again=(node.record.last[child],) if owes else ())


def left(node: Node, child: str) -> Node:
    return changed(node, here=in_order(c for c in node.here if c != child))


def post(node: Node, sends: Sequence[Send], now: float) -> Effects:
    """Address and number what a role wants to send. All downward sends of one call are one question."""
    if not sends:
        return Effects(node)
    down = [s for s in sends if s.to not in (UP, OUT)]
    if down:
        asking = [s for s in down if s.answer]
        debtors, kind = [c for s in asking for c in receivers(node, s.to)], kind_of(asking)
        below = rounds.ask(node.record.below, debtors, bool(asking), now, any(s.all for s in down), kind)
        node = with_record(node, below=below)
    number = node.record.below.number
    out = [
        Envelope(node.name, c, number, s.message, s.answer, inf if s.answer else s.lasts)
        for s in down
        for c in receivers(node, s.to)
    ]
    if node.parent is not None:
        out += [Envelope(node.name, node.parent, node.record.above, s.message) for s in sends if s.to == UP]
    node = with_record(node, last={**node.record.last, **{e.to: e for e in out}})
    return Effects(node, tuple(out), told=tuple(s.message for s in sends if s.to == OUT))


def kind_of(asking: Sequence[Send]) -> str:
    """Kind of a question: the type of its first message, or of the message that it wraps."""
    if not asking:
        return ""
    message = asking[0].message
    return str(getattr(message, "wrapped_kind", type(message).__name__))


def receivers(node: Node, to: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(to, tuple):
        return to
    return {DOWN: node.here, ME: (node.name,)}.get(to, (to,))


def repeated_answer(node: Node, e: Envelope) -> tuple[Envelope, ...]:
    answer = node.record.last.get(e.sender)
    return (answer,) if answer and answer.number == e.number == node.record.above else ()


def env_of(node: Node) -> NodeEnv:
    known, asked = node.env, node.record.below.number
    if known.me == node.name and known.here == node.here and known.asked == asked:
        return known
    return changed(known, me=node.name, here=node.here, asked=asked)


def with_settings(node: Node, limits: Limits, sizes: Mapping[str, int]) -> Node:
    """The node with what its settings say of its children now, and with the devices that there are behind these."""
    if node.env.limits is limits and node.env.sizes is sizes:
        return node
    return changed(node, env=replace(node.env, limits=limits, sizes=sizes))


def with_record(node: Node, **changes: Any) -> Node:
    return changed(node, record=changed(node.record, **changes))
