"""The network of a simulation: all nodes of a run on one virtual clock, clients in batches, on one rank or several.

It does what contract/loopback.py does, without faults of its own, and at another scale. Aggregator and hospitals are
nodes in memory, on every rank the same. A question to a client is noted; before the clock moves on, all that are noted
are worked on together, each on the rank that has the client's state, and the ranks exchange the answers. An answer is
in the queue for the moment at which it arrives. Roles are pure, and sums exact: so the result is that of a replay and
of the loopback to the bit, and does not depend on the number of ranks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from edge_sdk.contract import node as nodes
from edge_sdk.contract import round as rounds
from edge_sdk.contract.records import changed
from edge_sdk.errors import AuscultError
from edge_sdk.methods.shared.evaluation.evaluation import Evaluate, Finished
from edge_sdk.simulation.clients.clients import Clients
from edge_sdk.simulation.clients.crowd import Crowd
from edge_sdk.simulation.network.exchange import ClientOutcome, Exchange
from edge_sdk.simulation.sums.traffic import Traffic

Told = Callable[[str, Any, float], None]
"""Called with a node's name, what its role tells the application, and the time."""


class Happening(NamedTuple):
    """Something in the queue, sorted by the first two.

    Attributes:
        time: when it happens, in seconds of the virtual clock.
        ticket: of two at one time the lower one is first; no other has it.
        mail: an envelope that arrives; None: a node looks at its clock.
        name: of that node.
    """

    time: float
    ticket: int
    mail: nodes.Envelope | None = None
    name: str = ""


