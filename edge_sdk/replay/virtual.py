"""A whole fleet in one process with a virtual clock: a month of days and nights takes minutes.

The roles, their messages, the rounds, the deadlines and the training are the real ones (`contract.node`, as in the
loopback). Virtual are the time that training takes on a board, when a device is online and what its machine tells
(its availability file), the link, and the clock by which budgets and deadlines go.

Time goes in ticks of a minute. A call of a device's role is made when its question comes; what it has brought is held
back until the device has been willing for as long as its board needs for those steps.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract import round as rounds
from edge_sdk.contract.children.device_facts import Reason
from edge_sdk.contract.node import Effects, Envelope, Node
from edge_sdk.contract.records import changed
from edge_sdk.data.availability import Availability, Moment
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.nodes.policy.budget import Conditions, Decision, TrainingBudget, decide

TICK = 60.0  # seconds
DAY = 86400.0


@dataclass(frozen=True)
class VirtualLink:
    """A device's link. `rate`: bytes per second, 0: no limit; `latency`: seconds."""

    rate: float = 0.0
    latency: float = 0.0

    def delay(self, size: int) -> float:
        return self.latency + (size / self.rate if self.rate else 0.0)


@dataclass
class VirtualDevice:
    """A device in virtual time.

    Args:
        count_steps: training steps that its model has made so far.
        step_seconds: that a step takes on its board.
        watts: of its board while it trains; None: unknown.

    Attributes:
        told: reason that its hospital knows.
        question: that it is to work on.
        outcome: of the call that is being worked on; None: none is.
        left: seconds of work that this still needs.
        held: messages that wait until it is online.
        working: seconds that it has trained; joules: that this took; nights: on which days.
    """

    name: str
    availability: Availability
    budget: TrainingBudget
    count_steps: Callable[[], int]
    step_seconds: float
    watts: float | None
    decision: Decision | None = None
    moment: Moment = field(default_factory=Moment)
    told: Reason | None = None
    offline_since: float = inf
    question: Envelope | None = None
    outcome: Effects | None = None
    left: float = 0.0
    held: list[Envelope] = field(default_factory=list)
    working: float = 0.0
    joules: float = 0.0
    today: float = 0.0
    willing_seconds: float = 0.0
    answers: int = 0
    refused: int = 0
    given_up: int = 0
    bytes: int = 0
    days: set[int] = field(default_factory=set)

    def look(self, now: float) -> None:
        """Take up what its machine tells now, and decide."""
        self.moment = moment = self.availability.at(now)
        self.offline_since = min(self.offline_since, now) if moment.offline else inf
        if now % DAY < TICK:
            self.today = 0.0
        found = Conditions(
            battery=moment.battery,
            charging=moment.charging,
            celsius=moment.celsius,
            busy=0.0,
            metered=moment.metered,
            joules=None if self.watts is None else self.today,
            minute=int(now % DAY // 60),
        )
        self.decision = decide(self.budget, found, now, self.decision)
        self.willing_seconds += TICK * self.decision.willing
        if not moment.offline:
            self.told = self.decision.reason

    def work(self, now: float) -> Effects | None:
        """Train for a tick, if it may; returns the outcome of a call that is done with that."""
        assert self.decision is not None
        if self.outcome is None or not (self.decision.willing or self.left <= 0):
            return None
        seconds = min(self.left, TICK * self.budget.cpu_share)
        self.left -= seconds
        self.working += seconds
        if seconds:
            self.days.add(int(now // DAY))
        spent = seconds * (self.watts or 0.0)
        self.joules, self.today = self.joules + spent, self.today + spent
        if self.left > 1e-9:
            return None
        done, self.outcome, self.question = self.outcome, None, None
        return done


class VirtualFleet:
    """All nodes of a run.

    Args:
        made: the nodes, at their beginning.
        sizes: (node, message) -> bytes of the message as that node encodes it.
        devices: name -> device.
        link: of the devices.
        note: called with (seconds, node, message) for what roles tell.
    """

    def __init__(
        self,
        made: Sequence[Node],
        sizes: Callable[[str, Any], int],
        devices: Mapping[str, VirtualDevice],
        link: VirtualLink,
        note: Callable[[float, str, Any], None],
    ):
        self.nodes, self.sizes, self.devices, self.link, self.note = (
            {n.name: n for n in made},
            sizes,
            devices,
            link,
            note,
        )
        self.children: dict[str, list[str]] = {}
        for node in made:
            if node.parent is not None:
                self.children.setdefault(node.parent, []).append(node.name)
        self.queue: list[tuple[float, int, Envelope]] = []
        self.ticket = itertools.count()
        self.waiting: dict[str, list[Envelope]] = {}
        self.over: set[str] = set()

    def run(self, days: float) -> float:
        """Play so many days, or until every node has heard the end; returns the virtual seconds that it took."""
        now = 0.0
        for device in self.devices.values():
            device.look(now)
        for name in self.nodes:
            self.commit(name, nodes.start(self.prepared(name, now), now), now)
        while now < days * DAY and not self.over >= self.nodes.keys():
            for device in self.devices.values():
                device.look(now)
                self.turn(device, now)
            self.deliver(now)
            for name in self.children:
                if now >= self.nodes[name].record.below.deadline:
                    self.commit(name, nodes.tick(self.prepared(name, now), now), now)
            now += TICK
        return now

    # -- devices

    def turn(self, device: VirtualDevice, now: float) -> None:
        """A device's minute: what waited for the link, and its work."""
        if not device.moment.offline:
            for e in device.held:
                self.push(e, now)
            device.held = []
        if (done := device.work(now)) is not None:
            self.commit(device.name, done, now)

    def begin(self, device: VirtualDevice, e: Envelope, now: float) -> None:
        """A device is given a message. A newer question takes the place of the one that it works on."""
        before = device.count_steps()
        done = nodes.arrive(self.nodes[device.name], e, now)
        if done.refused:
            return
        device.given_up += device.outcome is not None
        device.question, device.outcome = e, done
        device.left = (device.count_steps() - before) * device.step_seconds
        if device.left == 0:
            device.question, device.outcome = None, None
            self.commit(device.name, done, now)

    # -- messages

    def commit(self, name: str, done: Effects, now: float) -> None:
        self.nodes[name] = done.node
        for message in done.told:
            self.note(now, name, message)
            if isinstance(message, Finished):
                self.over.add(name)
        for e in done.out + done.again:
            self.post(e, now)

    def post(self, e: Envelope, now: float) -> None:
        device = self.devices.get(e.sender) or self.devices.get(e.to)
        if device is not None and e.sender == device.name:
            device.answers += 1
        if device is None or e.to == e.sender:
            heapq.heappush(self.queue, (now, next(self.ticket), e))
        elif device.moment.offline:
            kept = [held for held in device.held if (held.sender, held.asks) != (e.sender, e.asks)]
            device.held = [*kept, e]  # of a peer's questions the latest is worth sending, as in the outbox
        else:
            self.push(e, now)

    def push(self, e: Envelope, now: float) -> None:
        """Send a message over a device's link."""
        device, size = self.devices.get(e.sender) or self.devices[e.to], self.sizes(e.sender, e.message)
        device.bytes += size
        heapq.heappush(self.queue, (now + self.link.delay(size), next(self.ticket), e))

    def deliver(self, now: float) -> None:
        """Deliver what has arrived by now, and what follows from it at once."""
        for name in list(self.waiting):
            if not self.holds(name, now):
                for e in self.waiting.pop(name):
                    heapq.heappush(self.queue, (now, next(self.ticket), e))
        while self.queue and self.queue[0][0] <= now:
            self.receive(heapq.heappop(self.queue)[2], now)

    def receive(self, e: Envelope, now: float) -> None:
        device = self.devices.get(e.to)
        if device is not None:
            self.begin(device, e, now)
        elif e.asks and e.sender == self.nodes[e.to].parent and self.holds(e.to, now):
            self.waiting.setdefault(e.to, []).append(e)
        else:
            done = nodes.arrive(self.prepared(e.to, now), e, now)
            if done.refused and (sender := self.devices.get(e.sender)):
                sender.refused += 1
            self.commit(e.to, done, now)

    # -- who is here

    def prepared(self, name: str, now: float) -> Node:
        """A node as it is called now: with who counts, and who is unwilling."""
        here = tuple(sorted(self.counting(name, now)))
        unwilling = tuple(sorted(d for d in here if d in self.devices and self.devices[d].told is not None))
        node = self.nodes[name]
        return changed(node, here=here, env=replace(node.env, me=name, here=here, unwilling=unwilling))

    def counting(self, name: str, now: float) -> Iterator[str]:
        """Children that belong to a round that is opened now (see delivery/roles/members.py)."""
        patience = rounds.patience(self.nodes[name].record.below)
        for child in self.children.get(name, ()):
            device = self.devices.get(child)
            if device is None or device.offline_since == inf or now - device.offline_since < patience:
                yield child

    def holds(self, name: str, now: float) -> bool:
        """Nobody behind a hospital wants to train: its parent's questions wait."""
        found = [self.devices[child] for child in self.counting(name, now) if child in self.devices]
        return bool(found) and all(device.told is not None for device in found)
