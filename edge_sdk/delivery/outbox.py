"""What is to be sent to whom, and when again. Sans-I/O: the caller publishes what `next` says, reports what it hears.

A message waits for the acknowledgement of each of its receivers. It is published at once (to all children together
where that is the same), again when a receiver comes back, and again when nothing was heard of it for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from edge_sdk.delivery.store import Sent
from edge_sdk.wire.frames import Buffer
from edge_sdk.wire.topics import ALL

PATIENCE = 8  # times as long, for a body in pieces: its reports come seldom over a slow link
LONGEST = 60.0  # seconds between two repetitions, at most


@dataclass
class Out:
    """One message on its way.

    Attributes:
        asked: receivers for whom it is the latest question.
        chunk: bytes that travel together.
        checksums: of the pieces, where they have been computed already.
        file: holds the body.
        fresh: nothing of it has been sent.
        notice: nobody owes or is owed an answer by it. expires: by time.time().
        size: of the body, in bytes.
    """

    seq: int
    number: int
    asks: bool
    receivers: tuple[str, ...]
    body: Buffer | None
    pending: set[str]
    chunk: int = 0
    digest: bytes = b""
    checksums: tuple[int, ...] = ()
    file: str | None = None
    fresh: bool = True
    notice: bool = False
    expires: float = inf
    size: int = 0
    asked: set[str] = field(default_factory=set)

    @property
    def whole(self) -> bool:
        return self.body is None or len(self.body) <= self.chunk


@dataclass
class Wait:
    """For acknowledgements of one peer. `patience`: how much longer than usual."""

    until: float = inf
    tries: int = 0
    patience: int = 1


class Outbox:
    """All messages of a node that are not done with.

    Args:
        rto: seconds without any acknowledgement after which a peer is sent everything again; doubles each time.
    """

    def __init__(self, rto: float = 2.0):
        self.rto = rto
        self.outs: dict[int, Out] = {}
        self.pending: dict[str, dict[int, None]] = {}  # receiver -> its unacknowledged, in order
        self.latest: dict[str, int] = {}  # child -> its latest question
        self.present: set[str] = set()
        self.queue: deque[tuple[int, str]] = deque()
        self.queued: set[tuple[int, str]] = set()
        self.waits: dict[str, Wait] = {}
        self.notices = 0
        self.seq = 1

    # -- contents

    def add(self, sent: Sent, body: Buffer | None) -> list[Out]:
        """A message; returns those that need not be kept any longer because of it."""
        self.seq = max(self.seq, sent.seq + 1)
        out = Out(sent.seq, sent.number, sent.asks, sent.receivers, body, set(sent.pending))
        out.chunk, out.digest, out.file = sent.chunk, sent.digest, sent.file
        out.notice, out.expires, out.size = sent.notice, sent.expires, sent.size
        self.outs[out.seq] = out
        self.notices += out.notice
        for dst in out.pending:
            self.pending.setdefault(dst, {})[out.seq] = None
        return self.note_question(out) if out.asks else []

    def note_question(self, out: Out) -> list[Out]:
        out.asked = set(out.receivers)
        done: list[Out] = []
        for dst in out.receivers:
            before = self.outs.get(self.latest.get(dst, 0))
            self.latest[dst] = out.seq
            if before is not None:
                before.asked.discard(dst)
                done += self.drop_if_done(before)
        return done

    def acked(self, dst: str, seq: int, now: float) -> tuple[bool, list[Out]]:
        """Whether that was news, and the messages that need not be kept any longer."""
        out = self.outs.get(seq)
        if out is None or dst not in out.pending:
            return False, []
        self.moved(dst, now)
        return True, self.give_up(out, dst)

    def give_up(self, out: Out, dst: str) -> list[Out]:
        out.pending.discard(dst)
        del self.pending[dst][out.seq]
        if not self.pending[dst]:
            del self.pending[dst]
            self.waits.pop(dst, None)
        return self.drop_if_done(out)

    def drop_if_done(self, out: Out) -> list[Out]:
        if out.pending or out.asked:
            if not out.pending:
                out.body = None  # kept on disk, in case its receiver loses its own
            return []
        del self.outs[out.seq]
        self.notices -= out.notice
        return [out]

    def again(self, dst: str) -> Out | None:
        """The latest question to a child, on its way once more: the child has lost its disk."""
        out = self.outs.get(self.latest.get(dst, 0))
        if out is None or dst in out.pending:
            return None
        out.pending.add(dst)
        mine = [*self.pending.get(dst, {}), out.seq]
        self.pending[dst] = dict.fromkeys(sorted(mine))
        return out

    def older_questions(self, dst: str, seq: int) -> list[Out]:
        """Unacknowledged questions to a child before `seq`."""
        return [o for o in self.waiting(dst) if o.asks and o.seq < seq]

    def older_answers(self, parent: str, number: int) -> list[Out]:
        """Unacknowledged answers that the parent would refuse, because it has asked `number` since."""
        return [o for o in self.waiting(parent) if o.number < number]

    def waiting(self, dst: str) -> list[Out]:
        return [self.outs[seq] for seq in self.pending.get(dst, ())]

    @property
    def bytes(self) -> int:
        """Of all bodies that are kept."""
        return sum(out.size for out in self.outs.values())

    def outdated(self, now: float) -> list[Out]:
        """Notices that are not worth sending any more. `now`: time.time()."""
        return [out for out in self.outs.values() if now >= out.expires]

    def oldest_notices(self, excess: float) -> list[Out]:
        """As many notices, from the oldest on, as make up for `excess` bytes; fewer where there are not so many."""
        found: list[Out] = []
        for out in self.outs.values():
            if excess <= 0:
                break
            if out.notice:
                found.append(out)
                excess -= out.size
        return found

    def lowest(self, receivers: Iterable[str]) -> int:
        """`lo` of a frame: below it all of these receivers have acknowledged everything."""
        return min((next(iter(self.pending[dst])) for dst in receivers if dst in self.pending), default=self.seq)

    # -- sending

    def send(self, out: Out, everybody: frozenset[str]) -> None:
        """A new message. `everybody`: the children who hear what is said to all."""
        to = sorted(out.pending & self.present)
        if len(to) > 1 and frozenset(to) == everybody:
            to = [ALL]
        for dst in to:
            self.enqueue(out.seq, dst)

    def enqueue(self, seq: int, dst: str) -> None:
        if (seq, dst) not in self.queued:
            self.queued.add((seq, dst))
            self.queue.append((seq, dst))

    def came(self, dst: str) -> None:
        """A peer can be reached (again)."""
        self.present.add(dst)
        self.waits.pop(dst, None)
        for seq in self.pending.get(dst, ()):
            self.enqueue(seq, dst)

    def went(self, dst: str) -> None:
        self.present.discard(dst)
        self.waits.pop(dst, None)

    def next(self, now: float) -> tuple[Out, str, list[str]] | None:
        """The next message to publish: to which peer (or ALL), and those of its receivers who have not got it."""
        while self.queue:
            seq, dst = self.queue.popleft()
            self.queued.discard((seq, dst))
            out = self.outs.get(seq)
            to = sorted(out.pending & self.present) if dst == ALL and out else [dst]
            if out is not None and out.pending.intersection(to) and self.present.issuperset(to):
                for each in to:
                    self.wait(each, now, 1 if out.whole else PATIENCE)
                return out, dst, to
        return None

    def expire(self, now: float) -> list[str]:
        """Repeat what was not acknowledged in time; by whom."""
        late = []
        for dst, wait in self.waits.items():
            if now >= wait.until and dst in self.present:
                wait.tries += 1
                wait.until = now + min(LONGEST, self.rto * wait.patience * 2**wait.tries)
                late.append(dst)
                for seq in self.pending.get(dst, ()):
                    self.enqueue(seq, dst)
        return late

    def moved(self, dst: str, now: float) -> None:
        """A sign of progress: the repetition can wait."""
        if dst in self.waits:
            self.waits[dst] = Wait(now + self.rto * self.waits[dst].patience, 0, self.waits[dst].patience)

    def wait(self, dst: str, now: float, patience: int) -> None:
        before = self.waits.get(dst)
        if before is None or before.patience < patience:
            self.waits[dst] = Wait(now + self.rto * patience, 0, patience)

    def expiry(self) -> float:
        """When the next notice expires, by time.time()."""
        return min((out.expires for out in self.outs.values()), default=inf) if self.notices else inf

    def timer(self) -> float:
        return min((w.until for w in self.waits.values()), default=inf)
