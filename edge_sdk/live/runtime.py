"""A live node: one select loop around its connections and the run that it works in.

One turn of the loop: read all there is, one commit for all of it, publish. So nothing leaves before it is saved, and
many messages share a commit.

What is read goes to `reception.py`, and from there to the session or, where a peer speaks of itself, to
`neighbours.py`. In which run the node has a session is decided in `membership.py`. What leaves goes through `mail.py`
and `herald.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk.contract.method import RESERVED_NAMES
from edge_sdk.contract.node import Node
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Assembly as Assembly
from edge_sdk.delivery.session import Habits, Session
from edge_sdk.delivery.store import Store
from edge_sdk.errors import UsageError
from edge_sdk.live.announcer import Herald
from edge_sdk.live.directory import Desk
from edge_sdk.live.gauges import Report, gauges
from edge_sdk.live.membership import GRACE, Membership
from edge_sdk.live.neighbours import Neighbours
from edge_sdk.live.presence import Presence
from edge_sdk.live.publisher import Mail
from edge_sdk.live.reception import Reception
from edge_sdk.wire import links as ways
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.mqtt import LARGEST, Tls, Will
from edge_sdk.wire.waiter import Waiter

LONGEST_NAP = 60.0  # seconds
LOOK = 0.25  # seconds between two looks at `until`
OUTBOX = 256 * 1024 * 1024  # bytes


class Runtime:
    """A node on its brokers.

    Args:
        name: of this node; client id and part of every topic.
        parent: name of the parent; None: this is the root.
        children: names of those who may take part below.
        directory: what this node remembers is there, and nowhere else.
        broker: URL of the broker of the children (of a device: of its hospital).
        upstream: URL of the parent's broker, if it is another one.
        run: the training job; only the root has it from the start.
        assemble: what to play in a run. UsageError: the run cannot be used here.
        told: (increasing number, message for the application), after the commit, at least once.
        wait_for: children that must be here before the role starts; None: all.
        worker: calls of the role are made on a thread, so that the network never waits for them.
        durability: "normal" or "full" (see store.py).
        keepalive: seconds of silence after which the broker is pinged.
        version: of MQTT: 4 is 3.1.1, or 5.
        settle: seconds for which a restarted parent waits for its children.
        backoff: between attempts to connect.
        rto: seconds until a message is repeated for the first time.
        outbox_bytes: that messages may take up on the disk before notices are given up (see session.py).
        largest_chunk: bytes that travel together at most; what is larger goes in pieces.
        tls: certificates, for a broker at mqtts:// or wss://.
        upstream_tls: those for the parent's broker, where that has another authority.
        log: where to write.
    """

    def __init__(
        self,
        name: str,
        *,
        parent: str | None = None,
        children: Sequence[str] = (),
        directory: Path,
        broker: str,
        upstream: str | None = None,
        run: Run | None = None,
        assemble: Callable[[Run], Assembly],
        told: Callable[[int, Any], None] = lambda number, message: None,
        wait_for: int | None = None,
        worker: bool = True,
        durability: str = "normal",
        keepalive: int = 30,
        version: int = 4,
        settle: float = 10.0,
        backoff: Backoff | None = None,
        rto: float = 2.0,
        outbox_bytes: float = OUTBOX,
        largest_chunk: int = LARGEST,
        tls: Tls | None = None,
        upstream_tls: Tls | None = None,
        log: logging.Logger | None = None,
    ):
        check_names(name, parent, children)
        if wait_for is not None and not 0 <= wait_for <= len(children):
            raise UsageError(f"wait_for = {wait_for}, there are {len(children)} children")
        if version not in (4, 5):
            raise UsageError(f"version = {version}, MQTT is spoken in 4 (3.1.1) and 5")
        self.name, self.parent, self.children = name, parent, tuple(children)
        self.directory, self.durability = Path(directory), durability
        self.run_given, self.told = run, told
        self.habits = Habits(worker, len(children) if wait_for is None else wait_for, settle, rto, outbox_bytes)
        self.log = log or logging.getLogger("auscult.node")
        self.counters = Counters()
        self.report = Report(name, self.counters, self.gauges, self.log)
        self.keepalive, self.largest_chunk = keepalive, largest_chunk
        self.stopping = False
        self.due = 0.0  # when something is to be done if nothing comes; 0: not known
        self.waiter = Waiter()
        upstream = upstream or broker
        proofs = ways.contexts(broker, upstream, tls, upstream_tls)
        to = ways.Ways(name, proofs, keepalive, version, backoff or Backoff(), self.waiter.wake, self.will, self.log)
        self.below, self.above = to.links(parent, self.children, broker, upstream)
        self.mail = Mail(name, parent, self.below, self.above, self.counters, self.log)
        self.all_links = self.mail.links
        self.herald = Herald(self.mail)
        self.membership = Membership(
            name, self.children, assemble, self.new_session, self.herald, self.counters, self.log
        )
        self.neighbours = Neighbours(self.membership, self.herald, self.log)
        self.reception = Reception(name, parent, self.membership, self.neighbours, self.counters, self.log)

    def will(self, link: Link) -> Will:
        return self.herald.will(link, self.membership.epoch)

    def new_session(self, run: Run, assembly: Assembly, store: Store) -> Session:
        args = (self.habits, self.counters, self.told, self.waiter.wake, self.log)
        return Session(self.name, self.parent, run, assembly, store, *args)

    # -- how things stand

    @property
    def session(self) -> Session | None:
        """This node's part in its run; None outside a run."""
        return self.membership.session

    @property
    def presence(self) -> Presence:
        return self.membership.presence

    @property
    def current(self) -> Run | None:
        return self.membership.run

    @property
    def refusal(self) -> str:
        """Why this node cannot take part in the run that it was offered, or empty."""
        return self.membership.refusal

    @property
    def here(self) -> tuple[str, ...]:
        """Children that count now."""
        return self.presence.here

    @property
    def node(self) -> Node | None:
        """As it was last saved; None outside a run."""
        session = self.session
        return None if session is None else session.node

    @property
    def delivered(self) -> bool:
        """No message is waiting to be worked on, or to be acknowledged by a peer. A device's own clock may tick on."""
        s = self.session
        return s is None or not (s.calls.jobs or any(s.outbox.pending.values()))

    def gauges(self) -> dict[str, float]:
        """How things stand, for `metrics`. May be called from any thread; then a figure may be of a moment ago."""
        return gauges(self.session, self.all_links, len(self.here))

    # -- from any thread

    def stop(self) -> None:
        """Finish cleanly. May be called from any thread and from a signal handler."""
        self.stopping = True
        self.waiter.wake()

    def cancelled(self) -> bool:
        """A call of the role should give up (`errors.Cancelled`): a newer question waits, or the node is stopping."""
        session = self.session
        return self.stopping or (session is not None and session.calls.cancelled)

    # -- the loop

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Work until `stop` is called or `until` says so. May be called again.

        Raises:
            UsageError: the run of the root cannot be used here, or another process works in the directory.
        """
        with ExitStack() as stack:
            self.membership.desk = stack.enter_context(closing(Desk(self.directory, self.durability)))
            stack.enter_context(self.waiter)
            stack.callback(self.drop)
            self.membership.begin(self.run_given)
            while not self.stopping and not (until is not None and until()):
                self.turn(LOOK if until is not None else inf)
            self.finish()

    def drop(self) -> None:
        """Let go of everything that is still open, however the loop has ended."""
        self.stopping = False
        for link in self.all_links:
            link.close()
        self.membership.drop()

    def turn(self, patience: float) -> None:
        """Wait for something to do, and do it."""
        woken = self.wait(patience)
        now = time.monotonic()
        news = [self.serve(link, now) for link in self.all_links]
        if not (woken or any(news)) and now < self.due:
            return  # an acknowledgement of the broker, or nothing
        self.due = 0.0
        self.membership.renew(now)
        self.save(now)
        self.send(now)
        if now >= self.report.due:
            self.report.write(now)

    def wait(self, patience: float) -> bool:
        """Until something comes or is due; whether another thread has woken us."""
        if not self.due:
            self.due = time.monotonic() + min(LONGEST_NAP, self.timer())
        connections = [link.connection for link in self.all_links if link.connection is not None]
        return self.waiter.wait(connections, patience, self.due)

    def timer(self) -> float:
        """Seconds until something is to be done if nothing comes."""
        now = time.monotonic()
        session = self.session
        wait = session.timer(now) if session and not self.membership.broken else inf
        for link in self.all_links:
            wait = min(wait, link.timer() - now, inf if link.connection is None else self.keepalive / 4)
            if link.connection is not None and not link.up:
                wait = min(wait, 1.0)
        return min(wait, self.herald.timer(now), self.membership.reopen_at - now)

    def serve(self, link: Link, now: float) -> bool:
        """Read and write; whether anything has come or changed that needs more than that."""
        connection, full, news = link.connection, False, False
        if connection is not None:
            full = connection.room <= 0
            if connection.wants_write:
                connection.write()
            for topic, payload in connection.read() if connection.ready else ():
                self.reception.receive(topic, payload)
                news = True
            connection.misc(now)
        if link.poll(now):
            self.neighbours.lost(link)
        if link.came_up():
            self.herald.announce_over(link)
        return news or full or link.connection is not connection or bool(self.herald.births)

    def save(self, now: float) -> None:
        session = self.session
        if session is None or self.membership.broken:
            return
        if links := [link.connection.chunk for link in self.all_links if link.connection is not None]:
            session.chunk = min(self.largest_chunk, *links)
        for child in self.presence.refusals if session.here else ():
            session.excuse(child)  # but where nobody could answer, rounds of nobody would use up the run
        self.membership.save(session, now)

    def send(self, now: float) -> None:
        if self.herald.births:
            self.herald.speak(self.membership.standing, self.presence, now)
        session = self.session
        if session is not None and not self.membership.broken:
            self.mail.post(session, now)

    # -- the end

    def finish(self) -> None:
        """Save, say goodbye, close."""
        if self.session is not None:
            self.session.calls.stop(GRACE)
            self.save(time.monotonic())
        if self.session is not None:  # the last call may have found that the run cannot be used here
            self.session.incoming.acknowledge_now()
        self.herald.births.clear()
        self.send(time.monotonic())
        self.herald.say_goodbye(self.membership.epoch)
        ways.close(self.all_links)
        self.membership.presence = Presence(self.children)
        self.report.write(time.monotonic())
        self.membership.leave()


def check_names(name: str, parent: str | None, children: Sequence[str]) -> None:
    for each in (name, *([parent] if parent is not None else []), *children):
        checked_name(each, "name")
        if each in RESERVED_NAMES:
            raise UsageError(f"name = {each!r} has a meaning of its own; choose another")
    if len({name, parent, *children}) < 2 + len(children):
        raise UsageError(f"{name}, its parent and its children must have different names")
