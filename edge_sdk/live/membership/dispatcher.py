"""Gives each payload that arrives to whom it concerns, once it has been read and checked.

Whatever a peer sends, it costs that payload and a line in the log. The checks are in this order: is the topic one of
ours, may its sender send so often, is the payload a frame, may this peer write on this topic, and does the frame say
that it is from that peer. With TLS the broker has made sure that the topic's name is the certificate's, so nobody can
speak for another.
"""

from __future__ import annotations

import time
from logging import Logger
from math import inf
from typing import TYPE_CHECKING

from edge_sdk.contract.run import ID
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.errors import PeerError
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.membership.neighbours import Neighbours
from edge_sdk.live.membership.rate_limit import LARGE, Frequency
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Acks, Birth, Chunk, ChunkReports, Frame, Hello, Message, Offer, unpack_frame
from edge_sdk.wire.topics import ALL, BIRTHS, LONGEST, MESSAGES, REPORTS, ROSTERS

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session
    from edge_sdk.live.membership.roster import Roster

STRANGERS = 20
"""Names of strangers that are kept."""
STRANGER_AGAIN = 3600.0  # seconds after which a stranger who still calls is said once more
LAST_WORD = 2**10
"""Bytes of a birth that is read although its sender sends too often: it may say that the sender is gone."""


class StrangerError(PeerError):
    """A payload of somebody who is neither parent nor child of this node.

    Attributes:
        name: as the topic has it.
    """

    def __init__(self, name: str, why: str):
        super().__init__(why)
        self.name = name


