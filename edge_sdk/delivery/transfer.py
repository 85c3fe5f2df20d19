"""Bodies in pieces. Sans-I/O: who sends which chunk when, and what has come.

A new body is streamed at once, to all its receivers together where they are all the children. Whoever was interrupted
is asked first what it has (an offer), and is sent the rest on its own. A chunk that was verified is never sent again.

How many chunks are under way follows what comes back: one more for each that arrives soon after it was sent, fewer when
they take long, so that the queues between the two ends stay short. In a group the slowest decides, until it has shown
nothing for STALL seconds while others have: then it is sent the rest on its own, and the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from secrets import randbits

from edge_sdk.delivery.files import Files, Part
from edge_sdk.delivery.outbox import Out
from edge_sdk.wire.frames import Chunk, Held, Offer
from edge_sdk.wire.topics import ALL

FIRST, FEWEST, MOST = 8.0, 2.0, 64.0  # chunks under way
SOON = 0.2  # seconds
STALL = 2.0  # seconds
PARTS = 64  # bodies that one peer may have under way


@dataclass
class Lane:
    """A stream of chunks to one peer, or to several on the topic that all hear.

    Attributes:
        members: who is to receive them.
        todo: chunks to be sent.
        flying: chunk -> when it was sent; until all members have it.
        nonce: of an offer that has not been answered; 0: chunks may be sent.
    """

    members: set[str]
    todo: deque[int]
    flying: dict[int, float] = field(default_factory=dict)
    nonce: int = 0
    window: float = FIRST
    unreported: int = 0

    @property
    def open(self) -> bool:
        return bool(self.todo) and not self.nonce and len(self.flying) < self.window

    def take(self, now: float) -> tuple[int, bool]:
        """The next chunk, and whether a report is wanted: four times in a window, and at its end."""
        i = self.todo.popleft()
        self.flying[i] = now
        self.unreported += 1
        report = not self.todo or self.unreported >= self.window / 4 or len(self.flying) + 1 > self.window
        if report:
            self.unreported = 0
        return i, report

    def landed(self, have: int, now: float) -> int:
        """Chunks that all members have now. The window follows the one that was sent last."""
        done = [i for i in self.flying if have >> i & 1]
        if done:
            took = now - max(self.flying[i] for i in done)
            soon = took < SOON
            self.window = (
                min(MOST, self.window + len(done)) if soon else max(FEWEST, self.window * max(0.5, SOON / took))
            )
        for i in done:
            del self.flying[i]
        return len(done)


@dataclass
class Sending:
    """One body on its way. `have`: receiver -> bitmap; `moved`: receiver -> when it last had something new."""

    out: Out
    size: int
    lanes: dict[str, Lane] = field(default_factory=dict)
    have: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return -(-self.size // self.out.chunk)


Piece = tuple[Sending, str, int, bool]  # which body, on which lane, which chunk, report
Question = tuple[Sending, str, int]  # which body, to whom, nonce


class Sender:
    """All bodies that a node sends in pieces."""

    def __init__(self) -> None:
        self.bodies: dict[int, Sending] = {}
        self.questions: deque[Question] = deque()
        self.sent = self.repeated = 0

    def begin(self, out: Out, dst: str, members: Sequence[str], now: float) -> None:
        """Send a body to a peer, or to all; again, if it was begun before."""
        body = self.bodies.get(out.seq)
        if body is None:
            body = self.bodies[out.seq] = Sending(out, len(out.body or b""))
        if out.fresh:
            out.fresh = False
            body.lanes[dst] = Lane(set(members), deque(range(body.count)))
            body.moved |= dict.fromkeys(members, now)
            return
        for each in members:
            self.ask(body, each, now)

    def ask(self, body: Sending, dst: str, now: float) -> None:
        """What has this receiver got? The rest goes to it alone."""
        if ALL in body.lanes:
            self.leave(body, dst)
        nonce = randbits(31) + 1
        body.lanes[dst] = Lane({dst}, deque(), nonce=nonce)
        body.moved[dst] = now
        self.questions.append((body, dst, nonce))

    def leave(self, body: Sending, dst: str) -> None:
        lane = body.lanes[ALL]
        lane.members.discard(dst)
        if not lane.members:
            del body.lanes[ALL]

    def reported(self, src: str, held: Held, now: float) -> bool:
        """A receiver has said what it has; whether something of it was new."""
        body = self.bodies.get(held.seq)
        if body is None:
            return False
        have = int.from_bytes(held.bitmap, "little")
        new = have & ~body.have.get(src, 0)
        body.have[src] = body.have.get(src, 0) | have
        if new:
            body.moved[src] = now
        own = body.lanes.get(src)
        if own is not None and own.nonce and own.nonce == held.nonce:
            own.nonce, own.todo = 0, deque(i for i in range(body.count) if not have >> i & 1)
            body.moved[src] = now
        for lane in body.lanes.values():
            if src in lane.members:
                lane.landed(self.common(body, lane), now)
        return bool(new)

    def common(self, body: Sending, lane: Lane) -> int:
        """What all members of a lane have."""
        have = -1
        for member in lane.members:
            have &= body.have.get(member, 0)
        return have

    def acked(self, dst: str, seq: int) -> None:
        """A receiver has all of it."""
        body = self.bodies.get(seq)
        if body is None:
            return
        body.lanes.pop(dst, None)
        lane = body.lanes.get(ALL)
        if lane is not None and dst in lane.members:
            lane.members.discard(dst)
            if lane.members:
                lane.landed(self.common(body, lane), 0.0)
        if not body.out.pending:
            del self.bodies[seq]
        elif lane is not None and not lane.members:
            del body.lanes[ALL]

    def drop(self, seq: int) -> None:
        self.bodies.pop(seq, None)

    def went(self, dst: str) -> None:
        """A peer cannot be reached: it is asked what it has when it is back."""
        for body in self.bodies.values():
            body.lanes.pop(dst, None)
            if ALL in body.lanes:
                self.leave(body, dst)

    def pieces(self, now: float) -> Iterator[Piece]:
        """Chunks that may be sent, until the caller has had enough. One of each body in turn."""
        busy = True
        while busy:
            busy = False
            for body in list(self.bodies.values()):
                for dst, lane in list(body.lanes.items()):
                    if lane.open:
                        busy = True
                        i, report = lane.take(now)
                        self.sent += 1
                        yield body, dst, i, report

    def evict(self, now: float) -> None:
        """Move who is slow or dead out of a group that has gone on without it."""
        for body in self.bodies.values():
            lane = body.lanes.get(ALL)
            if lane is None or len(lane.members) < 2 or not lane.flying:
                continue
            moved = {m: body.moved.get(m, 0.0) for m in lane.members}
            late = [m for m, at in moved.items() if now - at > STALL and max(moved.values()) - at > STALL / 2]
            for member in late:
                self.ask(body, member, now)


class Receiver:
    """All bodies that are arriving in pieces."""

    def __init__(self, files: Files):
        self.files = files
        self.parts: dict[tuple[str, int, int], Part] = {}
        self.reports: dict[tuple[str, int, int], int] = {}  # what is to be reported -> nonce of the offer, or 0

    def part(self, f: Chunk | Offer) -> Part | None:
        """What there is of a body; None: the peer has too many under way."""
        key = f.src, f.epoch, f.seq
        found = self.parts.get(key)
        if found is not None and (found.size, found.chunk) == (f.size, f.chunk):
            return found
        if found is not None:
            found.close()
        elif sum(1 for src, _, _ in self.parts if src == f.src) >= PARTS:
            return None
        self.parts[key] = self.files.part(f"{f.src}.{f.epoch}.{f.seq}", f.size, f.chunk)
        return self.parts[key]

    def take(self, f: Chunk | Offer) -> tuple[str, str | None]:
        """A chunk or an offer: what it was, and the file's name if the body is complete now."""
        part = self.part(f)
        if part is None:
            return "crowded", None
        verdict = part.put(f.index, f.body, f.crc) if isinstance(f, Chunk) else "offer"
        key = f.src, f.epoch, f.seq
        if part.complete:
            del self.parts[key]
            self.reports.pop(key, None)
            if part.finish(f.digest):
                return verdict, part.name
            self.reports[key] = 0  # nothing of it: it comes again
            return "broken", None
        if isinstance(f, Offer):
            self.reports[key] = f.nonce
        elif f.report:
            self.reports.setdefault(key, 0)
        return verdict, None

    def held(self) -> list[tuple[str, Held]]:
        """What is to be reported, and to whom."""
        found = []
        for key, nonce in self.reports.items():
            part = self.parts.get(key)
            bitmap = b"" if part is None else part.have.to_bytes(-(-part.count // 8), "little")
            found.append((key[0], Held(*key, bitmap, nonce)))
        self.reports = {}
        return found

    def forget(self, src: str, epoch: int) -> None:
        """Parts of a disk that the peer no longer has."""
        for key in [k for k in self.parts if k[0] == src and k[1] != epoch]:
            part = self.parts.pop(key)
            part.close()
            part.path.unlink(missing_ok=True)

    def close(self) -> None:
        for part in self.parts.values():
            part.close()
        self.parts = {}
