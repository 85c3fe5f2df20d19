"""A network in memory with its own clock. Reorders, repeats, drops and delays on a seed; knows no method.

The same node code runs here as over MQTT, so a test of a method needs no broker, no process and no waiting. A node does
one thing at a time and is busy while it does it, as on a real machine.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.contract.round import Policy

ROOT = "aggregator"
Tree = Mapping[str, Sequence[str]]
"""Hospital -> its devices."""


@dataclass(frozen=True)
class NetworkFaults:
    """What the network and the nodes do to messages. Times in seconds of the virtual clock.

    Attributes:
        repeat: probability that a message arrives twice.
        drop: probability that a copy of a message is lost.
        delay: shortest and longest time under way; their spread is what reorders.
        work: node -> seconds that each of its calls takes.
        away: node -> spans (from, until) in which it hears and says nothing.
        slow: (node, question) -> extra seconds for its answer.
    """

    repeat: float = 0.3
    drop: float = 0.0
    delay: tuple[float, float] = (0.1, 1.0)
    work: Mapping[str, float] = field(default_factory=dict)
    away: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    slow: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Closed:
    """One close of a node: whose answers counted, the parent's question at that time, the state after, when."""

    children: list[str]
    above: int
    state: Any
    time: float


@dataclass
class Transcript:
    """What happened. A question is named by the number that its asker gave it.

    Attributes:
        answers: node -> children heard since its last close.
        closed: node -> its closes.
        ran: node -> questions of its parent that it worked on.
        asked: node -> {own question: the parent's question at that time}.
        states: node -> states after each message that counted.
        times: node -> [(when, question)] of `ran`.
        refused: (node, sender, why).
        told: (node, message for the application).
        crossed: (sender, receiver, message), whatever became of it: the privacy spy.
        time: of the last event.
    """

    answers: dict[str, list[str]] = field(default_factory=dict)
    closed: dict[str, list[Closed]] = field(default_factory=dict)
    ran: dict[str, list[int]] = field(default_factory=dict)
    asked: dict[str, dict[int, int]] = field(default_factory=dict)
    states: dict[str, list[Any]] = field(default_factory=dict)
    times: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)
    crossed: list[tuple[str, str, Any]] = field(default_factory=list)
    time: float = 0.0


