"""A live node: one select loop around its connections and the run that it works in.

One turn of the loop reads all there is, makes one commit for all of it, and publishes. So nothing leaves before it is
saved, and many messages share a commit.

What is read goes to `membership/dispatcher.py`, and from there to the session or, where a peer speaks of itself, to
`membership/neighbours.py`. `membership/membership.py` decides in which run the node has a session. What leaves goes
through `presence/publisher.py` (messages) and `presence/announcer.py` (births, hellos, goodbyes). A node has these once
for each of its lanes (`lane.py`): as a rule there is one, and further ones are for runs beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, Any

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.live.loop.gauges import CounterLog, name_peers, read_gauges
from edge_sdk.live.loop.lane import LaneWork as LaneWork
from edge_sdk.live.loop.log_guard import guard_log
from edge_sdk.live.loop.node_lanes import ONE_LANE, NodeLanes
from edge_sdk.live.loop.node_lanes import LaneSettings as LaneSettings
from edge_sdk.live.loop.node_settings import NO_REPORTS, NOTHING, check_names
from edge_sdk.live.loop.node_settings import Reporting as Reporting
from edge_sdk.live.loop.node_settings import Transport as Transport
from edge_sdk.live.loop.node_settings import TreePlace as TreePlace
from edge_sdk.live.membership.surroundings import Surroundings
from edge_sdk.live.presence.presence import Presence
from edge_sdk.wire.known_broker import KnownBrokers
from edge_sdk.wire.link import Link
from edge_sdk.wire.links import LinkMaker, close_links, make_tls_contexts
from edge_sdk.wire.mqtt import LARGEST, Will
from edge_sdk.wire.waiter import Waiter

if TYPE_CHECKING:
    from edge_sdk.contract.node import Node
    from edge_sdk.delivery.roles.engine import Assembly as Assembly
    from edge_sdk.delivery.session import Session
    from edge_sdk.live.loop.fleet_report import FleetReporter

LONGEST_NAP = 60.0  # seconds
LOOK = 0.25  # seconds between two calls of `until`
OUTBOX = 256 * 1024 * 1024  # bytes of messages on their way


class Runtime:
    """A node on its brokers.

    Args:
        name: name of this node: its client id, and part of every topic.
        work: what it does in its main lane.
        place: its parent and its children.
        transport: its brokers.
        lanes: what it does beside that, and whether others of its name go on beside it.
        worker: calls of the role are made on a thread, so that the network never waits for them.
        reporting: what it says of itself and of its children.
    """

    def __init__(
        self,
        name: str,
        work: LaneWork,
        *,
        place: TreePlace,
        transport: Transport,
        lanes: LaneSettings = ONE_LANE,
        worker: bool = True,
        reporting: Reporting = NO_REPORTS,
        log: logging.Logger | None = None,
    ):
        parent, children, wire = place.parent, tuple(place.children), transport.wire
        check_names(name, parent, children, place.wait_for)
        self.name, self.parent, self.flexible = name, parent, place.flexible
        self.run_given, self.figures = work.run, reporting.figures
        self.habits = Habits(
            worker=worker,
            wait_for=len(children) if place.wait_for is None else place.wait_for,
            waits_for_able=place.wait_for is None,
            wait_seconds=transport.wait_seconds,
            rto=transport.rto,
            outbox_bytes=OUTBOX if wire.outbox_bytes is None else wire.outbox_bytes,
            addresses_each=bool(lanes.client),
        )
        self.log, self.counters = guard_log(log or logging.getLogger("auscult.node")), Counters()
        self.counter_log = CounterLog(name, self.counters, self.gauges, self.log)
        self.reporter = None if reporting.reports == NOTHING else make_reporter(reporting.reports)
        self.directory, self.keepalive, self.stopping = work.directory, wire.keepalive, False
        self.due = 0.0  # when something is to be done if nothing comes; 0: not known
        self.turned = inf  # the loop has not gone round yet
        self.waiter = Waiter()
        self.below, self.above = self.make_links(place, transport, lanes)
        around = Surroundings(
            name=name,
            parent=parent,
            children=children,
            below=self.below,
            above=self.above,
            sizes=place.sizes,
            flexible=place.flexible,
            habits=self.habits,
            durability=wire.durability,
            largest_chunk=LARGEST if wire.largest_chunk is None else wire.largest_chunk,
            counters=self.counters,
            wake=self.waiter.wake,
            log=self.log,
        )
        self.of_lanes = NodeLanes(work, around, lanes, place.wait_for)
        self.main, self.lanes = self.of_lanes.main, self.of_lanes.all
        main = self.main
        self.publisher, self.announcer, self.membership = main.publisher, main.announcer, main.membership
        self.neighbours, self.dispatcher, self.changes = main.neighbours, main.dispatcher, main.changes
        self.willingness, self.permission, self.waiting_log = main.willingness, main.permission, main.waiting_log
        self.all_links = self.publisher.links

    def make_links(
        self, place: TreePlace, transport: Transport, lanes: LaneSettings
    ) -> tuple[Link | None, Link | None]:
        """The links to the children and to the parent; see `LinkMaker.make_links`."""
        broker, upstream = transport.broker, transport.upstream or transport.broker
        maker = LinkMaker(
            name=self.name,
            contexts=make_tls_contexts(broker, upstream, transport.wire.tls, transport.above.tls),
            keepalive=self.keepalive,
            brokers=KnownBrokers(self.directory, transport.wire.version, self.log),
            backoff=transport.backoff,
            wake=self.waiter.wake,
            will=self.make_will,
            log=self.log,
            client=lanes.client,
            children=lambda: self.children,
            lane=lanes.lane,
            per_second=transport.wire.messages_per_second,
        )
        return maker.make_links(place.parent, bool(place.children) or place.flexible, broker, upstream)

    def make_will(self, link: Link) -> Will:
        """The will of a new connection: that of the main lane, which says it for all."""
        will = self.announcer.make_will(link, self.membership.epoch)
        for lane in self.lanes[1:]:
            lane.announcer.begin_connection(link, self.announcer.sessions[link])
        return will

    # -- how things stand

    @property
    def session(self) -> Session | None:
        """This node's part in its run; None outside a run."""
        return self.membership.session

    @property
    def children(self) -> tuple[str, ...]:
        """Names of those that may take part below."""
        return self.of_lanes.children

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
        return self.of_lanes.here

    @property
    def node(self) -> Node | None:
        """The node as it was last saved; None outside a run."""
        return None if (session := self.session) is None else session.node

    @property
    def delivered(self) -> bool:
        """No message is waiting to be worked on, or to be acknowledged by a peer. A device's own clock may tick on."""
        return all(lane.delivered for lane in self.lanes)

    def gauges(self) -> dict[str, float]:
        """Figures of this moment (see gauges.py). From any thread."""
        found = read_gauges(self.session, self.all_links, len(self.here))
        if (node := self.node) is not None and node.record.started:
            found |= self.figures(node)
        return found | self.waiting_log.gauges(time.monotonic()) | name_peers(self, self.dispatcher.heard_at)

    def waiting(self) -> dict[str, Any]:
        """What this node waits for, since when, and for whom (see membership/waiting_log.py). From any thread."""
        return self.waiting_log.status(time.monotonic())

    # -- from any thread, also from a signal handler
    def stop(self) -> None:
        """Let `run` finish."""
        self.stopping = True
        self.waiter.wake()

    def wake(self) -> None:
        """Let the loop look at everything now. May be called from any thread."""
        self.due = 0.0
        for lane in self.lanes:
            lane.willingness.at = 0.0
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
        if children is not None:
            check_names(self.name, self.parent, children)
        self.of_lanes.change(limits, children)
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
            stack.enter_context(self.waiter)
            stack.callback(self.drop_all)
            for lane in self.lanes:
                lane.open(stack, self.run_given if lane is self.main else None)
            while not self.stopping and not (until is not None and until()):
                self.take_turn(LOOK if until is not None else inf)
            self.finish()

    def drop_all(self) -> None:
        """Close everything that is still open, however the loop has ended."""
        self.stopping = False
        for link in self.all_links:
            link.close()

    def take_turn(self, patience: float) -> None:
        """Wait for something to do, and do it."""
        woken = self.wait(patience)
        now = self.turned = time.monotonic()
        news = [self.serve_link(link, now) for link in self.all_links]
        if not (woken or any(news)) and now < self.due:
            return  # an acknowledgement of the broker, or nothing
        self.due = 0.0
        for lane in self.lanes:
            lane.take_turn(now)
        if self.reporter is not None:
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
        now = time.monotonic()
        wait = min(lane.get_timer(now) for lane in self.lanes)
        for link in self.all_links:
            wait = min(wait, link.get_timer() - now, inf if link.connection is None else link.connection.keepalive / 4)
            if (connection := link.connection) is not None:
                wait = min(wait, connection.quota.get_pause(now), inf if link.up else 1.0)
        return wait if self.reporter is None else min(wait, self.reporter.look_at - now)

    def serve_link(self, link: Link, now: float) -> bool:
        """Read from and write to a connection; True if something has come or changed that needs more than that."""
        connection, full, news = link.connection, False, False
        if connection is not None:
            full = connection.room <= 0
            if connection.wants_write:
                connection.write()
            for topic, payload in connection.read() if connection.ready else ():
                self.of_lanes.find_dispatcher(topic).take_payload(topic, payload)
                news = True
            if connection.retained:
                self.counters.count("refused.retained.?", connection.retained)
                connection.retained = 0
            if connection.client.oversized:
                self.counters.count("refused.oversized.?", connection.client.oversized)
                connection.client.oversized = 0
            connection.check_health(now)
        if link.poll(now):
            for lane in self.lanes:
                lane.neighbours.handle_lost_link(link)
        if link.has_come_up():
            for lane in self.lanes:
                lane.announcer.announce_over(link)
        due = any(lane.announcer.births for lane in self.lanes)
        return news or full or link.connection is not connection or due

    def finish(self) -> None:
        """Save, say goodbye, close."""
        for lane in self.lanes:
            lane.finish()
        close_links(self.all_links)
        self.counter_log.write(time.monotonic())
        for lane in self.lanes:
            lane.leave()


def make_reporter(level: str) -> FleetReporter:
    """What reports of a node's children."""
    from edge_sdk.live.loop.fleet_report import FleetReporter  # of nodes with a console, which devices are not

    return FleetReporter(level)
