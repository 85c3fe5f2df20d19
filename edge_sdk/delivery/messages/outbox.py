"""The outbox: what is to be sent to whom, and when again. Sans-I/O: the caller publishes, and reports what it hears.

A message waits for the acknowledgement of each of its receivers. It is published at once (to all children together,
where these are its receivers), again when a receiver comes back, and again when nothing was heard of it for a while.
A broker may lose anything, so nothing but the receiver's own word ends this. The waiting doubles each time, and starts
anew at each sign of progress: over a slow link, a repetition that comes too early only makes it slower.

A question stays after its acknowledgement until the child has been asked another one, because a child that comes back
with a new disk is asked it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.wire.frames import Buffer
from edge_sdk.wire.topics import ALL

PATIENCE = 8  # times as long is waited for a body in chunks: its reports come seldom over a slow link
LONGEST = 60.0  # seconds between two repetitions, at most


@dataclass
class OutboxMessage:
    """One message that is not done with.

    Attributes:
        body: None where everybody has it, and it is kept on the disk only.
        pending: receivers who have not acknowledged it.
        chunk: bytes that travel together.
        checksums: of the chunks, where they have been computed already.
        file: holds the body, where that is large.
        fresh: nothing of it has been sent.
        notice: nobody owes or is owed an answer by it.
        expires: when it is not worth sending any more, by time.monotonic().
        size: of the body, in bytes.
        asked: receivers for whom it is the latest question.
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
    def is_whole(self) -> bool:
        """It travels in one frame."""
        return self.body is None or len(self.body) <= self.chunk


@dataclass
class Wait:
    """Waiting for an acknowledgement of one peer.

    Attributes:
        until: when everything is sent again, by time.monotonic().
        tries: repetitions so far.
        patience: how many times longer than usual is waited.
    """

    until: float = inf
    tries: int = 0
    patience: int = 1


