"""The table of messages that are to be sent, and who has not acknowledged them. Called within a transaction.

A message that is done with leaves its row to the next one: to write over a row costs SQLite half of what a deleted and
a new row cost. So rows are numbered by `slot`, and not by the message that is in them at the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.records import changed, record
from edge_sdk.delivery.storage.checksums import (
    StoreDamaged,
    check_row,
    check_saved,
    checksum,
    checksums,
    make_digest,
    row_checksum,
)
from edge_sdk.delivery.storage.database import Database
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.files import Files
from edge_sdk.wire.frames import Buffer

ABOUT = "slot, seq, number, asks, receivers, file, chunk, digest, notice, expires, size, crc"
INSERT = f"insert into outbox({ABOUT}, row_crc, body) values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
WRITE_OVER = """
update outbox set seq = ?, number = ?, asks = ?, receivers = ?, file = ?, chunk = ?, digest = ?, notice = ?,
    expires = ?, size = ?, crc = ?, row_crc = ?, body = ? where slot = ?
"""


@record
class OutboxRow:
    """A message that is to be sent, without its body.

    Attributes:
        number: of the question that it asks or answers.
        asks: its receivers owe an answer.
        pending: those of `receivers` who have not acknowledged it.
        chunk: bytes that travel together; a body that is larger is sent in pieces.
        digest: of a body that is sent in pieces.
        file: holds the body, where it is not in the row.
        notice: nobody owes or is owed an answer by it.
        expires: when it is not worth sending any more, by time.time().
        size: of the body, in bytes.
    """

    seq: int
    number: int
    asks: bool
    receivers: tuple[str, ...]
    pending: frozenset[str]
    chunk: int = 0
    digest: bytes = b""
    file: str | None = None
    notice: bool = False
    expires: float = inf
    size: int = 0


class OutboxTable:
    """Rows of `outbox` and `deliver`.

    Attributes:
        slots: seq of a message -> its row.
        free: rows whose message is done with; those that no message has taken are deleted before the commit.
        last: the highest row that is used or free.
        written: bytes of bodies that went into the database since somebody last set this to 0.
    """

    def __init__(self, db: Database, files: Files):
        self.db, self.files = db, files
        self.slots: dict[int, int] = {}
        self.free: list[int] = []
        self.last = self.written = 0

    def load_rows(self) -> list[OutboxRow]:
        """All messages, in the order in which they were made.

        Raises:
            StoreDamaged: a row is not what was saved.
        """
        pending: dict[int, set[str]] = {}
        for seq, dst, crc in self.db.execute("select seq, dst, row_crc from deliver"):
            check_row(f"delivery of message {seq}", crc, seq, dst)
            pending.setdefault(seq, set()).add(dst)
        found = []
        for *row, crc in self.db.execute(f"select {ABOUT}, row_crc from outbox order by seq"):
            slot, seq, number, asks, packed, file, chunk, digest, notice, expires, size, _ = row
            check_row(f"message {seq}", crc, *row)
            self.slots[seq] = slot
            self.last = max(self.last, slot)
            names = tuple(msgpack.unpackb(packed))
            waiting = names if is_answer(bool(asks), names) else pending.get(seq, ())
            about = OutboxRow(seq, number, bool(asks), names, frozenset(waiting), chunk, digest, file)
            found.append(changed(about, notice=bool(notice), expires=expires, size=size))
        return found

    def load_body(self, seq: int) -> Buffer:
        """The body of a message, as it was written.

        Raises:
            StoreDamaged: it is something else now.
        """
        row = self.db.execute("select body, file, chunk, digest, crc from outbox where slot = ?", (self.slots[seq],))
        body, file, chunk, known, crc = row.fetchone()
        found: Buffer = self.files.read_saved(file) if file else body
        check_saved(f"message {seq}", found, crc)
        if known and make_digest(checksums(found, chunk)) != known:
            raise StoreDamaged(f"message {seq}: its digest is not the one that was saved with it")
        return found

    def save_row(self, row: OutboxRow, body: Buffer) -> None:
        """Save a new message. A large body becomes a file before the row names it, so that a row always finds it."""
        if row.file:
            self.files.write(row.file, body)
            reach("file")
        self.written += len(body)
        over = bool(self.free)
        slot = self.free.pop() if over else self.last + 1
        self.last = max(self.last, slot)
        self.slots[row.seq] = slot
        # what goes in chunks has a digest by which its receiver checks it, and so do we
        crc = None if row.digest else checksum(body)
        about: list[object] = [row.seq, row.number, int(row.asks), msgpack.packb(row.receivers), row.file, row.chunk]
        about += [row.digest, int(row.notice), float(row.expires), len(body), crc]
        values = (*about, row_checksum(slot, *about), None if row.file else body)
        if over:
            self.db.execute(WRITE_OVER, (*values, slot))
        else:
            self.db.execute(INSERT, (slot, *values))
        if not is_answer(row.asks, row.receivers):
            self.add_deliveries((row.seq, dst) for dst in row.pending)

    def drop_rows(self, seqs: Iterable[int]) -> None:
        """Forget messages. Their rows are taken by later ones, or deleted by `delete_free`."""
        self.free += [slot for seq in seqs if (slot := self.slots.pop(seq, None)) is not None]

    def delete_free(self) -> None:
        """Delete the rows that no later message of this transaction has taken. To be called before each commit."""
        if self.free:
            self.db.executemany("delete from outbox where slot = ?", [(slot,) for slot in self.free])
            self.free = []

    def add_deliveries(self, pairs: Iterable[tuple[int, str]]) -> None:
        """These receivers, by message, are to get it (once more)."""
        rows = [(seq, dst, row_checksum(seq, dst)) for seq, dst in pairs]
        self.db.executemany("insert or ignore into deliver values(?, ?, ?)", rows)

    def drop_deliveries(self, pairs: Iterable[tuple[int, str]]) -> None:
        """These receivers, by message, have it or need it no longer."""
        self.db.executemany("delete from deliver where seq = ? and dst = ?", pairs)


def is_answer(asks: bool, receivers: Sequence[str]) -> bool:
    """One receiver, and nothing to be kept once that has it."""
    return not asks and len(receivers) == 1
