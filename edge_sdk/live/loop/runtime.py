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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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
from edge_sdk.live.loop.fleet_report import NOTHING, FleetReporter
from edge_sdk.live.loop.gauges import CounterLog, name_peers, read_gauges
from edge_sdk.live.loop.lane import LaneWork, Surroundings, nothing_told
from edge_sdk.live.loop.log_guard import guard_log
from edge_sdk.live.loop.node_lanes import NodeLanes
from edge_sdk.live.membership.permission import Permission
from edge_sdk.live.membership.willingness import Willingness
from edge_sdk.live.presence.node_names import check_names
from edge_sdk.live.presence.presence import Presence
from edge_sdk.wire.addresses import Tls
from edge_sdk.wire.known_broker import KnownBrokers
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
        durability, keepalive, version, messages_per_second, largest_chunk: see wire/options.py.
        settle, rto, outbox_bytes, backoff: see delivery/habits.py and wire/link.py.
        figures: the node as it was last saved -> further gauges, by name.
        tls, upstream_tls: certificates for brokers at mqtts:// or wss://, the parent's where it has another authority.
        reports: what it reports of its children to a console, see fleet_report.py.
        willingness, permission: does this node want to train, and does its owner let the run go on? None: always.
        flexible: the number of devices may change while a run goes on: a child tells it, and a parent believes it.
        client: its client id, where other nodes of its name lead other children; "": the name, and it leads all.
        lane: number of the lane that it works in: above 0, beside other nodes of its name at the same children.
        beside: number of a lane -> what it does there, beside the main one; only where `lane` is 0.
        trainings: number of a lane -> a further training in it, for other children than those of the main lane.
        choose: run -> the children that it is for; with it trainings share the children, see shared_children.py.
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
        told: Callable[[int, Any], None] = nothing_told,
        told_refusal: Callable[[str], None] = lambda why: None,
        check_run: Callable[[Run], None] = lambda run: None,
        sizes: Mapping[str, int] | None = None,
        wait_for: int | None = None,
        worker: bool = True,
        durability: str = "normal",
        keepalive: int = 30,
        version: int | None = None,
        messages_per_second: float | None = None,
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
        lane: int = 0,
        beside: Mapping[int, LaneWork] | None = None,
        trainings: Mapping[int, LaneWork] | None = None,
        choose: Callable[[Run], Sequence[str]] | None = None,
        log: logging.Logger | None = None,
    ):
        check_names(name, parent, children, wait_for)
        self.name, self.parent, self.flexible = name, parent, flexible
        self.run_given, self.figures = run, figures
        least = len(children) if wait_for is None else wait_for
        self.habits = Habits(worker, least, settle, rto, outbox_bytes, addresses_each=bool(client))
        self.log, self.counters = guard_log(log or logging.getLogger("auscult.node")), Counters()
        self.counter_log = CounterLog(name, self.counters, self.gauges, self.log)
        self.reporter = FleetReporter(reports)
        self.directory, self.keepalive, self.stopping = Path(directory), keepalive, False
        self.due = 0.0  # when something is to be done if nothing comes; 0: not known
        self.turned = inf  # the loop has not gone round yet
        self.waiter, backoff = Waiter(), backoff or Backoff()
        contexts = make_tls_contexts(broker, upstream := upstream or broker, tls, upstream_tls)
        seams = (self.waiter.wake, self.make_will, self.log, client, lambda: self.children, lane)
        brokers = KnownBrokers(self.directory, version, self.log)
        maker = LinkMaker(name, contexts, keepalive, brokers, backoff, *seams, messages_per_second)
        self.below, self.above = maker.make_links(parent, bool(children) or flexible, broker, upstream)
        own = (willingness or Willingness(), permission or Permission())
        work = LaneWork(self.directory, assemble, told, told_refusal, check_run, *own)
        around = Surroundings(
            name, parent, tuple(children), self.below, self.above, sizes or {}, flexible, self.habits, durability,
            largest_chunk, self.counters, self.waiter.wake, self.log,
        )  # fmt: skip
        self.of_lanes = NodeLanes(lane, work, around, beside or {}, trainings or {}, wait_for, choose)
        self.main, self.lanes = self.of_lanes.main, self.of_lanes.all
        main = self.main
        self.publisher, self.announcer, self.membership = main.publisher, main.announcer, main.membership
        self.neighbours, self.dispatcher, self.changes = main.neighbours, main.dispatcher, main.changes
        self.willingness, self.permission, self.waiting_log = main.willingness, main.permission, main.waiting_log
        self.all_links = self.publisher.links

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
            wait = min(wait, link.get_timer() - now, inf if link.connection is None else self.keepalive / 4)
            if (connection := link.connection) is not None:
                wait = min(wait, connection.quota.get_pause(now), inf if link.up else 1.0)
        return min(wait, self.reporter.look_at - now)

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
