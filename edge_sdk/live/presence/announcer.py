"""Publishes what a node says of itself: births when it has come or changed, hellos to its children, a goodbye.

A birth tells the whole state of affairs and not what has changed, so it may be lost or repeated without harm. It is
repeated, more and more rarely, until everybody who should answer it has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from edge_sdk.contract.children.device_facts import DeviceFacts, Reason
from edge_sdk.contract.run import Run
from edge_sdk.live.presence.directory import encode_run
from edge_sdk.live.presence.presence import Presence
from edge_sdk.live.presence.publisher import Publisher
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, Hello, pack_frame
from edge_sdk.wire.link import Link
from edge_sdk.wire.mqtt import Will
from edge_sdk.wire.topics import ALL, BIRTHS

BIRTHS_APART = (1.0, 60.0)  # seconds between repetitions of an unanswered birth: the first, the longest
AT_ONCE = 0.0, BIRTHS_APART[0]  # when a new birth is due, and seconds until its first repetition


@dataclass(frozen=True)
class Standing:
    """State of a node as its birth tells it.

    Attributes:
        epoch: of its disk in this run; 0: it is in no run.
        run: the run that it is in.
        ready: its role has been started.
        refusal: why it cannot take part in the run that it was offered, or empty.
        unwilling: why it wants no training now; None: it does.
        devices: children that may take part below it; 0: it does not say.
        labelled: windows that were given a label here, in steps; 0: it does not say.
        facts: what it tells of its machine; None: nothing.
        asked: number of the latest question that it has taken; 0: none.
    """

    epoch: int = 0
    run: Run | None = None
    ready: bool = False
    refusal: str = ""
    unwilling: Reason | None = None
    devices: int = 0
    labelled: int = 0
    facts: DeviceFacts | None = None
    asked: int = 0


class Announcer:
    """Publishes births, hellos and goodbyes of a node.

    Attributes:
        sessions: link -> number drawn for its latest connection.
        counts: link -> births of its latest connection so far.
        answered: which birth of the latest connection to the parent has been answered last.
        nonce: of the parent's latest hello, which the next connection's first birth repeats.
        births: link -> when the birth is due, by time.monotonic(), and seconds from then to its repetition; no entry:
            everybody has answered it.
    """

    def __init__(self, publisher: Publisher):
        self.publisher, self.name, self.parent = publisher, publisher.name, publisher.parent
        self.lane, self.lane_below = publisher.lane, publisher.lane_below
        self.sessions: dict[Link, int] = {}
        self.counts: dict[Link, int] = {}
        self.answered = self.nonce = 0
        self.births: dict[Link, tuple[float, float]] = {}

    def make_will(self, link: Link, epoch: int) -> Will:
        """The will of a new connection: the birth that its broker publishes for us when the connection breaks."""
        session = random.getrandbits(62) or 1
        self.begin_connection(link, session)
        return Will(self.list_topics(link)[0], pack_frame(Birth(self.name, epoch, session, gone=True)))

    def begin_connection(self, link: Link, session: int) -> None:
        """A connection is about to be made, with this number: births and their answers are counted anew."""
        self.sessions[link], self.counts[link] = session, 0
        self.answered = 0 if link is self.publisher.above else self.answered

    def list_topics(self, link: Link) -> list[str]:
        """Topics of our births over a link. The first one is also the will's, of which a connection has only one."""
        found = []
        if link is self.publisher.above and self.parent:
            found.append(topics.upward(self.parent, self.name, BIRTHS, self.lane))
        if link is self.publisher.below:
            found.append(topics.downward(self.name, ALL, BIRTHS, self.lane_below))
        return found

    def listen(self) -> None:
        """Others than before may take part below: their topics may have to be heard."""
        if self.publisher.below is not None:
            self.publisher.below.listen()

    # -- births

    def announce(self) -> None:
        """Something about this node has changed: births to parent and children are due now."""
        for link in self.publisher.links:
            if link.up:
                self.announce_over(link)

    def announce_over(self, link: Link) -> None:
        """A birth over this link is due now."""
        self.births[link] = AT_ONCE

    def link_lost(self, link: Link) -> None:
        """The connection is gone: the next one begins with a birth of its own."""
        self.births.pop(link, None)

    def parent_answered(self) -> None:
        """The parent has answered. Over a link that it shares with the children, their answers are still waited for."""
        above = self.publisher.above
        if above is not None and above is not self.publisher.below and self.births.get(above) != AT_ONCE:
            self.births.pop(above, None)  # unless what it answers is older than what is yet to be said

    def get_timer(self, now: float) -> float:
        """Seconds until a birth is due."""
        return min((at - now for at, _ in self.births.values()), default=inf)

    def publish_births(self, standing: Standing, presence: Presence, now: float) -> None:
        """Publish the births that are due. They are repeated as long as somebody is missing in `presence`."""
        for link, (at, pause) in list(self.births.items()):
            if now >= at and link.up:
                self.publish_birth(link, standing)
                if self.is_anybody_missing(link, presence):
                    self.births[link] = (now + pause, min(2 * pause, BIRTHS_APART[1]))
                else:
                    del self.births[link]

    def publish_birth(self, link: Link, standing: Standing) -> None:
        """Publish a birth on each topic of this link."""
        self.counts[link] += 1
        run = "" if standing.run is None else standing.run.id
        about = (run, standing.ready, standing.refusal, False, self.counts[link], self.nonce, standing.unwilling)
        more = standing.devices, standing.labelled, standing.facts, standing.asked
        birth = Birth(self.name, standing.epoch, self.sessions[link], *about, *more)
        for topic in self.list_topics(link):
            self.publisher.publish_frame(link, topic, birth, 0, self.parent or ALL)

    def is_anybody_missing(self, link: Link, presence: Presence) -> bool:
        """Somebody who should be on the other end of a link has not been heard of."""
        above = link is self.publisher.above and presence.parent is None
        return above or (link is self.publisher.below and len(presence.joined) < len(presence.expected))

    # -- hellos, goodbyes

    def publish_hello(self, birth: Birth, standing: Standing, nonce: int, **about: Any) -> None:
        """Answer a child's birth with the run, as it is described now. `about`: further fields of `Hello`."""
        below = self.publisher.below
        if below is None:
            return
        hello = Hello(self.name, standing.epoch, self.sessions.get(below, 0), **about)
        if standing.run is not None:
            hello = replace(hello, run=standing.run.id, body=encode_run(standing.run))
        hello = replace(hello, to=birth.session, count=birth.count, nonce=nonce)
        topic = topics.downward(self.name, birth.src, BIRTHS, self.lane_below)
        self.publisher.publish_frame(below, topic, hello, 0, birth.src)

    def is_answer(self, hello: Hello) -> bool:
        """A hello answers a birth of our present connection to the parent, and no later one has been answered."""
        above = self.publisher.above
        if above is None or hello.to != self.sessions.get(above) or hello.count > self.counts[above]:
            return False
        return hello.count >= max(1, self.answered)

    def publish_goodbye(self, standing: Standing) -> None:
        """Say what the will would say, this node is gone, and why, if it could not take part.

        A node that ends because it cannot take part may end before a birth that says so has left. A will has count 0.
        """
        for link in self.publisher.links:
            for topic in self.list_topics(link):
                if link.up:
                    of, why, count = (standing.epoch, self.sessions[link]), standing.refusal, self.counts[link]
                    gone = Birth(self.name, *of, refusal=why, gone=True, count=count)
                    self.publisher.publish_frame(link, topic, gone, 0, self.parent or ALL)
