"""What leaves a node: frames about messages, their pieces and acknowledgements, each on its topic and over its link."""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger

from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.files import checksum
from edge_sdk.delivery.outbox import Out
from edge_sdk.delivery.session import Session
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Ack, Acks, Chunk, Frame, Message, Offer, Parts, pack
from edge_sdk.wire.link import Link
from edge_sdk.wire.topics import MESSAGES

OVERHEAD = 16  # bytes of a packet beside topic and payload, at most


class Mail:
    """Publishes what a session has to say, as fast as the brokers take it.

    Args:
        below, above: the ways to the children and to the parent.
    """

    def __init__(
        self, name: str, parent: str | None, below: Link | None, above: Link | None, counters: Counters, log: Logger
    ):
        self.name, self.parent, self.below, self.above = name, parent, below, above
        self.links = tuple(link for link in dict.fromkeys((below, above)) if link is not None)
        self.counters, self.log = counters, log

    def post(self, session: Session, now: float) -> None:
        """All that is due and that there is room for."""
        for peer in session.outbox.expire(now):
            self.counters.count(f"retries.{peer}")
        while self.has_room() and (found := session.outbox.next(now)):
            if found[0].whole:
                self.publish_message(session, *found)
            else:
                session.sender.begin(*found, now)
        self.post_pieces(session, now)
        reach("published")
        if now >= session.ack_at:
            for peer in list(session.acks):
                self.publish_acks(session, peer)

    def post_pieces(self, session: Session, now: float) -> None:
        """What is due of the messages that travel in pieces, both ways."""
        sender = session.sender
        if not (sender.bodies or sender.questions or session.receiver.reports):
            return
        sender.evict(now)
        while sender.questions:
            body, dst, nonce = sender.questions.popleft()
            if body.out.seq in sender.bodies:
                self.publish_offer(session, body.out, dst, body.size, nonce)
        if sender.bodies and self.has_room():
            for body, dst, i, report in sender.pieces(now):
                self.publish_chunk(session, body.out, dst, sorted(body.lanes[dst].members), i, report)
                if not self.has_room():
                    break
        for peer, held in session.receiver.held():
            link, topic = self.address(peer, peer == self.parent)
            self.publish(link, topic, Parts(session.run.id, self.name, (held,)), 0, peer)

    def has_room(self) -> bool:
        """No broker has as many unacknowledged messages of ours as it takes."""
        full = [link for link in self.links if link.up and link.connection is not None and link.connection.room <= 0]
        return not full

    def publish_message(self, session: Session, out: Out, dst: str, receivers: Sequence[str]) -> None:
        m = Message(*self.about(session, out, receivers), b"" if out.body is None else out.body)
        link, topic = self.address(dst, dst == self.parent)
        light = out.fresh and link.connection is not None and link.connection.light
        out.fresh = False
        self.publish(link, topic, m, 0 if light else 1, dst)

    def about(
        self, session: Session, out: Out, receivers: Sequence[str]
    ) -> tuple[str, str, int, int, int, tuple[Ack, ...], int, bool]:
        """The fields with which every frame about a message begins."""
        s = session
        acks, lo = s.acks_for(receivers), s.outbox.lowest(receivers)
        return s.run.id, self.name, s.store.epoch, out.seq, lo, acks, out.number, out.asks

    def publish_chunk(
        self, session: Session, out: Out, dst: str, receivers: Sequence[str], i: int, report: bool
    ) -> None:
        assert out.body is not None
        piece = memoryview(out.body)[i * out.chunk : (i + 1) * out.chunk]
        about = self.about(session, out, receivers)
        crc = out.checksums[i] if out.checksums else checksum(piece)
        frame = Chunk(*about, len(out.body), out.chunk, out.digest, i, crc, report, piece)
        self.publish(*self.address(dst, dst == self.parent), frame, 1, dst)
        self.counters.count(f"chunks_out.{dst}")

    def publish_offer(self, session: Session, out: Out, dst: str, size: int, nonce: int) -> None:
        frame = Offer(*self.about(session, out, [dst]), size, out.chunk, out.digest, nonce)
        self.publish(*self.address(dst, dst == self.parent), frame, 1, dst)

    def publish_acks(self, session: Session, peer: str) -> None:
        link, topic = self.address(peer, peer == self.parent)
        if link.up:
            frame = Acks(session.run.id, self.name, session.acks_for([peer]))
            self.publish(link, topic, frame, 0, peer)
        else:
            session.acks_for([peer])  # dropped: it will send the message again, and be acknowledged then

    def address(self, peer: str, upward: bool) -> tuple[Link, str]:
        link = self.above if upward else self.below
        assert link is not None
        if upward:
            return link, topics.up(peer, self.name, MESSAGES)
        return link, topics.down(self.name, peer, MESSAGES)

    def publish(self, link: Link, topic: str, frame: Frame, qos: int, peer: str) -> None:
        if not link.up or link.connection is None:
            return
        payload = pack(frame)
        if len(payload) + len(topic) + OVERHEAD > link.connection.packet:
            self.counters.count(f"too_large.{peer}")
            limit = link.connection.packet
            self.log.error("%s: %d bytes for %s; the broker takes %d", self.name, len(payload), peer, limit)
            return
        self.counters.traffic("out", peer, len(payload))
        link.connection.publish(topic, payload, qos)
        if isinstance(frame, Message | Chunk | Offer | Acks) and frame.acks:
            reach("acknowledged")
