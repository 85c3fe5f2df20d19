"""What a node says of itself: births when it is there or has changed, hellos to its children, a goodbye at the end.

A birth says how things stand, so it may be lost or repeated. It is repeated, more and more rarely, until those who
should answer it have.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf

from edge_sdk.contract.run import Run
from edge_sdk.live.directory import encode_run
from edge_sdk.live.presence import Presence
from edge_sdk.live.publisher import Mail
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, Hello, pack
from edge_sdk.wire.link import Link
from edge_sdk.wire.mqtt import Will
from edge_sdk.wire.topics import ALL, BIRTHS

BIRTHS_APART = (1.0, 60.0)  # seconds between repetitions of an unanswered birth: the first, the longest
NEWS = 0.0, BIRTHS_APART[0]  # of a birth: at once, and then again after that


@dataclass(frozen=True)
class Standing:
    """How things stand with a node.

    Attributes:
        epoch: of its disk in this run; 0: it is in none.
        run: in which it is.
        ready: its role plays.
        refusal: why it cannot take part in the run that it was offered, or empty.
    """

    epoch: int = 0
    run: Run | None = None
    ready: bool = False
    refusal: str = ""


class Herald:
    """Speaks for the node over the links of `mail`.

    Attributes:
        sessions: link -> number of its latest connection.
        births: link -> when the birth is repeated, and how long after that; no entry: it has been answered.
    """

    def __init__(self, mail: Mail):
        self.mail, self.name, self.parent = mail, mail.name, mail.parent
        self.sessions: dict[Link, int] = {}
        self.births: dict[Link, tuple[float, float]] = {}

    def will(self, link: Link, epoch: int) -> Will:
        """Of a new connection: what its broker says for us when it breaks."""
        session = self.sessions[link] = random.getrandbits(62)
        return Will(self.topics(link)[0], pack(Birth(self.name, epoch, session, gone=True)))

    def topics(self, link: Link) -> list[str]:
        """Who hears of us over a link; the first of them hears of our death too (a connection has one will)."""
        found = []
        if link is self.mail.above and self.parent:
            found.append(topics.up(self.parent, self.name, BIRTHS))
        if link is self.mail.below:
            found.append(topics.down(self.name, ALL, BIRTHS))
        return found

    # -- births

    def announce(self) -> None:
        """Tell parent and children, now, what has changed with us."""
        for link in self.mail.links:
            if link.up:
                self.announce_over(link)

    def announce_over(self, link: Link) -> None:
        """To those on the other end of one link, who are new there."""
        self.births[link] = NEWS

    def lost(self, link: Link) -> None:
        """The next connection has a birth of its own."""
        self.births.pop(link, None)

    def answered(self) -> None:
        """The parent has answered. A link that it shares with the children still waits for them."""
        above = self.mail.above
        if above is not None and above is not self.mail.below and self.births.get(above) != NEWS:
            self.births.pop(above, None)  # it answers an earlier birth: what is new since then has yet to be said

    def timer(self, now: float) -> float:
        """Seconds until a birth is due."""
        return min((at - now for at, _ in self.births.values()), default=inf)

    def speak(self, standing: Standing, presence: Presence, now: float) -> None:
        """The births that are due; they are repeated as long as somebody is missing in `presence`."""
        for link, (at, pause) in list(self.births.items()):
            if now >= at and link.up:
                self.be_born(link, standing)
                if self.is_missed(link, presence):
                    self.births[link] = (now + pause, min(2 * pause, BIRTHS_APART[1]))
                else:
                    del self.births[link]

    def be_born(self, link: Link, standing: Standing) -> None:
        assert self.sessions[link]
        run = "" if standing.run is None else standing.run.id
        birth = Birth(self.name, standing.epoch, self.sessions[link], run, standing.ready, standing.refusal)
        for topic in self.topics(link):
            self.mail.publish(link, topic, birth, 0, self.parent or ALL)

    def is_missed(self, link: Link, presence: Presence) -> bool:
        """Whether somebody who should be on the other end of a link is not there."""
        above = link is self.mail.above and presence.parent is None
        return above or (link is self.mail.below and len(presence.joined) < len(presence.expected))

    # -- hellos, goodbyes

    def greet(self, birth: Birth, ready: bool, standing: Standing) -> None:
        """Answer a child; a run that it does not know comes with the answer. `ready`: we count it as here."""
        if self.mail.below is None:
            return
        run = standing.run
        body = b"" if run is None or birth.run == run.id else encode_run(run)
        id = "" if run is None else run.id
        hello = Hello(self.name, standing.epoch, self.sessions.get(self.mail.below, 0), id, ready, body)
        self.mail.publish(self.mail.below, topics.down(self.name, birth.src, BIRTHS), hello, 0, birth.src)

    def say_goodbye(self, epoch: int) -> None:
        for link in self.mail.links:
            for topic in self.topics(link):
                if link.up:
                    gone = Birth(self.name, epoch, self.sessions[link], gone=True)
                    self.mail.publish(link, topic, gone, 0, self.parent or ALL)