class Dispatcher:
    """Dispatcher of one node.

    Attributes:
        lane: of the session. lane_below: in which the children speak.
        heard_at: parent or child -> when a payload of it came last, by time.time().
        beside: dispatchers of the node's other lanes. They hear from the main one who has gone: a connection has one
            will, and it is about all lanes.
        strangers: the latest of those who call as children without being any -> when they did, by time.time().
        strangers_said: those of the log -> when they were said, by time.monotonic().
        frequency: how often each parent or child may be heard; all strangers together are "?".
    """

    def __init__(
        self,
        name: str,
        parent: str | None,
        membership: Membership,
        neighbours: Neighbours,
        counters: Counters,
        log: Logger,
        lane: int = 0,
        lane_below: int | None = None,
    ):
        self.name, self.parent, self.membership, self.neighbours = name, parent, membership, neighbours
        self.lane, self.beside = lane, list[Dispatcher]()
        self.lane_below = lane if lane_below is None else lane_below
        self.counters, self.log = counters, log
        self.roster: Roster | None = None  # given by a hospital whose settings want one
        self.heard_at: dict[str, float] = {}
        self.strangers: dict[str, float] = {}
        self.strangers_said: dict[str, float] = {}
        self.frequency = Frequency()

    def take_payload(self, topic: str, payload: bytes) -> None:
        """Take a payload that has arrived; never raises because of it."""
        sender = "?"
        try:
            parsed = topics.parse_topic(topic)
            if parsed.channel == REPORTS and parsed.upward:
                return  # for a console
            sender = self.name_of(parsed)
            admitted = self.frequency.admits(sender, len(payload), time.monotonic())
            if not admitted and not self.is_last_word(parsed, payload):
                return self.refuse_flood(sender)
            if parsed.channel == ROSTERS and not parsed.upward:
                return self.take_roster(parsed, payload)
            own = self.lane_below if parsed.upward else self.lane
            if parsed.lane != own and (parsed.lane or parsed.channel != BIRTHS):
                return self.counters.count("refused.lane")  # of a run beside this one, which another process works in
            frame = self.check_frame(parsed, unpack_frame(payload))
            if parsed.lane != own and not (isinstance(frame, Birth) and frame.gone):
                return
            self.counters.count_traffic("in", sender, len(payload))
            self.heard_at[sender] = time.time()
            self.dispatch(frame, broadcast=parsed.child == ALL)
        except StrangerError as e:
            self.refuse_stranger(e)
        except PeerError as e:
            self.refuse("malformed", sender, f"{topic[:LONGEST]}: {e}")
        except (DiskError, OSError) as e:
            self.membership.disk_failed(e)

    def is_last_word(self, topic: topics.ParsedTopic, payload: bytes) -> bool:
        """Is it the will or the goodbye of the present connection of a parent or child that is here?

        It is said once, so it must not be dropped with what its sender has sent too often: nobody would repeat it, and
        a node that is dead would be waited for. There is one for each connection, since who has gone is not here.
        """
        if topic.channel != BIRTHS or not self.is_known(topic) or len(payload) > LAST_WORD:
            return False
        presence = self.membership.presence
        peer = presence.children.get(topic.child) if topic.upward else presence.parent
        try:
            frame = unpack_frame(payload)
        except PeerError:
            return False
        return isinstance(frame, Birth) and frame.gone and peer is not None and frame.session == peer.session

    def take_roster(self, topic: topics.ParsedTopic, payload: bytes) -> None:
        """Take a list of devices that were enrolled for this node, if it wants one.

        Raises:
            PeerError: it is none, or is not from the parent.
        """
        if self.roster is None or topic.parent != self.parent or topic.child != self.name:
            raise PeerError("a roster does not come here")
        self.roster.take(payload)

    def name_of(self, topic: topics.ParsedTopic) -> str:
        """The sender's name, as counters and limits have it: strangers may be many, and share one."""
        return topic.sender if self.is_known(topic) else "?"

    def is_known(self, topic: topics.ParsedTopic) -> bool:
        """Is it for us, and from our parent or one of our children?"""
        if topic.upward:
            return topic.parent == self.name and topic.child in self.membership.presence.expected
        return topic.parent == self.parent and topic.child in (self.name, ALL)

    def refuse_flood(self, sender: str) -> None:
        self.counters.count(f"refused.frequency.{sender}")
        who = "somebody" if sender == "?" else sender
        self.log.warning(
            "%s: %s sends too often: what is beyond %g a second is dropped", self.name, who, self.frequency.rate
        )

    def refuse(self, reason: str, sender: str, why: str) -> None:
        self.counters.count(f"refused.{reason}.{sender}")
        whose = "of somebody" if sender == "?" else f"of {sender}"  # not what it says: the log counts lines by these
        self.log.warning("%s: dropped a frame %s: %s", self.name, whose, why)

    def refuse_stranger(self, why: StrangerError) -> None:
        """Count it, and name each stranger once an hour: who is not answered calls again and again."""
        now, said = time.monotonic(), self.strangers_said
        if now < said.get(why.name, -inf) + STRANGER_AGAIN:
            return self.counters.count("refused.stranger.?")
        said.pop(why.name, None)
        self.strangers_said = dict([*said.items(), (why.name, now)][-STRANGERS:])
        self.refuse("stranger", "?", str(why))  # names of strangers are no names of counters: they may be many

    def check_frame(self, topic: topics.ParsedTopic, frame: Frame) -> Frame:
        """The frame, if its sender may write such a frame on this topic.

        Raises:
            PeerError: it may not.
        """
        known = self.is_known(topic)
        if not known and topic.upward and topic.parent == self.name:
            self.note_stranger(topic.child)
        if not known:
            raise StrangerError(
                topic.sender,
                f"{topic.sender} is a stranger: the settings of {self.name} do not name it, so it takes no part",
            )
        if frame.src != topic.sender:
            raise PeerError(f"the frame says that it is from {frame.src!r}")
        control = isinstance(frame, Birth) or (isinstance(frame, Hello) and not topic.upward)
        if topic.channel != (BIRTHS if control else MESSAGES) or (isinstance(frame, Hello) and topic.upward):
            raise PeerError(f"a {type(frame).__name__} does not come here")
        return frame

    def note_stranger(self, name: str) -> None:
        """Note who calls, for a person who may have forgotten to name a device. Few are kept, however many call."""
        if ID.fullmatch(name):
            self.strangers = {n: at for n, at in self.strangers.items() if n != name} | {name: time.time()}
            self.strangers = dict(list(self.strangers.items())[-STRANGERS:])

    def dispatch(self, frame: Frame, broadcast: bool) -> None:
        """Give a checked frame to whom it concerns. `broadcast`: it was for all children."""
        session = self.membership.session
        if isinstance(frame, Birth):
            self.handle_birth(frame, broadcast)
            for other in self.beside if frame.gone else ():
                other.hear_of_end(frame, broadcast)
        elif isinstance(frame, Hello):
            self.neighbours.handle_hello(frame)
        elif self.membership.is_broken:
            self.counters.count(f"refused.disk.{frame.src}")
        elif session is None or frame.run != session.run.id:
            self.counters.count(f"refused.run.{frame.src}")
        elif isinstance(frame, ChunkReports):
            session.take_reports(frame.src, frame.reports)
        else:
            if frame.src == self.parent:
                self.membership.turns.heard()
            session.take_acks(frame.src, frame.acks)
            if isinstance(frame, Acks) and frame.src == self.parent and session.inbox.is_of(frame.src, frame.epoch):
                session.calls.note_closed(frame.closed, session.node.record)
            if not isinstance(frame, Acks):
                self.take_in(session, frame, broadcast)

    def handle_birth(self, birth: Birth, broadcast: bool) -> None:
        """A parent or a child has come, has changed or has gone."""
        if broadcast:
            self.neighbours.handle_parents_birth(birth)
        else:
            self.neighbours.handle_childs_birth(birth)

    def hear_of_end(self, birth: Birth, broadcast: bool) -> None:
        """Somebody has gone, as another lane has heard. A disk that fails at that is this lane's, not that one's."""
        try:
            self.handle_birth(birth, broadcast)
        except (DiskError, OSError) as e:
            self.membership.disk_failed(e)

    def take_in(self, session: Session, m: Message | Chunk | Offer, broadcast: bool) -> None:
        """Give a message, or a piece of one, to the session, and count what came of it."""
        parent = self.membership.presence.parent
        if broadcast and not (parent and parent.here):
            self.counters.count(f"refused.early.{m.src}")  # it was for those who were here before us
            return
        verdict = session.take_message(m) if isinstance(m, Message) else session.take_piece(m)
        if verdict == "new" and isinstance(m, Chunk) and len(m.body) >= LARGE:
            self.frequency.give_back(m.src)
        if verdict == "duplicate":
            self.counters.count(f"duplicate{'_chunk' if isinstance(m, Chunk) else ''}.{m.src}")
        elif verdict not in ("new", "offer"):
            self.counters.count(f"refused.{verdict}.{m.src}")
