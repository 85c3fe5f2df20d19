"""Messages on their way out. Each is in the store and in the outbox, and in the transfers while it goes in chunks.

Here the three are kept in step. The store decides: what is not in it was never sent, and what is in it is sent until
its receivers have acknowledged it. So a message is written before it is queued, and its row goes only after the
acknowledgements. A large body is a file, which is there before the row that names it and is deleted after the commit
in which that row goes; a crash in between leaves a file without a row, and never a row without a file. Functions that
change the disk are called within the session's transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from edge_sdk.contract.records import changed
from edge_sdk.delivery.messages.outbox import Outbox, OutboxMessage
from edge_sdk.delivery.messages.outgoing_transfers import OutgoingTransfers
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import EncodedMessage
from edge_sdk.delivery.storage.checksums import checksums, make_digest
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.files import INLINE
from edge_sdk.delivery.storage.outbox_table import OutboxRow, is_answer
from edge_sdk.delivery.storage.store import Store
from edge_sdk.wire.frames import ChunkReport


class Outgoing:
    """Messages of a session that are not done with.

    Args:
        rto: seconds until the first repetition of a message.
        most: bytes of bodies above which the oldest notices are given up.

    Attributes:
        done_deliveries: (message, receiver) that were acknowledged; `delete_done` deletes their rows.
        done_sent: messages that everybody has acknowledged; `delete_done` forgets them.
        done_files: files of forgotten messages; the caller removes them after the commit.
    """

    def __init__(self, store: Store, counters: Counters, rto: float, most: float):
        self.store, self.counters, self.most = store, counters, most
        self.outbox, self.transfers_out = Outbox(rto), OutgoingTransfers()
        self.done_deliveries: list[tuple[int, str]] = []
        self.done_sent: list[OutboxMessage] = []
        self.done_files: list[str] = []

    def load(self) -> list[OutboxRow]:
        """Take up what an earlier process has left on the disk; returns its rows."""
        self.outbox.seq = self.store.load_next_seq()
        found = list(self.store.outbox.load_rows())
        for sent in found:
            self.outbox.add_message(sent, self.store.outbox.load_body(sent.seq) if sent.pending else None)
            self.outbox.outs[sent.seq].fresh = False
            self.outbox.outs[sent.seq].expires = time.monotonic() + sent.expires - time.time()
        return found

    def recover_commits(self, owed: Iterable[str]) -> None:
        """Ask again where the last commits before a power cut are missing: the store shows itself as another disk.

        The parent asks its question again, as it does after a lost disk. The children that owe an answer are asked
        again from here: what they answered meanwhile may be among what is missing, and they take the new epoch for a
        parent that counts anew. An answer that did arrive pays its debt, so none counts twice.
        """
        if not self.store.rolled_back:
            return
        self.counters.count("store_rolled_back")
        with self.store.transaction():
            for child in owed:
                self.ask_again(child)
            self.store.note_recovery()

    # -- sending

    def send_message(self, message: EncodedMessage, chunk: int, everybody: Sequence[str]) -> None:
        """Save and queue a new message.

        Args:
            chunk: bytes that travel together; what is longer goes in chunks.
            everybody: the children who hear what is said to all.
        """
        seq, size = self.outbox.seq, len(message.body)
        sent = OutboxRow(seq, message.number, message.asks, message.to, frozenset(message.to), chunk, size=size)
        if not (message.asks or message.up):
            sent = changed(sent, notice=True, expires=time.time() + message.lasts)
        pieces = checksums(message.body, chunk) if size > chunk else ()
        if pieces:
            sent = changed(sent, digest=make_digest(pieces))
        if size > INLINE:
            sent = changed(sent, file=f"{seq}.out")
        self.supersede(sent, message.up)
        self.forget_messages(self.outbox.add_message(sent, message.body))
        if (
            sent.notice
        ):  # by a clock that nobody sets; what is saved is by the wall clock, as no other outlives a process
            self.outbox.outs[seq].expires = time.monotonic() + message.lasts
        self.store.save_sent(sent, message.body)
        if sent.file:
            self.outbox.outs[seq].body = self.store.files.read(sent.file)  # from the disk: it need not be in memory
        self.outbox.outs[seq].checksums = pieces
        self.outbox.queue_new(self.outbox.outs[seq], frozenset(everybody))

    def cut_anew(self, out: OutboxMessage, chunk: int) -> None:
        """Let a message travel in smaller chunks from now on. What has come of it in others is asked for again.

        Nothing of that is saved: after a restart it is cut by what is known of the broker then. Its number stays, so it
        counts once, whatever sizes it came in.
        """
        assert out.body is not None
        self.transfers_out.drop_body(out.seq)
        out.chunk, out.checksums = chunk, checksums(out.body, chunk)
        out.digest = make_digest(out.checksums)

    def supersede(self, sent: OutboxRow, up: bool) -> None:
        """Give up what the receiver would refuse after this message: older questions, or answers to older ones."""
        for dst in sent.pending:
            if up:
                old = self.outbox.older_answers(dst, sent.number)
            else:
                old = self.outbox.older_questions(dst, sent.seq) if sent.asks else []
            for out in old:
                self.counters.count(f"superseded.{dst}")
                self.give_up(out, dst)

    def drop_notices(self) -> None:
        """Give up notices that have expired, and the oldest ones where all messages together take up too much."""
        if not self.outbox.notices:
            return
        for why, outs in (
            ("expired", self.outbox.outdated(time.monotonic())),
            ("dropped", self.outbox.oldest_notices(self.outbox.bytes - self.most)),
        ):
            for out in outs:
                for dst in sorted(out.pending):
                    self.counters.count(f"{why}.{dst}")
                    self.give_up(out, dst)

    def ask_again(self, dst: str) -> None:
        """Send the latest question once more to a child that has lost its disk."""
        if out := self.outbox.ask_again(dst):
            out.body = self.store.outbox.load_body(out.seq)
            self.store.outbox.add_deliveries([(out.seq, dst)])

    # -- what its receivers say

    def note_report(self, src: str, held: ChunkReport, now: float) -> None:
        """Note how much a receiver has of a body."""
        self.transfers_out.note_report(src, held, now)
        self.outbox.note_progress(src, now)

    def note_ack(self, src: str, seq: int, now: float) -> bool:
        """Note that a receiver has saved a message; True if that was news."""
        news, done = self.outbox.note_ack(src, seq, now)
        if news:
            self.transfers_out.note_ack(src, seq)
            reach("heard")
            if not (done and is_answer(done[0].asks, done[0].receivers)):
                self.done_deliveries.append((seq, src))
            self.done_sent += done
        return news

    # -- the end of a message

    def give_up(self, out: OutboxMessage, dst: str) -> None:
        """Send a message to this receiver no more."""
        self.store.outbox.drop_deliveries([(out.seq, dst)])
        self.transfers_out.note_ack(dst, out.seq)
        self.forget_messages(self.outbox.give_up(out, dst))

    def give_up_all(self, dst: str) -> None:
        """Send this receiver nothing that it has not acknowledged."""
        for out in self.outbox.waiting(dst):
            self.give_up(out, dst)

    def give_up_notices(self, dst: str) -> None:
        """Send this receiver none of the notices that it has not acknowledged."""
        for out in self.outbox.waiting(dst):
            if out.notice:
                self.give_up(out, dst)

    def delete_done(self) -> None:
        """Delete the rows of what was acknowledged since the last time."""
        if self.done_deliveries:
            self.store.outbox.drop_deliveries(self.done_deliveries)
        if self.done_sent:
            self.forget_messages(self.done_sent)
        self.done_deliveries, self.done_sent = [], []

    def forget_messages(self, outs: Sequence[OutboxMessage]) -> None:
        """Drop messages here and on the disk. Their files are deleted after the commit."""
        self.store.outbox.drop_rows(out.seq for out in outs)
        self.done_files += [out.file for out in outs if out.file is not None]
        for out in outs:
            self.transfers_out.drop_body(out.seq)