class SimulatedNetwork:
    """All nodes of one run.

    Args:
        root: name of the aggregator.
        inner: name -> node, of the aggregator and all hospitals.
        clients: those of this rank.
        crowd: who is there when.
        exchange: with the other ranks.
        traffic: counts bytes.
        told: what roles tell their applications.
    """

    def __init__(
        self,
        root: str,
        inner: Mapping[str, nodes.Node],
        clients: Clients,
        crowd: Crowd,
        exchange: Exchange,
        traffic: Traffic,
        told: Told,
    ) -> None:
        self.root, self.nodes, self.clients, self.crowd = root, dict(inner), clients, crowd
        self.exchange, self.traffic, self.told = exchange, traffic, told
        self.queue: list[Happening] = []
        self.waiting: list[nodes.Envelope] = []  # questions to clients, asked at `now`
        self.now, self.ticket, self.finished, self.worked = 0.0, 0, False, 0

    def start(self) -> None:
        """Starts all nodes, the aggregator first."""
        for name, node in self.nodes.items():
            if node.record.below.deadline < inf:
                self.push(node.record.below.deadline, name=name)
            self.commit(name, nodes.start(self.with_present(node, None), 0.0))

    def step(self) -> bool:
        """One thing that happens, or all questions to clients that wait; False: the run is over.

        Raises:
            AuscultError: nothing is left to happen, and the run is not over.
        """
        if self.finished:
            return False
        if self.waiting and (not self.queue or self.queue[0].time > self.now):
            self.ask_clients()
        elif self.queue:
            self.happen(heapq.heappop(self.queue))
        else:
            raise AuscultError(
                f"at {self.now:.0f} s of its clock the run stands still: all that are asked never answer, and rounds "
                "have no deadline (--deadline)"
            )
        return not self.finished

    def happen(self, what: Happening) -> None:
        self.now = what.time
        if what.mail is None:
            self.commit(what.name, nodes.tick(self.with_present(self.nodes[what.name], None), self.now))
        elif what.mail.sender not in self.nodes and self.take_answers(what, what.mail):
            return
        elif not self.waits_for_clients(what.mail):
            node = self.with_present(self.nodes[what.mail.to], what.mail)
            self.commit(what.mail.to, nodes.arrive(node, what.mail, self.now))

    def take_answers(self, first: Happening, mail: nodes.Envelope) -> bool:
        """Has a hospital take answers of clients that arrive at one time, as many as cannot end its round; False: the
        first may. Answers that it does not take go back to where they were."""
        node, found = self.nodes[mail.to], [(first, mail)]
        if rounds.may_close(node.record.below):
            return False
        while (
            (following := self.next_answer) is not None and self.queue[0].time == self.now and following.to == mail.to
        ):
            found.append((heapq.heappop(self.queue), following))
        done, taken = nodes.arrive_together(node, [e for _, e in found], self.now)
        for what, _ in found[max(taken, 1) :]:
            heapq.heappush(self.queue, what)
        self.commit(mail.to, done)
        return taken > 0

    # Hospitals and their clients ----------------------------------------------------------------------------------
    def with_present(self, node: nodes.Node, mail: nodes.Envelope | None) -> nodes.Node:
        """A hospital with the clients that are there now; those who judge, if this is an evaluation."""
        if node.name not in self.crowd.tree:
            return node
        if mail is not None and isinstance(mail.message, Evaluate):
            return changed(node, here=self.crowd.judges[node.name])
        if mail is not None and mail.sender not in self.nodes and not rounds.may_close(node.record.below):
            return node  # who is there matters where somebody is asked
        return changed(node, here=self.crowd.present(node.name, self.now, self.round))

    @property
    def next_answer(self) -> nodes.Envelope | None:
        """What happens next, if that is that a client's answer arrives."""
        mail = self.queue[0].mail if self.queue else None
        return None if mail is None or mail.sender in self.nodes else mail

    @property
    def round(self) -> int:
        """Questions that the aggregator has asked so far: changes with each, and never goes back."""
        return int(getattr(self.nodes[self.root].record.state, "round", 0))

    def waits_for_clients(self, mail: nodes.Envelope) -> bool:
        """Puts off a question to a hospital in which nobody is there, until somebody may be."""
        if mail.to not in self.crowd.tree or mail.sender != self.root or isinstance(mail.message, (Evaluate, Finished)):
            return False
        after = self.crowd.habits.next_change(self.now)
        if after == inf or self.crowd.present(mail.to, self.now, self.round):
            return False
        self.push(after, mail)
        return True

    def ask_clients(self) -> None:
        """Has the clients answer that were asked, and notes when their answers arrive."""
        batch, self.waiting = once_each(self.waiting)
        self.worked += len(batch)
        for e, outcome in zip(batch, self.exchange.work(batch, self.clients, self.now), strict=True):
            self.take_outcome(e, outcome)

    def take_outcome(self, e: nodes.Envelope, outcome: ClientOutcome) -> None:
        for message in outcome.answers:
            answer = nodes.Envelope(e.to, e.sender, e.number, message)
            if isinstance(e.message, Evaluate):  # an evaluation is the observer's: it takes no time and no bytes
                self.push(self.now, answer)
                continue
            down, up = self.traffic.size(e.message), self.traffic.size(message)
            at = self.crowd.habits.answer_at(e.to, e.number, self.now, down, up)
            self.traffic.count_client(down, up if at < inf else 0)
            if at < inf:
                self.push(at, answer)

    # Queue --------------------------------------------------------------------------------------------------------
    def commit(self, name: str, done: nodes.Effects) -> None:
        """Takes a node as it is after a call, and what it sends."""
        old, new = self.nodes[name].record.below, done.node.record.below
        self.nodes[name] = forget_paid(done.node)
        if new.deadline < inf and new.deadline != old.deadline:
            self.push(new.deadline, name=name)
        for message in done.told:
            self.told(name, message, self.now)
            self.finished |= name == self.root and isinstance(message, Finished)
        for e in done.out + done.again:
            self.post(e)

    def post(self, e: nodes.Envelope) -> None:
        if e.to in self.nodes:
            self.push(self.now, e)
            if e.to != e.sender and not isinstance(e.message, (Evaluate, Finished)):
                self.traffic.count_hospital(e.message, down=e.sender == self.root)
        elif e.asks:  # a notice says that the run is over, which is known here
            self.waiting.append(e)

    def push(self, time: float, mail: nodes.Envelope | None = None, name: str = "") -> None:
        self.ticket += 1
        heapq.heappush(self.queue, Happening(time, self.ticket, mail, name))


def once_each(waiting: list[nodes.Envelope]) -> tuple[list[nodes.Envelope], list[nodes.Envelope]]:
    """The first question to each client, and those that have to wait for it."""
    first, later, seen = list[nodes.Envelope](), list[nodes.Envelope](), set[str]()
    for e in waiting:
        (later if e.to in seen else first).append(e)
        seen.add(e.to)
    return first, later


FEW = 8


def forget_paid(node: nodes.Node) -> nodes.Node:
    """The node without messages that nobody owes an answer to any more: they will not be repeated."""
    record = node.record
    if len(record.last) <= 2 * len(record.below.owed) + FEW:  # not at each answer: that would cost a pass over all
        return node
    kept = {name: e for name, e in record.last.items() if name in record.below.owed}
    return changed(node, record=changed(record, last=kept))
