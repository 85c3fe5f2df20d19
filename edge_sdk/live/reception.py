"""What comes in: each payload is read, checked, and given to whom it concerns.

Whatever a peer sends, it costs that message and a line in the log.
"""

from __future__ import annotations

from logging import Logger

from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.store import DiskError
from edge_sdk.errors import PeerError
from edge_sdk.live.membership import Membership
from edge_sdk.live.neighbours import Neighbours
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Acks, Birth, Chunk, Frame, Hello, Message, Offer, Parts, unpack
from edge_sdk.wire.topics import ALL, BIRTHS, MESSAGES


class Reception:
    """That of one node."""

    def __init__(
        self,
        name: str,
        parent: str | None,
        membership: Membership,
        neighbours: Neighbours,
        counters: Counters,
        log: Logger,
    ):
        self.name, self.parent, self.membership, self.neighbours = name, parent, membership, neighbours
        self.counters, self.log = counters, log

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
            self.membership.disk_failed(e)

    def refuse(self, reason: str, sender: str, why: str) -> None:
        self.counters.count(f"refused.{reason}.{sender}")
        self.log.warning("%s: dropped a frame: %s", self.name, why)

    def checked(self, place: topics.Place, frame: Frame) -> Frame:
        """The frame, if it may come this way from whom it says."""
        if place.upward:
            known = place.parent == self.name and place.child in self.membership.presence.expected
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
        session = self.membership.session
        if isinstance(frame, Birth):
            if broadcast:
                self.neighbours.parent_born(frame)
            else:
                self.neighbours.child_born(frame)
        elif isinstance(frame, Hello):
            self.neighbours.greeted(frame)
        elif self.membership.broken:
            self.counters.count(f"refused.disk.{frame.src}")
        elif session is None or frame.run != session.run.id:
            self.counters.count(f"refused.run.{frame.src}")
        elif isinstance(frame, Parts):
            session.take_reports(frame.src, frame.parts)
        else:
            session.take_acks(frame.src, frame.acks)
            if not isinstance(frame, Acks):
                self.take(session, frame, broadcast)

    def take(self, session: Session, m: Message | Chunk | Offer, broadcast: bool) -> None:
        parent = self.membership.presence.parent
        if broadcast and not (parent and parent.here):
            self.counters.count(f"refused.early.{m.src}")  # said to those who were there before us
            return
        verdict = session.take(m) if isinstance(m, Message) else session.take_piece(m)
        if verdict == "duplicate":
            self.counters.count(f"duplicate{'_chunk' if isinstance(m, Chunk) else ''}.{m.src}")
        elif verdict not in ("new", "offer"):
            self.counters.count(f"refused.{verdict}.{m.src}")