class Loopback:
    """All nodes of one run.

    Args:
        method: whose roles the nodes play.
        tree: hospital -> its devices.
        envs: node -> what it is given.
        policies: tier ("aggregator", "hospital", "device") -> when its rounds are over.
        seed: of the faults.
        faults: what the network and the nodes do to messages.
        through: what every message passes on the wire, e.g. encoding and decoding.
        root: name of the aggregator. What it draws depends on it.
    """

    def __init__(
        self,
        method: Method,
        tree: Tree,
        envs: Mapping[str, NodeEnv],
        policies: Mapping[str, Policy] | None = None,
        seed: int = 0,
        faults: NetworkFaults = NetworkFaults(),
        through: Callable[[Any], Any] = lambda message: message,
        root: str = ROOT,
    ):
        self.random, self.faults, self.through, self.transcript = random.Random(seed), faults, through, Transcript()
        self.queue: list[tuple[float, int, str, Any]] = []
        self.ticket, self.busy = itertools.count(), dict[str, float]()
        self.nodes = build(method, tree, envs, policies or {}, root)
        for name, spans in faults.away.items():
            for _, until in spans:
                if until < inf:
                    self.push(until, "join", name)

    def run(self, until: float = inf) -> Transcript:
        """Play until nothing is left to happen, or the virtual clock reaches `until`."""
        for name in list(self.nodes):
            idle = self.nodes[name].record.below.deadline
            if idle < inf:
                self.push(idle, "wake", name)
            self.commit(name, nodes.start(self.nodes[name], 0.0), now=0.0)
        handlers: dict[str, Callable[[Any, float], None]] = {"mail": self.mail, "wake": self.wake, "join": self.join}
        while self.queue and self.queue[0][0] <= until:
            now, _, what, about = heapq.heappop(self.queue)
            self.transcript.time = now
            handlers[what](about, now)
        return self.transcript

    def mail(self, e: nodes.Envelope, now: float) -> None:
        if now < self.busy.get(e.to, 0.0):
            return self.push(self.busy[e.to], "mail", e)
        if self.is_away(e.to, now) or self.is_away(e.sender, now):
            return None
        before = self.nodes[e.to]
        done = nodes.arrive(before, e, now)
        self.note_arrival(before, e, done.refused, now)
        self.commit(e.to, done, now)
        if not done.refused:
            self.transcript.states.setdefault(e.to, []).append(done.node.record.state)
        return None

    def note_arrival(self, node: nodes.Node, e: nodes.Envelope, refused: str | None, now: float) -> None:
        if refused:
            self.transcript.refused.append((e.to, e.sender, refused))
        elif e.sender == node.parent:
            self.transcript.ran.setdefault(e.to, []).append(e.number)
            self.transcript.times.setdefault(e.to, []).append((now, e.number))
        elif e.sender != e.to:
            self.transcript.answers.setdefault(e.to, []).append(e.sender)

    def wake(self, name: str, now: float) -> None:
        self.commit(name, nodes.tick(self.nodes[name], now), now)

    def join(self, name: str, now: float) -> None:
        parent = self.nodes[name].parent
        if parent is not None:
            self.commit(parent, nodes.joined(self.nodes[parent], name), now)

    def commit(self, name: str, done: nodes.Effects, now: float) -> None:
        """The node's new record is in place before anything is sent."""
        old, new = self.nodes[name].record.below, done.node.record.below
        self.nodes[name] = done.node
        self.transcript.asked.setdefault(name, {})[new.number] = done.node.record.above
        if new.closes > old.closes:
            closed = Closed(self.transcript.answers.pop(name, []), done.node.record.above, done.node.record.state, now)
            self.transcript.closed.setdefault(name, []).append(closed)
        if new.deadline < inf and new.deadline != old.deadline:
            self.push(new.deadline, "wake", name)
        self.transcript.told += [(name, m) for m in done.told]
        self.busy[name] = now + self.faults.work.get(name, 0.0)
        for e in done.out + done.again:
            self.post(e, self.busy[name])

    def post(self, e: nodes.Envelope, now: float) -> None:
        if e.to == e.sender:
            return self.push(now, "mail", e)
        e = nodes.Envelope(e.sender, e.to, e.number, self.through(e.message), e.asks)
        self.transcript.crossed.append((e.sender, e.to, e.message))
        upward = e.to == self.nodes[e.sender].parent
        extra = self.faults.slow.get((e.sender, e.number), 0.0) if upward else 0.0
        for _ in range(1 + (self.random.random() < self.faults.repeat)):
            if self.random.random() >= self.faults.drop:
                self.push(now + extra + self.random.uniform(*self.faults.delay), "mail", e)
        return None

    def push(self, when: float, what: str, about: Any) -> None:
        heapq.heappush(self.queue, (when, next(self.ticket), what, about))

    def is_away(self, name: str, now: float) -> bool:
        return any(a <= now < b for a, b in self.faults.away.get(name, ()))


def build(
    method: Method, tree: Tree, envs: Mapping[str, NodeEnv], policies: Mapping[str, Policy], root: str = ROOT
) -> dict[str, nodes.Node]:
    """One node per name, everybody here."""

    def make(name: str, tier: str, parent: str | None, children: Sequence[str]) -> nodes.Node:
        policy = policies.get(tier, Policy())
        return nodes.new(name, getattr(method, tier), envs[name], parent, policy, 0.0, children)

    made = [make(root, "aggregator", None, tuple(tree))]
    made += [make(h, "hospital", root, devices) for h, devices in tree.items()]
    made += [make(d, "device", h, ()) for h, devices in tree.items() for d in devices]
    return {n.name: n for n in made}
