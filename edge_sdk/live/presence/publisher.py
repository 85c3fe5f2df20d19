"""Publishes what leaves a node: messages, chunks, reports and acknowledgements, each on its topic and over its link."""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger
from math import inf
from typing import TYPE_CHECKING

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.storage.checksums import checksum
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Ack, Acks, Chunk, ChunkReports, Frame, Message, Offer, pack_frame
from edge_sdk.wire.link import Link
from edge_sdk.wire.topics import MESSAGES

if TYPE_CHECKING:
    from edge_sdk.delivery.messages.outbox import OutboxMessage
    from edge_sdk.delivery.session import Session


class Publisher:
    """Publishes what a session has to send, as fast as the brokers take it.

    Args:
        below: link to the children's broker.
        above: link to the parent's broker; the same one where they share it.
        lane: of the session.
        lane_below: in which the children speak; None: the same one.

    Attributes:
        silence: that nobody answers above, in words; "": somebody does, or it is too early to tell.
    """

    def __init__(
        self,
        name: str,
        parent: str | None,
        below: Link | None,
        above: Link | None,
        counters: Counters,
        log: Logger,
        lane: int = 0,
        lane_below: int | None = None,
    ):
        self.name, self.parent, self.below, self.above, self.lane = name, parent, below, above, lane
        self.lane_below = lane if lane_below is None else lane_below
        self.links = tuple(link for link in dict.fromkeys((below, above)) if link is not None)
        self.counters, self.log, self.silence = counters, log, ""

    @property
    def trouble(self) -> str:
        """What is wrong between this node and its brokers or its parent, for people; "": nothing."""
        return "; ".join(dict.fromkeys(link.trouble for link in self.links if link.trouble)) or self.silence

    def list_limits(self) -> list[str]:
        """Limits of its brokers that stand in this node's way, in words without an address."""
        return [link.known.trouble for link in self.links if link.known.trouble]

    def publish_due(self, session: Session, now: float) -> None:
        """Publish all that is due and that there is room for."""
        for peer in session.outbox.repeat_late(now):
            self.counters.count(f"retries.{peer}")
        while self.has_room() and (found := session.outbox.next_message(now)):
            self.fit_message(session, found[0], found[1])
            if found[0].is_whole:
                self.publish_message(session, *found)
            else:
                session.transfers_out.begin_body(*found, now)
        self.publish_pieces(session, now)
        for child, number in session.calls.releases.take().items() if session.open_since == inf else ():
            self.publish_closed(session, child, number)
        reach("published")
        if now >= session.incoming.ack_at:
            for peer in list(session.acks):
                self.publish_acks(session, peer)

    def fit_message(self, session: Session, out: OutboxMessage, dst: str) -> None:
        """Cut a message smaller that was cut for packets which the broker does not take."""
        link, _ = self.find_route(dst, dst == self.parent)
        if link.connection is not None and link.connection.most_body < min(out.chunk, len(out.body or b"")):
            session.outgoing.cut_anew(out, link.connection.chunk)
            self.counters.count(f"cut_smaller.{dst}")

    def publish_pieces(self, session: Session, now: float) -> None:
        """Publish offers, chunks and reports of bodies that travel in chunks."""
        transfers = session.transfers_out
        if not (transfers.bodies or transfers.questions or session.transfers_in.reports):
            return
        transfers.evict_slow(now)
        while transfers.questions:
            body, dst, nonce = transfers.questions.popleft()
            if body.out.seq in transfers.bodies:
                self.publish_offer(session, body.out, dst, body.size, nonce)
        if transfers.bodies and self.has_room():
            for body, dst, i, report in transfers.next_pieces(now):
                self.publish_chunk(session, body.out, dst, sorted(body.lanes[dst].members), i, report)
                if not self.has_room():
                    break
        for peer, chunk_report in session.transfers_in.take_reports():
            link, topic = self.find_route(peer, peer == self.parent)
            self.publish_frame(link, topic, ChunkReports(session.run.id, self.name, (chunk_report,)), 0, peer)

    def has_room(self) -> bool:
        """Every broker would take another message of ours."""
        full = [link for link in self.links if link.up and link.connection is not None and link.connection.room <= 0]
        return not full

    def publish_message(self, session: Session, out: OutboxMessage, dst: str, receivers: Sequence[str]) -> None:
        m = Message(*self.header_fields(session, out, receivers), b"" if out.body is None else out.body)
        link, topic = self.find_route(dst, dst == self.parent)
        light = out.fresh and link.connection is not None and link.connection.is_light
        out.fresh = False
        self.publish_frame(link, topic, m, 0 if light else 1, dst)

    def header_fields(
        self, session: Session, out: OutboxMessage, receivers: Sequence[str]
    ) -> tuple[str, str, int, int, int, tuple[Ack, ...], int, bool]:
        """The fields with which every frame about a message begins. Acknowledgements travel along."""
        s = session
        acks, lo = s.incoming.take_acks_for(receivers), s.outbox.lowest(receivers)
        return s.run.id, self.name, s.store.epoch, out.seq, lo, acks, out.number, out.asks

    def publish_chunk(
        self, session: Session, out: OutboxMessage, dst: str, receivers: Sequence[str], i: int, report: bool
    ) -> None:
        assert out.body is not None
        piece = memoryview(out.body)[i * out.chunk : (i + 1) * out.chunk]
        about = self.header_fields(session, out, receivers)
        crc = out.checksums[i] if out.checksums else checksum(piece)
        frame = Chunk(*about, len(out.body), out.chunk, out.digest, i, crc, report, piece)
        self.publish_frame(*self.find_route(dst, dst == self.parent), frame, 1, dst)
        self.counters.count(f"chunks_out.{dst}")

    def publish_offer(self, session: Session, out: OutboxMessage, dst: str, size: int, nonce: int) -> None:
        frame = Offer(*self.header_fields(session, out, [dst]), size, out.chunk, out.digest, nonce)
        self.publish_frame(*self.find_route(dst, dst == self.parent), frame, 1, dst)

    def publish_acks(self, session: Session, peer: str) -> None:
        link, topic = self.find_route(peer, peer == self.parent)
        if link.up:
            frame = Acks(session.run.id, self.name, session.incoming.take_acks_for([peer]))
            self.publish_frame(link, topic, frame, 0, peer)
        else:
            session.incoming.take_acks_for([peer])  # dropped: it will send the message again, and be acknowledged then

    def publish_closed(self, session: Session, child: str, number: int) -> None:
        """Tell a child that its answers up to this question are not wanted. If that is lost it trains for nothing,
        and hears it again at its next connection."""
        link, topic = self.find_route(child, False)
        if link.up:
            s = session
            frame = Acks(s.run.id, self.name, s.incoming.take_acks_for([child]), s.store.epoch, number)
            self.publish_frame(link, topic, frame, 0, child)

    def find_route(self, peer: str, upward: bool) -> tuple[Link, str]:
        link = self.above if upward else self.below
        assert link is not None
        if upward:
            return link, topics.upward(peer, self.name, MESSAGES, self.lane)
        return link, topics.downward(self.name, peer, MESSAGES, self.lane_below)

    def publish_frame(self, link: Link, topic: str, frame: Frame, qos: int, peer: str) -> None:
        if not link.up or link.connection is None:
            return
        payload = pack_frame(frame)
        size, limit = link.connection.measure_packet(topic, payload), link.connection.packet
        if size > limit:
            self.counters.count(f"too_large.{peer}")
            if link.known.note_unsendable(size, limit):
                self.log.error("%s: for %s: %s: %s", self.name, peer, link.connection.broker, link.trouble)
            return
        self.counters.count_traffic("out", peer, len(payload))
        link.connection.publish(topic, payload, qos)
        if isinstance(frame, Message | Chunk | Offer | Acks) and frame.acks:
            reach("acknowledged")