class Outbox:
    """All messages of a node that are not done with.

    Args:
        rto: seconds without any acknowledgement after which a peer is sent everything again; doubles each time.

    Attributes:
        pending: receiver -> numbers of the messages that it has not acknowledged, in order.
        latest: child -> number of its latest question.
        present: peers that can be reached.
        queue: what is to be published next, and to whom (a peer or ALL).
        waits: peer -> until when an acknowledgement is waited for.
        notices: how many of the messages are notices.
        seq: number of the next message.
    """

    def __init__(self, rto: float = 2.0):
        self.rto = rto
        self.outs: dict[int, OutboxMessage] = {}
        self.pending: dict[str, dict[int, None]] = {}
        self.latest: dict[str, int] = {}
        self.present: set[str] = set()
        self.queue: deque[tuple[int, str]] = deque()
        self.queued: set[tuple[int, str]] = set()
        self.waits: dict[str, Wait] = {}
        self.notices = 0
        self.seq = 1

    # -- contents

    def add_message(self, sent: OutboxRow, body: Buffer | None) -> list[OutboxMessage]:
        """Add a message; returns the messages that need not be kept any longer because of it."""
        self.seq = max(self.seq, sent.seq + 1)
        out = OutboxMessage(sent.seq, sent.number, sent.asks, sent.receivers, body, set(sent.pending))
        out.chunk, out.digest, out.file = sent.chunk, sent.digest, sent.file
        out.notice, out.expires, out.size = sent.notice, sent.expires, sent.size
        self.outs[out.seq] = out
        self.notices += out.notice
        for dst in out.pending:
            self.pending.setdefault(dst, {})[out.seq] = None
        return self.note_question(out) if out.asks else []

    def note_question(self, out: OutboxMessage) -> list[OutboxMessage]:
        """This is its receivers' latest question now; returns earlier ones that are done with."""
        out.asked = set(out.receivers)
        done: list[OutboxMessage] = []
        for dst in out.receivers:
            before = self.outs.get(self.latest.get(dst, 0))
            self.latest[dst] = out.seq
            if before is not None:
                before.asked.discard(dst)
                done += self.drop_if_done(before)
        return done

    def note_ack(self, dst: str, seq: int, now: float) -> tuple[bool, list[OutboxMessage]]:
        """Note that a receiver has a message; returns whether that was news, and the messages done with by it."""
        out = self.outs.get(seq)
        if out is None or dst not in out.pending:
            return False, []
        self.note_progress(dst, now)
        return True, self.give_up(out, dst)

    def give_up(self, out: OutboxMessage, dst: str) -> list[OutboxMessage]:
        """Send a message to this receiver no more; returns the messages that are done with by it."""
        out.pending.discard(dst)
        del self.pending[dst][out.seq]
        if not self.pending[dst]:
            del self.pending[dst]
            self.waits.pop(dst, None)
        return self.drop_if_done(out)

    def drop_if_done(self, out: OutboxMessage) -> list[OutboxMessage]:
        """Forget a message that everybody has and that is nobody's latest question."""
        if out.pending or out.asked:
            if not out.pending:
                out.body = None  # kept on disk, in case its receiver loses its own
            return []
        del self.outs[out.seq]
        self.notices -= out.notice
        return [out]

    def ask_again(self, dst: str) -> OutboxMessage | None:
        """Send a child its latest question once more: it has lost its disk."""
        out = self.outs.get(self.latest.get(dst, 0))
        if out is None or dst in out.pending:
            return None
        out.pending.add(dst)
        mine = [*self.pending.get(dst, {}), out.seq]
        self.pending[dst] = dict.fromkeys(sorted(mine))
        return out

    def find_acknowledged(self, dst: str) -> int:
        """Number of a child's latest question, if it has acknowledged that; 0: it has not, or there is none."""
        out = self.outs.get(self.latest.get(dst, 0))
        return 0 if out is None or dst in out.pending else out.seq

    def older_questions(self, dst: str, seq: int) -> list[OutboxMessage]:
        """Unacknowledged questions to a child before the one numbered `seq`."""
        return [o for o in self.waiting(dst) if o.asks and o.seq < seq]

    def older_answers(self, parent: str, number: int) -> list[OutboxMessage]:
        """Unacknowledged answers that the parent would refuse, because it has asked `number` since."""
        return [o for o in self.waiting(parent) if o.number < number]

    def waiting(self, dst: str) -> list[OutboxMessage]:
        return [self.outs[seq] for seq in self.pending.get(dst, ())]

    @property
    def bytes(self) -> int:
        """Size of all bodies that are kept."""
        return sum(out.size for out in self.outs.values())

    def outdated(self, now: float) -> list[OutboxMessage]:
        """Notices that are not worth sending any more. `now`: time.monotonic()."""
        return [out for out in self.outs.values() if now >= out.expires]

    def oldest_notices(self, excess: float) -> list[OutboxMessage]:
        """The oldest notices that together have at least `excess` bytes; all where there are not so many."""
        found: list[OutboxMessage] = []
        for out in self.outs.values():
            if excess <= 0:
                break
            if out.notice:
                found.append(out)
                excess -= out.size
        return found

    def lowest(self, receivers: Iterable[str]) -> int:
        """Number below which all of these receivers have acknowledged everything: `lo` of a frame to them."""
        return min((next(iter(self.pending[dst])) for dst in receivers if dst in self.pending), default=self.seq)

    # -- sending

    def queue_new(self, out: OutboxMessage, everybody: frozenset[str]) -> None:
        """Queue a new message. `everybody`: the children who hear what is said to all."""
        to = sorted(out.pending & self.present)
        if len(to) > 1 and frozenset(to) == everybody:
            to = [ALL]
        for dst in to:
            self.enqueue(out.seq, dst)

    def enqueue(self, seq: int, dst: str) -> None:
        if (seq, dst) not in self.queued:
            self.queued.add((seq, dst))
            self.queue.append((seq, dst))

    def peer_came(self, dst: str) -> None:
        """A peer can be reached (again)."""
        self.present.add(dst)
        self.waits.pop(dst, None)
        for seq in self.pending.get(dst, ()):
            self.enqueue(seq, dst)

    def peer_went(self, dst: str) -> None:
        self.present.discard(dst)
        self.waits.pop(dst, None)

    def next_message(self, now: float) -> tuple[OutboxMessage, str, list[str]] | None:
        """The next message to publish, to which peer (or ALL), and its receivers there who have not got it."""
        while self.queue:
            seq, dst = self.queue.popleft()
            self.queued.discard((seq, dst))
            out = self.outs.get(seq)
            to = sorted(out.pending & self.present) if dst == ALL and out else [dst]
            if out is not None and out.pending.intersection(to) and self.present.issuperset(to):
                for each in to:
                    self.start_waiting(each, now, 1 if out.is_whole else PATIENCE)
                return out, dst, to
        return None

    def repeat_late(self, now: float) -> list[str]:
        """Queue again what was not acknowledged in time; returns the peers who are late."""
        late = []
        for dst, wait in self.waits.items():
            if now >= wait.until and dst in self.present:
                wait.tries += 1
                wait.until = now + min(LONGEST, self.rto * wait.patience * 2**wait.tries)
                late.append(dst)
                for seq in self.pending.get(dst, ()):
                    self.enqueue(seq, dst)
        return late

    def note_progress(self, dst: str, now: float) -> None:
        """A sign of progress: the repetition can wait."""
        if dst in self.waits:
            self.waits[dst] = Wait(now + self.rto * self.waits[dst].patience, 0, self.waits[dst].patience)

    def start_waiting(self, dst: str, now: float, patience: int) -> None:
        """Expect an acknowledgement of a peer from now on, if none is expected already."""
        before = self.waits.get(dst)
        if before is None or before.patience < patience:
            self.waits[dst] = Wait(now + self.rto * patience, 0, patience)

    def next_expiry(self) -> float:
        """When the next notice expires, by time.monotonic(); inf: never."""
        return min((out.expires for out in self.outs.values()), default=inf) if self.notices else inf

    def get_timer(self) -> float:
        """When `repeat_late` has something to do, by time.monotonic()."""
        return min((w.until for w in self.waits.values()), default=inf)
