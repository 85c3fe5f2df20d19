"""Messages on their way, which are in three places: on the disk, in the outbox, and in the sender if they go in pieces.

Here these are kept in step. What changes the disk is called within a transaction of the caller's; files go after it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from edge_sdk.contract.records import changed
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Parcel
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.files import INLINE, checksums, digest
from edge_sdk.delivery.outbox import Out, Outbox
from edge_sdk.delivery.store import Sent, Store, is_answer
from edge_sdk.delivery.transfer import Sender
from edge_sdk.wire.frames import Held


class Outgoing:
    """What a session has sent and is not done with.

    Args:
        rto: seconds until the first repetition of a message.
        most: bytes of bodies, above which the oldest notices go.

    Attributes:
        done_deliveries, done_sent: acknowledged, and to be deleted by `tidy`.
        done_files: to be removed after the commit, by the caller.
    """

    def __init__(self, store: Store, counters: Counters, rto: float, most: float):
        self.store, self.counters, self.most = store, counters, most
        self.outbox, self.sender = Outbox(rto), Sender()
        self.done_deliveries: list[tuple[int, str]] = []
        self.done_sent: list[Out] = []
        self.done_files: list[str] = []

    def load(self) -> list[Sent]:
        """Take up what is on the disk."""
        self.outbox.seq = self.store.next_seq()
        found = list(self.store.outbox())
        for sent in found:
            self.outbox.add(sent, self.store.body(sent.seq) if sent.pending else None)
            self.outbox.outs[sent.seq].fresh = False
        return found

    # -- sending

    def send(self, parcel: Parcel, chunk: int, everybody: Sequence[str]) -> None:
        """A new message.

        Args:
            chunk: bytes that travel together; what is longer goes in pieces.
            everybody: the children who hear what is said to all.
        """
        seq, size = self.outbox.seq, len(parcel.body)
        sent = Sent(seq, parcel.number, parcel.asks, parcel.to, frozenset(parcel.to), chunk, size=size)
        if not (parcel.asks or parcel.up):
            sent = changed(sent, notice=True, expires=time.time() + parcel.lasts)
        pieces = checksums(parcel.body, chunk) if size > chunk else ()
        if pieces:
            sent = changed(sent, digest=digest(pieces))
        if size > INLINE:
            sent = changed(sent, file=f"{seq}.out")
        self.supersede(sent, parcel.up)
        self.drop(self.outbox.add(sent, parcel.body))
        self.store.save_sent(sent, parcel.body)
        if sent.file:
            self.outbox.outs[seq].body = self.store.files.read(sent.file)  # from the disk: it need not be in memory
        self.outbox.outs[seq].checksums = pieces
        self.outbox.send(self.outbox.outs[seq], frozenset(everybody))

    def supersede(self, sent: Sent, up: bool) -> None:
        """Give up what its receiver would refuse now: older questions to a child, answers to older ones upward."""
        for dst in sent.pending:
            if up:
                old = self.outbox.older_answers(dst, sent.number)
            else:
                old = self.outbox.older_questions(dst, sent.seq) if sent.asks else []
            for out in old:
                self.counters.count(f"superseded.{dst}")
                self.give_up(out, dst)

    def bound(self) -> None:
        """Give up notices that have expired, and the oldest ones where there is too much."""
        if not self.outbox.notices:
            return
        for why, outs in (
            ("expired", self.outbox.outdated(time.time())),
            ("dropped", self.outbox.oldest_notices(self.outbox.bytes - self.most)),
        ):
            for out in outs:
                for dst in sorted(out.pending):
                    self.counters.count(f"{why}.{dst}")
                    self.give_up(out, dst)

    def again(self, dst: str) -> None:
        """The latest question to a child that has lost its disk."""
        if out := self.outbox.again(dst):
            out.body = self.store.body(out.seq)
            self.store.deliver_again(out.seq, dst)

    # -- what its receivers say

    def reported(self, src: str, held: Held, now: float) -> None:
        """A receiver has this much of a message."""
        self.sender.reported(src, held, now)
        self.outbox.moved(src, now)

    def acked(self, src: str, seq: int, now: float) -> bool:
        """A receiver has all of it; whether that was news."""
        news, done = self.outbox.acked(src, seq, now)
        if news:
            self.sender.acked(src, seq)
            reach("heard")
            if not (done and is_answer(done[0].asks, done[0].receivers)):
                self.done_deliveries.append((seq, src))
            self.done_sent += done
        return news

    # -- the end of a message

    def give_up(self, out: Out, dst: str) -> None:
        """It is not sent to this receiver any more."""
        self.store.drop_deliveries([(out.seq, dst)])
        self.sender.acked(dst, out.seq)
        self.drop(self.outbox.give_up(out, dst))

    def tidy(self) -> None:
        """Delete what is acknowledged."""
        if self.done_deliveries:
            self.store.drop_deliveries(self.done_deliveries)
        if self.done_sent:
            self.drop(self.done_sent)
        self.done_deliveries, self.done_sent = [], []

    def drop(self, outs: Sequence[Out]) -> None:
        """Forget messages. Their files go after the commit."""
        self.store.drop_sent(out.seq for out in outs)
        self.done_files += [out.file for out in outs if out.file is not None]
        for out in outs:
            self.sender.drop(out.seq)
