"""A live node: one select loop around its connections, its session and its presence.

One turn of the loop: read all there is, one commit for all of it, publish. So nothing leaves before it is saved, and
many messages share a commit. Whatever a peer sends, it costs that message and a line in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk import topics
from edge_sdk.counters import Counters
from edge_sdk.desk import Desk, decode_run, encode_run
from edge_sdk.engine import Assembly as Assembly
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.frames import Acks, Birth, Chunk, Frame, Hello, Message, Offer, Parts, unpack
from edge_sdk.herald import Herald, Standing
from edge_sdk.link import Backoff, Link
from edge_sdk.mail import Mail
from edge_sdk.method import RESERVED_NAMES
from edge_sdk.mqtt import LARGEST, Connection, Tls, broker_at
from edge_sdk.node import Node
from edge_sdk.presence import Presence
from edge_sdk.run import Run, checked_name
from edge_sdk.session import Habits, Session
from edge_sdk.store import DiskError
from edge_sdk.topics import ALL, BIRTHS, MESSAGES
from edge_sdk.waiting import Waiter

GRACE = 5.0  # seconds that a call may take to notice that the node is stopping
FLUSH = 2.0  # seconds to get the last bytes out
LONGEST_NAP = 60.0  # seconds
LOOK = 0.25  # seconds between two looks at `until`
DISK = 1.0  # seconds to wait after a commit that failed
OUTBOX = 256 * 1024 * 1024  # bytes
REPORTS_APART = 60.0  # seconds between two lines of counters in the log


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
        self.run_given, self.assemble, self.told = run, assemble, told
        self.keepalive, self.version, self.backoff = keepalive, version, backoff or Backoff()
        self.habits = Habits(worker, len(children) if wait_for is None else wait_for, settle, rto, outbox_bytes)
        self.log = log or logging.getLogger("auscult.node")
        self.counters, self.presence = Counters(), Presence(children)
        self.largest_chunk = largest_chunk
        self.session: Session | None = None
        self.refusal, self.refused_run = "", b""
        self.next_run: Run | None = None
        self.stopping = False
        self.announced = False
        self.reopen_at = inf
        self.due = 0.0  # when something is to be done if nothing comes; 0: not known
        self.reported: tuple[float, dict[str, int]] = (time.monotonic(), {})  # when, and what the log said then
        self.waiter = Waiter()
        theirs = upstream_tls or tls
        trusted = {upstream or broker: theirs, broker: tls}  # one broker for both: tls
        self.tls = {url: (by or Tls()).context() for url, by in trusted.items() if broker_at(url).tls}
        self.below, self.above = self.links(broker, upstream or broker)
        self.mail = Mail(name, parent, self.below, self.above, self.counters, self.log)
        self.all_links = self.mail.links
        self.herald = Herald(self.mail)

    def links(self, broker: str, upstream: str) -> tuple[Link | None, Link | None]:
        """The ways to the children and to the parent; one and the same where they share a broker."""
        here, there = broker_at(broker), broker_at(upstream)
        mine = topics.of_children(self.name) if self.children else ()
        parents = topics.of_parent(self.parent, self.name) if self.parent else ()
        if self.children and self.parent and here == there:
            link = self.link(broker, (*parents, *mine))
            return link, link
        below = self.link(broker, mine) if self.children else None
        return below, self.link(upstream, parents) if self.parent else None

    def link(self, url: str, subscriptions: Sequence[str]) -> Link:
        broker = broker_at(url)

        def connect() -> Connection:
            will = self.herald.will(link, self.epoch)
            tls = self.tls.get(url)
            return Connection(broker, self.name, subscriptions, will, self.keepalive, self.version, tls)

        link = Link(connect, self.waiter.wake, self.backoff, self.log)
        return link

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.store.epoch

    @property
    def current(self) -> Run | None:
        return None if self.session is None else self.session.run

    @property
    def standing(self) -> Standing:
        return Standing(self.epoch, self.current, self.session is not None and self.session.ready, self.refusal)

    @property
    def here(self) -> tuple[str, ...]:
        """Children that count now."""
        return self.presence.here

    @property
    def node(self) -> Node | None:
        """As it was last saved; None outside a run."""
        return None if self.session is None else self.session.node

    @property
    def delivered(self) -> bool:
        """No message is waiting to be worked on, or to be acknowledged by a peer. A device's own clock may tick on."""
        s = self.session
        return s is None or not (s.jobs or any(s.outbox.pending.values()))

    def gauges(self) -> dict[str, float]:
        """How things stand, for `metrics`. May be called from any thread; then a figure may be of a moment ago."""
        session, links = self.session, [link for link in self.all_links if link.up]
        found: dict[str, float] = {"links_up": len(links), "children_here": len(self.presence.here)}
        found["unacknowledged_publishes"] = sum(len(c.flying) for link in links if (c := link.connection))
        found["round_trip_seconds"] = max((c.trip for link in links if (c := link.connection)), default=0.0)
        if session is not None:
            found["outbox_bytes"] = session.outbox.bytes
            found["jobs_waiting"] = len(session.jobs)
            found["messages_unacknowledged"] = sum(len(seqs) for seqs in list(session.outbox.pending.values()))
            found["transfers_out"] = len(session.sender.bodies)
            found["transfers_in"] = len(session.receiver.parts)
            found["round"] = session.node.record.below.number
            found["debts"] = len(session.node.record.below.owed)
        return found

    # -- from any thread

    def stop(self) -> None:
        """Finish cleanly. May be called from any thread and from a signal handler."""
        self.stopping = True
        self.waiter.wake()

    def cancelled(self) -> bool:
        """A call of the role should give up (`errors.Cancelled`): a newer question waits, or the node is stopping."""
        session = self.session
        return self.stopping or (session is not None and session.cancelled)

    # -- the loop

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Work until `stop` is called or `until` says so. May be called again.

        Raises:
            UsageError: the run of the root cannot be used here, or another process works in the directory.
        """
        with ExitStack() as stack:
            self.desk = stack.enter_context(closing(Desk(self.directory, self.durability)))
            stack.enter_context(self.waiter)
            stack.callback(self.drop)
            self.begin()
            while not self.stopping and not (until is not None and until()):
                self.turn(LOOK if until is not None else inf)
            self.finish()

    def drop(self) -> None:
        """Let go of everything that is still open, however the loop has ended."""
        self.stopping = False
        for link in self.all_links:
            link.close()
        if self.session is not None:
            self.session.store.close()
            self.session = None

    def begin(self) -> None:
        if self.run_given is not None:
            self.open(self.run_given, self.assemble(self.run_given))
        elif (run := self.desk.current()) is not None:
            self.use(run)

    def turn(self, patience: float) -> None:
        """Wait for something to do, and do it."""
        woken = self.wait(patience)
        now = time.monotonic()
        news = [self.serve(link, now) for link in self.all_links]
        if not (woken or any(news)) and now < self.due:
            return  # an acknowledgement of the broker, or nothing
        self.due = 0.0
        self.renew(now)
        self.save(now)
        self.send(now)
        if now >= self.reported[0] + REPORTS_APART:
            self.report(now)

    def report(self, now: float) -> None:
        """What has been counted, as a line in the log, where that has changed."""
        totals = self.counters.totals()
        if totals != self.reported[1]:
            gauges = {name: f"{value:g}" for name, value in self.gauges().items() if value}
            self.log.info("%s: counters: %s", self.name, " ".join(f"{k}={v}" for k, v in {**totals, **gauges}.items()))
        self.reported = now, totals

    def wait(self, patience: float) -> bool:
        """Until something comes or is due; whether another thread has woken us."""
        if not self.due:
            self.due = time.monotonic() + min(LONGEST_NAP, self.timer())
        connections = [link.connection for link in self.all_links if link.connection is not None]
        return self.waiter.wait(connections, patience, self.due)

    def timer(self) -> float:
        """Seconds until something is to be done if nothing comes."""
        now = time.monotonic()
        wait = self.session.timer(now) if self.session else inf
        for link in self.all_links:
            wait = min(wait, link.timer() - now, inf if link.connection is None else self.keepalive / 4)
            if link.connection is not None and not link.up:
                wait = min(wait, 1.0)
        return min(wait, self.herald.timer(now), self.reopen_at - now)

    def serve(self, link: Link, now: float) -> bool:
        """Read and write; whether anything has come or changed that needs more than that."""
        connection, full, news = link.connection, False, False
        if connection is not None:
            full = connection.room <= 0
            if connection.wants_write:
                connection.write()
            for topic, payload in connection.read() if connection.ready else ():
                self.receive(topic, payload)
                news = True
            connection.misc(now)
        if link.poll(now):
            self.lost(link)
        if link.came_up():
            self.herald.announce_over(link)
        return news or full or link.connection is not connection or bool(self.herald.births)

    def lost(self, link: Link) -> None:
        self.herald.lost(link)
        if link is self.below:
            for child in self.presence.joined:
                self.unreachable(child)
            self.presence.lost_children()
        if link is self.above and self.parent:
            self.unreachable(self.parent)
            self.presence.lost_parent()
        self.children_changed()

    def unreachable(self, peer: str) -> None:
        if self.session is not None:
            self.session.outbox.went(peer)
            self.session.sender.went(peer)

    # -- what comes in

    def receive(self, topic: str, payload: bytes) -> None:
        """One payload; never raises because of it."""
        sender = "?"
        try:
            place = topics.parse(topic)
            frame = self.checked(place, unpack(payload))
            sender = place.sender
            self.counters.traffic("in", sender, len(payload))
            self.handle(frame, broadcast=place.child == ALL)
        except PeerError as e:
            self.refuse("malformed", sender, f"{topic}: {e}")
        except (DiskError, OSError) as e:
            self.disk_failed(e)

    def refuse(self, reason: str, sender: str, why: str) -> None:
        self.counters.count(f"refused.{reason}.{sender}")
        self.log.warning("%s: dropped a frame: %s", self.name, why)

    def checked(self, place: topics.Place, frame: Frame) -> Frame:
        """The frame, if it may come this way from whom it says."""
        if place.upward:
            known = place.parent == self.name and place.child in self.presence.expected
        else:
            known = place.parent == self.parent and place.child in (self.name, ALL)
        if not known:
            raise PeerError(f"{place.sender} is a stranger")
        if frame.src != place.sender:
            raise PeerError(f"the frame says that it is from {frame.src!r}")
        control = isinstance(frame, Birth) or (isinstance(frame, Hello) and not place.upward)
        if place.channel != (BIRTHS if control else MESSAGES) or (isinstance(frame, Hello) and place.upward):
            raise PeerError(f"a {type(frame).__name__} does not come here")
        return frame

    def handle(self, frame: Frame, broadcast: bool) -> None:
        if isinstance(frame, Birth):
            if broadcast:
                self.parent_born(frame)
            else:
                self.child_born(frame)
        elif isinstance(frame, Hello):
            self.greeted(frame)
        elif self.reopen_at < inf:
            self.counters.count(f"refused.disk.{frame.src}")
        elif self.session is None or frame.run != self.session.run.id:
            self.counters.count(f"refused.run.{frame.src}")
        elif isinstance(frame, Parts):
            self.session.take_reports(frame.src, frame.parts)
        else:
            self.session.take_acks(frame.src, frame.acks)
            if not isinstance(frame, Acks):
                self.take(frame, broadcast)

    def take(self, m: Message | Chunk | Offer, broadcast: bool) -> None:
        assert self.session is not None
        if broadcast and not (self.presence.parent and self.presence.parent.here):
            self.counters.count(f"refused.early.{m.src}")  # said to those who were there before us
            return
        verdict = self.session.take(m) if isinstance(m, Message) else self.session.take_piece(m)
        if verdict == "duplicate":
            self.counters.count(f"duplicate{'_chunk' if isinstance(m, Chunk) else ''}.{m.src}")
        elif verdict not in ("new", "offer"):
            self.counters.count(f"refused.{verdict}.{m.src}")

    # -- who is here

    def child_born(self, birth: Birth) -> None:
        if birth.gone:
            if self.presence.died(birth):
                self.log.info("%s: %s is gone", self.name, birth.src)
                self.unreachable(birth.src)
                self.children_changed()
            return
        run = self.session.run.id if self.session else ""
        child, before = self.presence.born(birth, run)
        if child.refusal and (before is None or before.refusal != child.refusal):
            self.log.warning("%s: %s cannot take part: %s", self.name, birth.src, child.refusal)
        self.herald.greet(birth, child.ready, self.standing)
        if self.session is not None and child.joined:
            self.session.meet(birth.src, child.epoch)
            if before is None or not before.joined or before.session != child.session:
                self.session.outbox.came(birth.src)
        elif before is not None and before.joined:
            self.unreachable(birth.src)
        self.children_changed()

    def children_changed(self) -> None:
        if self.session is not None:
            self.session.here = self.presence.here

    def parent_born(self, birth: Birth) -> None:
        """The parent is there (again), or has gone."""
        assert self.parent and self.above
        if birth.gone:
            self.presence.lost_parent()
            self.unreachable(self.parent)
        else:
            self.herald.announce_over(self.above)

    def greeted(self, hello: Hello) -> None:
        """The parent's answer to our birth: perhaps with a run, and from now on it can be sent messages."""
        assert self.parent and self.above
        first = self.presence.hello(hello)
        self.herald.answered()
        if hello.body and hello.run != (self.session.run.id if self.session else ""):
            self.offered(hello)
        elif self.session is not None and hello.run == self.session.run.id:
            self.session.meet(hello.src, hello.epoch)
            if first or self.parent not in self.session.outbox.present:
                self.session.outbox.came(self.parent)

    def offered(self, hello: Hello) -> None:
        body = bytes(hello.body)
        if body != self.refused_run:
            run = decode_run(body)
            if run.id != hello.run:
                raise PeerError(f"hello names run {hello.run!r} and brings {run.id!r}")
            self.refused_run, self.next_run = body, run  # once only, unless it can be used

    # -- the run

    def renew(self, now: float) -> None:
        """Take up a run that has come from the parent, or open the present one again after its disk failed."""
        if self.next_run is not None and (self.session is None or not self.session.busy):
            run, self.next_run = self.next_run, None
            self.use(run)
        elif self.next_run is not None and self.session is not None:
            self.session.stopping = True  # the call in progress is for nothing
        if now >= self.reopen_at and self.session is not None:
            self.reopen_at = inf
            self.reopen()

    def use(self, run: Run) -> None:
        """Begin or resume a run; one that cannot be used leaves the node idle, and the parent hears why."""
        self.leave()
        try:
            self.open(run, self.assemble(run))
        except UsageError as e:
            self.refusal = f"run {run.id}: {e}"
            self.log.error("%s: %s", self.name, self.refusal)
        self.herald.announce()

    def open(self, run: Run, assembly: Assembly) -> None:
        store = self.desk.open(run)
        saved = store.counters()
        if not self.counters.get("commits"):
            self.counters.restore(saved)
        args = (self.habits, self.counters, self.told, self.waiter.wake, self.log)
        self.session = Session(self.name, self.parent, run, assembly, store, *args)
        self.refusal, self.refused_run, self.announced = "", b"", self.session.ready
        self.presence = Presence(self.children)
        self.log.info("%s: run %s %s", self.name, run.id, "resumed" if self.session.restarted else "opened")

    def leave(self) -> None:
        if self.session is not None:
            try:
                self.session.close(GRACE)
            except (DiskError, OSError) as e:
                self.log.error("%s: the last changes are not saved: %s", self.name, e)
                self.session.store.close()
            self.session = None

    def reopen(self) -> None:
        """Memory is a copy of the disk: after a commit that failed it is made again."""
        assert self.session is not None
        session, self.session = self.session, None
        session.stopping = True
        if session.worker is not None:
            session.worker.close(GRACE)
        session.store.close()
        try:
            self.open(session.run, session.assembly)
        except (UsageError, DiskError, OSError) as e:
            self.log.error("%s: %s", self.name, e)
            self.session, self.reopen_at = session, time.monotonic() + DISK
        self.herald.announce()

    # -- what goes out

    def save(self, now: float) -> None:
        if self.session is None or self.reopen_at < inf:
            return
        if links := [link.connection.chunk for link in self.all_links if link.connection is not None]:
            self.session.chunk = min(self.largest_chunk, *links)
        for child in self.presence.refusals if self.session.here else ():
            self.session.excuse(child)  # but where nobody could answer, rounds of nobody would use up the run
        try:
            self.session.commit(now)
        except (DiskError, OSError) as e:
            self.disk_failed(e)
        if self.session is not None and self.session.unusable:
            return self.give_up(self.session.unusable)
        if self.session.ready != self.announced:
            self.announced = self.session.ready
            self.herald.announce()

    def give_up(self, why: str) -> None:
        """The role has found that the run cannot be used here: as if that had been seen when it came."""
        assert self.session is not None
        run = self.session.run
        self.refusal, refused = f"run {run.id}: {why}", encode_run(run)
        self.log.error("%s: %s", self.name, self.refusal)
        self.leave()
        self.refused_run = refused
        self.herald.announce()

    def disk_failed(self, why: Exception) -> None:
        """What was not saved was not acknowledged either, so it comes again."""
        self.counters.count("disk_failed")
        self.log.error("%s: cannot save (%s); nothing is taken in until that is over", self.name, why)
        self.reopen_at = time.monotonic() + DISK

    def send(self, now: float) -> None:
        if self.herald.births:
            self.herald.speak(self.standing, self.presence, now)
        if self.session is not None and self.reopen_at == inf:
            self.mail.post(self.session, now)

    # -- the end

    def finish(self) -> None:
        """Save, say goodbye, close."""
        if self.session is not None:
            self.session.stopping = True
            if self.session.worker is not None:
                self.session.worker.close(GRACE)
            self.save(time.monotonic())
            self.session.ack_at = min(self.session.ack_at, 0.0) if self.session.acks else inf
        self.herald.births.clear()
        self.send(time.monotonic())
        self.herald.say_goodbye(self.epoch)
        self.close_links()
        self.report(time.monotonic())
        self.leave()

    def close_links(self) -> None:
        """With the last bytes out, if they go at once."""
        end = time.monotonic() + FLUSH
        for link in self.all_links:
            while link.connection and link.connection.wants_write and not link.connection.lost:
                if time.monotonic() > end:
                    break
                link.connection.write()
                time.sleep(0.001)
            link.close()
        self.presence = Presence(self.children)


def check_names(name: str, parent: str | None, children: Sequence[str]) -> None:
    for each in (name, *([parent] if parent is not None else []), *children):
        checked_name(each, "name")
        if each in RESERVED_NAMES:
            raise UsageError(f"name = {each!r} has a meaning of its own; choose another")
    if len({name, parent, *children}) < 2 + len(children):
        raise UsageError(f"{name}, its parent and its children must have different names")
