"""Large bodies on their way out, in chunks. Sans-I/O: decides which chunk goes to whom, and when.

A new body is streamed at once, to all its receivers together where they are all the children. Whoever was interrupted
is asked first what it has (an offer), and is sent the rest on its own. A chunk that was verified is never sent again.

The number of chunks under way follows what comes back: one more for each that arrives soon after it was sent, fewer
when they take long. So the queues between the two ends stay short, and a message that is not a chunk does not wait
behind megabytes. In a group the slowest receiver decides, until it has shown nothing for STALL seconds while others
have: then it is sent the rest on its own, and the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from secrets import randbits

from edge_sdk.delivery.messages.outbox import OutboxMessage
from edge_sdk.wire.frames import ChunkReport
from edge_sdk.wire.topics import ALL

WINDOW, SMALLEST_WINDOW, LARGEST_WINDOW = 8.0, 2.0, 64.0  # chunks under way: at first, at least, at most
SOON = 0.2  # seconds: a chunk that arrives within that lets the window grow
STALL = 2.0  # seconds without news after which a receiver no longer holds up its group


@dataclass
class Lane:
    """A stream of chunks to one peer, or to several on the topic that all hear.

    Attributes:
        members: who is to receive them.
        todo: chunks to be sent.
        flying: chunk -> when it was sent; until all members have it.
        nonce: of an offer that has not been answered; 0: chunks may be sent.
        window: how many chunks may be under way.
        unreported: chunks sent since a report was last asked for.
    """

    members: set[str]
    todo: deque[int]
    flying: dict[int, float] = field(default_factory=dict)
    nonce: int = 0
    window: float = WINDOW
    unreported: int = 0

    @property
    def is_open(self) -> bool:
        return bool(self.todo) and not self.nonce and len(self.flying) < self.window

    def take_chunk(self, now: float) -> tuple[int, bool]:
        """The next chunk, and whether a report is wanted: four times in a window, and at its end."""
        i = self.todo.popleft()
        self.flying[i] = now
        self.unreported += 1
        report = not self.todo or self.unreported >= self.window / 4 or len(self.flying) + 1 > self.window
        if report:
            self.unreported = 0
        return i, report

    def note_landed(self, have: int, now: float) -> None:
        """All members have the chunks in the bitmap `have`. The window follows the one that was sent last."""
        done = [i for i in self.flying if have >> i & 1]
        if done:
            took = now - max(self.flying[i] for i in done)
            if took < SOON:
                self.window = min(LARGEST_WINDOW, self.window + len(done))
            else:
                self.window = max(SMALLEST_WINDOW, self.window * max(0.5, SOON / took))
        for i in done:
            del self.flying[i]


@dataclass
class OutgoingBody:
    """One body on its way.

    Attributes:
        lanes: receiver, or ALL -> the chunks that are still to be sent there.
        have: receiver -> bitmap of the chunks that it has.
        moved: receiver -> when it last had something new.
    """

    out: OutboxMessage
    size: int
    lanes: dict[str, Lane] = field(default_factory=dict)
    have: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of its chunks."""
        return -(-self.size // self.out.chunk)


Piece = tuple[OutgoingBody, str, int, bool]  # which body, on which lane, which chunk, report
Question = tuple[OutgoingBody, str, int]  # which body, to whom, nonce


class OutgoingTransfers:
    """All bodies that a node sends in chunks.

    Attributes:
        questions: offers that are to be published.
        sent: chunks that were given out by `next_pieces`, counting repetitions.
    """

    def __init__(self) -> None:
        self.bodies: dict[int, OutgoingBody] = {}
        self.questions: deque[Question] = deque()
        self.sent = 0

    def begin_body(self, out: OutboxMessage, dst: str, members: Sequence[str], now: float) -> None:
        """Send a body to a peer, or to all; again, if it was begun before."""
        body = self.bodies.get(out.seq)
        if body is None:
            body = self.bodies[out.seq] = OutgoingBody(out, len(out.body or b""))
        if out.fresh:
            out.fresh = False
            body.lanes[dst] = Lane(set(members), deque(range(body.count)))
            body.moved |= dict.fromkeys(members, now)
            return
        for each in members:
            self.ask_receiver(body, each, now)

    def ask_receiver(self, body: OutgoingBody, dst: str, now: float) -> None:
        """Ask what this receiver has got. The rest goes to it alone."""
        if ALL in body.lanes:
            self.leave_group(body, dst)
        nonce = randbits(31) + 1
        body.lanes[dst] = Lane({dst}, deque(), nonce=nonce)
        body.moved[dst] = now
        self.questions.append((body, dst, nonce))

    def leave_group(self, body: OutgoingBody, dst: str) -> None:
        lane = body.lanes[ALL]
        lane.members.discard(dst)
        if not lane.members:
            del body.lanes[ALL]

    def note_report(self, src: str, report: ChunkReport, now: float) -> bool:
        """A receiver has said what it has; whether something of it was new."""
        body = self.bodies.get(report.seq)
        if body is None:
            return False
        have = int.from_bytes(report.bitmap, "little") & ((1 << body.count) - 1)
        new = have & ~body.have.get(src, 0)
        body.have[src] = body.have.get(src, 0) | have
        if new:
            body.moved[src] = now
        own = body.lanes.get(src)
        if own is not None and own.nonce and own.nonce == report.nonce:
            own.nonce, own.todo = 0, deque(i for i in range(body.count) if not have >> i & 1)
            body.moved[src] = now
        for lane in body.lanes.values():
            if src in lane.members:
                lane.note_landed(self.common_chunks(body, lane), now)
        return bool(new)

    def common_chunks(self, body: OutgoingBody, lane: Lane) -> int:
        """Bitmap of the chunks that all members of a lane have."""
        have = -1
        for member in lane.members:
            have &= body.have.get(member, 0)
        return have

    def note_ack(self, dst: str, seq: int) -> None:
        """A receiver has all of it."""
        body = self.bodies.get(seq)
        if body is None:
            return
        body.lanes.pop(dst, None)
        lane = body.lanes.get(ALL)
        if lane is not None and dst in lane.members:
            lane.members.discard(dst)
            if lane.members:
                lane.note_landed(self.common_chunks(body, lane), 0.0)
        if not body.out.pending:
            del self.bodies[seq]
        elif lane is not None and not lane.members:
            del body.lanes[ALL]

    def drop_body(self, seq: int) -> None:
        self.bodies.pop(seq, None)

    def peer_went(self, dst: str) -> None:
        """A peer cannot be reached: it is asked what it has when it is back."""
        for body in self.bodies.values():
            body.lanes.pop(dst, None)
            if ALL in body.lanes:
                self.leave_group(body, dst)

    def next_pieces(self, now: float) -> Iterator[Piece]:
        """Chunks that may be sent, one of each body in turn, until the caller stops asking."""
        busy = True
        while busy:
            busy = False
            for body in list(self.bodies.values()):
                for dst, lane in list(body.lanes.items()):
                    if lane.is_open:
                        busy = True
                        i, report = lane.take_chunk(now)
                        self.sent += 1
                        yield body, dst, i, report

    def evict_slow(self, now: float) -> None:
        """Move who is slow or dead out of a group that has gone on without it."""
        for body in self.bodies.values():
            lane = body.lanes.get(ALL)
            if lane is None or len(lane.members) < 2 or not lane.flying:
                continue
            moved = {m: body.moved.get(m, 0.0) for m in lane.members}
            late = [m for m, at in moved.items() if now - at > STALL and max(moved.values()) - at > STALL / 2]
            for member in late:
                self.ask_receiver(body, member, now)
