"""The table of messages that are to be sent, and who has not acknowledged them. Called within a transaction.

A message that is done with leaves its row to the next one: to write over a row costs SQLite half of what a deleted and
a new row cost. So rows are numbered by `slot`, and not by the message that is in them at the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.records import changed, record
from edge_sdk.delivery.checksums import StoreDamaged, check_saved, checksum, checksums, make_digest
from edge_sdk.delivery.database import Database
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.files import Files
from edge_sdk.wire.frames import Buffer

INSERT = "insert into outbox values(null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
WRITE_OVER = """
update outbox set seq = ?, number = ?, asks = ?, receivers = ?, body = ?, file = ?, chunk = ?, digest = ?, notice = ?,
    expires = ?, size = ?, crc = ? where slot = ?
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
        written: bytes of bodies that went into the database since somebody last set this to 0.
    """

    def __init__(self, db: Database, files: Files):
        self.db, self.files = db, files
        self.slots: dict[int, int] = {}
        self.free: list[int] = []
        self.written = 0

    def load_rows(self) -> list[OutboxRow]:
        """All messages, in the order in which they were made."""
        pending: dict[int, set[str]] = {}
        for seq, dst in self.db.execute("select seq, dst from deliver"):
            pending.setdefault(seq, set()).add(dst)
        columns = "slot, seq, number, asks, receivers, chunk, digest, file, notice, expires, size"
        rows = self.db.execute(f"select {columns} from outbox order by seq")
        found = []
        for slot, seq, number, asks, packed, chunk, digest, file, notice, expires, size in rows:
            self.slots[seq] = slot
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
        values = [row.seq, row.number, row.asks, msgpack.packb(row.receivers)]
        values += [None if row.file else body, row.file, row.chunk, row.digest]
        # what goes in chunks has a digest by which its receiver checks it, and so do we
        values += [row.notice, row.expires, len(body), None if row.digest else checksum(body)]
        if row.file:
            self.files.write(row.file, body)
            reach("file")
        self.written += len(body)
        if self.free:
            self.slots[row.seq] = self.free.pop()
            self.db.execute(WRITE_OVER, (*values, self.slots[row.seq]))
        else:
            slot = self.db.execute(INSERT, values).lastrowid
            assert slot is not None
            self.slots[row.seq] = slot
        if not is_answer(row.asks, row.receivers):
            self.db.executemany("insert into deliver values(?, ?)", [(row.seq, dst) for dst in row.pending])

    def drop_rows(self, seqs: Iterable[int]) -> None:
        """Forget messages. Their rows are taken by later ones, or deleted by `delete_free`."""
        self.free += [slot for seq in seqs if (slot := self.slots.pop(seq, None)) is not None]

    def delete_free(self) -> None:
        """Delete the rows that no later message of this transaction has taken. To be called before each commit."""
        if self.free:
            self.db.executemany("delete from outbox where slot = ?", [(slot,) for slot in self.free])
            self.free = []

    def add_delivery(self, seq: int, dst: str) -> None:
        """This receiver is to get the message once more."""
        self.db.execute("insert or ignore into deliver values(?, ?)", (seq, dst))

    def drop_deliveries(self, pairs: Iterable[tuple[int, str]]) -> None:
        """These receivers, by message, have it or need it no longer."""
        self.db.executemany("delete from deliver where seq = ? and dst = ?", pairs)


def is_answer(asks: bool, receivers: Sequence[str]) -> bool:
    """One receiver, and nothing to be kept once that has it."""
    return not asks and len(receivers) == 1
