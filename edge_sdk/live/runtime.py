"""A live node: one select loop around its connections and the run that it works in.

One turn of the loop reads all there is, makes one commit for all of it, and publishes. So nothing leaves before it is
saved, and many messages share a commit.

What is read goes to `dispatcher.py`, and from there to the session or, where a peer speaks of itself, to
`neighbours.py`. `membership.py` decides in which run the node has a session. What leaves goes through `publisher.py`
(messages) and `announcer.py` (births, hellos, goodbyes).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk.contract.limits import Limits
from edge_sdk.contract.node import Node
from edge_sdk.contract.run import Run
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Assembly as Assembly
from edge_sdk.delivery.habits import Habits
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.store import Store
from edge_sdk.live.announcer import Announcer
from edge_sdk.live.changes import RequestedChanges
from edge_sdk.live.directory import NodeDirectory
from edge_sdk.live.dispatcher import Dispatcher
from edge_sdk.live.fleet_report import NOTHING, FleetReporter
from edge_sdk.live.gauges import CounterLog, name_peers, read_gauges
from edge_sdk.live.log_guard import guard_log
from edge_sdk.live.membership import GRACE, Membership
from edge_sdk.live.neighbours import Neighbours
from edge_sdk.live.node_names import check_names
from edge_sdk.live.permission import Permission
from edge_sdk.live.presence import Presence
from edge_sdk.live.publisher import Publisher
from edge_sdk.live.waiting_log import WaitingLog
from edge_sdk.live.willingness import Willingness
from edge_sdk.wire.addresses import Tls
from edge_sdk.wire.link import Backoff, Link
from edge_sdk.wire.links import LinkMaker, close_links, make_tls_contexts
from edge_sdk.wire.mqtt import LARGEST, Will
from edge_sdk.wire.waiter import Waiter

LONGEST_NAP = 60.0  # seconds
LOOK = 0.25  # seconds between two calls of `until`
OUTBOX = 256 * 1024 * 1024  # bytes of messages on their way


class Runtime:
    """A node on its brokers.

    Args:
        name: name of this node: its client id, and part of every topic.
        parent: name of the parent; None: this is the root.
        children: names of the nodes that may take part below.
        directory: holds all that this node remembers.
        broker: URL of the children's broker (for a device: of its hospital's).
        upstream: URL of the parent's broker, if it is another one.
        run: the training job; only the root has it from the start.
        assemble: run -> what to play in it. UsageError: the run cannot be used here.
        told: called with (increasing number, event) after the commit, at least once for each event of the role.
        told_refusal: called with the reason why this node cannot take part in the run that it is offered.
        check_run: called with each run that the parent offers. UsageError: it is not to be trusted.
        sizes: child -> how many devices the run counts on behind it; it is refused if its own settings differ.
        wait_for: children that must be here before the role starts; None: all.
        worker: calls of the role are made on a thread, so that the network never waits for them.
        durability, keepalive, version, largest_chunk: see wire/options.py.
        settle, rto, outbox_bytes, backoff: see delivery/habits.py and wire/link.py.
        figures: the node as it was last saved -> further gauges, by name.
        tls, upstream_tls: certificates for brokers at mqtts:// or wss://, the parent's where it has another authority.
        reports: what it reports of its children to a console, see fleet_report.py.
        willingness, permission: does this node want to train, and does its owner let the run go on? None: always.
        flexible: the number of devices may change while a run goes on: a child tells it, and a parent believes it.
        client: its client id, where other nodes of its name lead other children; "": the name, and it leads all.
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
        told_refusal: Callable[[str], None] = lambda why: None,
        check_run: Callable[[Run], None] = lambda run: None,
        sizes: Mapping[str, int] | None = None,
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
        figures: Callable[[Node], dict[str, float]] = lambda node: {},
        tls: Tls | None = None,
        upstream_tls: Tls | None = None,
        reports: str = NOTHING,
        willingness: Willingness | None = None,
        permission: Permission | None = None,
        flexible: bool = False,
        client: str = "",
        log: logging.Logger | None = None,
    ):
        check_names(name, parent, children, wait_for)
        self.name, self.parent, self.flexible, self.changes = name, parent, flexible, RequestedChanges()
        self.run_given, self.told, self.figures = run, told, figures
        least, self.waits_for_all = len(children) if wait_for is None else wait_for, wait_for is None
        self.habits = Habits(worker, least, settle, rto, outbox_bytes, addresses_each=bool(client))
        self.log, self.counters = guard_log(log or logging.getLogger("auscult.node")), Counters()
        self.counter_log = CounterLog(name, self.counters, self.gauges, self.log)
        self.waiting_log, self.reporter = WaitingLog(name, parent, self.log), FleetReporter(reports)
        self.directory, self.durability, self.keepalive = Path(directory), durability, keepalive
        self.largest_chunk, self.stopping = largest_chunk, False
        self.due = 0.0  # when something is to be done if nothing comes; 0: not known
        self.willingness, self.turned = willingness or Willingness(), inf  # the loop has not gone round yet
        self.permission, self.waiter, backoff = permission or Permission(), Waiter(), backoff or Backoff()
        contexts = make_tls_contexts(broker, upstream := upstream or broker, tls, upstream_tls)
        seams = (self.waiter.wake, self.make_will, self.log, client, lambda: self.children)
        maker = LinkMaker(name, contexts, keepalive, version, backoff, *seams)
        self.below, self.above = maker.make_links(parent, bool(children) or flexible, broker, upstream)
        self.publisher = Publisher(name, parent, self.below, self.above, self.counters, self.log)
        self.all_links, self.announcer = self.publisher.links, Announcer(self.publisher)
        self.membership = Membership(
            name, children, assemble, self.new_session, self.announcer, self.counters, self.log, told_refusal,
            check_run, flexible,
        )  # fmt: skip
        self.neighbours = Neighbours(self.membership, self.announcer, sizes or {}, self.habits, flexible, self.log)
        self.dispatcher = Dispatcher(name, parent, self.membership, self.neighbours, self.counters, self.log)

    def make_will(self, link: Link) -> Will:
        return self.announcer.make_will(link, self.membership.epoch)

    def new_session(self, run: Run, assembly: Assembly, store: Store) -> Session:
        args = (self.habits, self.counters, self.told, self.waiter.wake, self.log)
        return Session(self.name, self.parent, run, assembly, store, *args, frozenset(self.children))

    # -- how things stand

    @property
    def session(self) -> Session | None:
        """This node's part in its run; None outside a run."""
        return self.membership.session

    @property
    def children(self) -> tuple[str, ...]:
        """Names of those that may take part below."""
        return self.membership.children

    @property
    def presence(self) -> Presence:
        return self.membership.presence

    @property
    def holds_directory(self) -> bool:
        """The loop has been begun, so that no other process works in this node's directory."""
        return hasattr(self.membership, "directory")

    @property
    def current(self) -> Run | None:
        return self.membership.run

    @property
    def refusal(self) -> str:
        """Why this node cannot take part in the run that it was offered, or empty."""
        return self.membership.refusal

    @property
    def here(self) -> tuple[str, ...]:
        """Names of the children that count now."""
        return self.presence.here

    @property
    def node(self) -> Node | None:
        """The node as it was last saved; None outside a run."""
        return None if (session := self.session) is None else session.node

    @property
    def delivered(self) -> bool:
        """No message is waiting to be worked on, or to be acknowledged by a peer. A device's own clock may tick on."""
        return (s := self.session) is None or not (s.calls.jobs or any(s.outbox.pending.values()))

    def gauges(self) -> dict[str, float]:
        """Figures of this moment (see gauges.py). From any thread."""
        found = read_gauges(self.session, self.all_links, len(self.here))
        if (node := self.node) is not None and node.record.started:
            found |= self.figures(node)
        return found | self.waiting_log.gauges(time.monotonic()) | name_peers(self, self.dispatcher.heard_at)

    def waiting(self) -> dict[str, Any]:
        """What this node waits for, since when, and for whom (see waiting_log.py). From any thread."""
        return self.waiting_log.status(time.monotonic())

    # -- from any thread, also from a signal handler
    def stop(self) -> None:
        """Let `run` finish."""
        self.stopping = True
        self.waiter.wake()

    def wake(self) -> None:
        """Let the loop look at everything now. May be called from any thread."""
        self.due = self.willingness.at = 0.0
        self.waiter.wake()

    def change_waiting(self, run: Run) -> None:
        """Go on in the root's run as it is described now, where only how long is waited may differ. From any thread."""
        self.run_given = self.changes.run = run
        self.wake()

    def reconsider(self) -> None:
        """Try the run again that was refused: what stood against it may be gone. May be called from any thread."""
        self.membership.reconsider = True
        self.wake()

    def change(self, limits: Limits | None = None, children: tuple[str, ...] | None = None) -> None:
        """Go on with other limits, or other children; `assemble` has to say the same from now on. From any thread."""
        self.changes.limits = limits or self.changes.limits
        if children is not None:
            check_names(self.name, self.parent, children)
            self.habits.wait_for = len(children) if self.waits_for_all else self.habits.wait_for
            self.changes.children = children
        self.wake()

    def cancelled(self) -> bool:
        """A call of the role should give up (`errors.Cancelled`): a newer question waits, or the node stops."""
        return self.stopping or ((s := self.session) is not None and s.calls.is_cancelled)

    # -- the loop

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Work until `stop` is called or `until` says so. May be called again.

        Raises:
            UsageError: the run of the root cannot be used here, or another process works in the directory.
        """
        with ExitStack() as stack:
            self.membership.directory = stack.enter_context(closing(NodeDirectory(self.directory, self.durability)))
            stack.enter_context(self.waiter)
            stack.callback(self.drop_all)
            self.membership.begin_run(self.run_given)
            while not self.stopping and not (until is not None and until()):
                self.take_turn(LOOK if until is not None else inf)
            self.finish()

    def drop_all(self) -> None:
        """Close everything that is still open, however the loop has ended."""
        self.stopping = False
        for link in self.all_links:
            link.close()
        self.membership.drop_session()

    def take_turn(self, patience: float) -> None:
        """Wait for something to do, and do it."""
        woken = self.wait(patience)
        now = self.turned = time.monotonic()
        news = [self.serve_link(link, now) for link in self.all_links]
        if not (woken or any(news)) and now < self.due:
            return  # an acknowledgement of the broker, or nothing
        self.due = 0.0
        self.willingness.look(self.membership, self.announcer, now)
        self.permission.look(self.membership, now)
        self.changes.carry_out(self.membership, self.neighbours.update_here)
        self.membership.take_up_pending(now)
        self.save_session(now)
        self.publish_due(now)
        self.waiting_log.look(self.session, self.presence, now)
        self.reporter.publish_due(self, now)
        if now >= self.counter_log.due:
            self.counter_log.write(now)

    def wait(self, patience: float) -> bool:
        """Sleep until something comes or is due; True: another thread has woken us."""
        if not self.due:
            self.due = time.monotonic() + min(LONGEST_NAP, self.get_timer())
        connections = [link.connection for link in self.all_links if link.connection is not None]
        return self.waiter.wait(connections, patience, self.due)

    def get_timer(self) -> float:
        """Seconds until something is to be done if nothing comes."""
        now, session = time.monotonic(), self.session
        wait = session.get_timer(now) if session and not self.membership.is_broken else inf
        for link in self.all_links:
            wait = min(wait, link.get_timer() - now, inf if link.connection is None else self.keepalive / 4)
            if link.connection is not None and not link.up:
                wait = min(wait, 1.0)
        ats = self.membership.reopen_at, self.willingness.at, self.permission.at, self.reporter.look_at
        return min(wait, self.announcer.get_timer(now), min(ats) - now)

    def serve_link(self, link: Link, now: float) -> bool:
        """Read from and write to a connection; True if something has come or changed that needs more than that."""
        connection, full, news = link.connection, False, False
        if connection is not None:
            full = connection.room <= 0
            if connection.wants_write:
                connection.write()
            for topic, payload in connection.read() if connection.ready else ():
                self.dispatcher.take_payload(topic, payload)
                news = True
            if connection.retained:
                self.counters.count("refused.retained.?", connection.retained)
                connection.retained = 0
            connection.check_health(now)
        if link.poll(now):
            self.neighbours.handle_lost_link(link)
        if link.has_come_up():
            self.announcer.announce_over(link)
        return news or full or link.connection is not connection or bool(self.announcer.births)

    def save_session(self, now: float) -> None:
        if (session := self.session) is None or self.membership.is_broken:
            return
        chunks = [link.connection.chunk for link in self.all_links if link.connection is not None]
        session.chunk = min(self.largest_chunk, *chunks) if chunks else session.chunk
        for child in tuple(self.presence.refusals) if session.members.present else ():
            session.excuse_child(child)  # but not where nobody is left: rounds without anybody would use up the run
        self.membership.save_session(session, now)

    def publish_due(self, now: float) -> None:
        if self.announcer.births:
            self.announcer.publish_births(self.membership.standing, self.presence, now)
        if (session := self.session) is not None and not self.membership.is_broken:
            self.publisher.publish_due(session, now)

    def finish(self) -> None:
        """Save, say goodbye, close."""
        if self.session is not None:
            self.session.calls.stop(GRACE)
            self.save_session(time.monotonic())
        if self.session is not None:  # the last call may have found that the run cannot be used here
            self.session.incoming.acknowledge_now()
        self.announcer.births.clear()
        self.publish_due(time.monotonic())
        self.announcer.publish_goodbye(self.membership.standing)
        close_links(self.all_links)
        self.membership.presence = Presence(self.children)
        self.counter_log.write(time.monotonic())
        self.membership.leave_run()
