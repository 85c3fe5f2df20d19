"""The memory of one node in one run: a SQLite file in which state, inbox, outbox and jobs change in one transaction.

What is saved here decides what happens after a power cut, so the rules of the tables stand beside them. Nothing in this
module knows what a message means.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from secrets import randbits

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.records import changed, record
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.files import Files
from edge_sdk.errors import UsageError
from edge_sdk.wire.frames import Buffer

FORMAT = 3
LOG = 10_000  # pages of 4 KB: when these are full, a commit has to wait until they are in their places and synced
SOON = 1_000_000  # bytes of messages; with so many in the log, an idle node brings them to their places
RESERVED = 64  # numbers of messages: what is next is saved once for so many
DiskError = sqlite3.Error
"""What a full or broken disk raises."""

TABLES = """
-- epoch, run, number of the next message, counters
create table if not exists kv(k text primary key, v blob) without rowid;
-- the node's record, encoded: one row
create table if not exists record(id integer primary key check (id = 1), v blob);
-- a peer's disk (epoch); everything of it below `floor` has been received
create table if not exists peer(name text primary key, epoch int, floor int) without rowid;
-- received from the peer's present disk, at or above its floor
create table if not exists inbox(src text, seq int, primary key(src, seq)) without rowid;
-- a message is kept until everybody has acknowledged it and, if it was a question, been asked another one
create table if not exists outbox(slot integer primary key, seq int, number int, asks int, receivers blob, body blob,
    file text, chunk int, digest blob, notice int, expires real, size int);
-- who has not acknowledged it yet; an answer has one receiver and no row here: it is deleted when it is acknowledged
create table if not exists deliver(seq int, dst text, primary key(seq, dst)) without rowid;
-- received and acknowledged, not yet worked on
create table if not exists jobs(id integer primary key autoincrement, sender text, number int, asks int, body blob,
    file text);
-- for the application, until it has it
create table if not exists told(id integer primary key autoincrement, body blob);
-- what a role could not work on
create table if not exists quarantine(id integer primary key autoincrement, sender text, number int, asks int,
    body blob, why text, at real);
"""

WRITE_OVER = """
update outbox set seq = ?, number = ?, asks = ?, receivers = ?, body = ?, file = ?, chunk = ?, digest = ?, notice = ?,
    expires = ?, size = ? where slot = ?
"""


@record
class Job:
    """A message that waits for the role. `id`: its row, or None where it was never written. `file`: holds the body."""

    sender: str
    number: int
    asks: bool
    body: Buffer
    id: int | None = None
    file: str | None = None


@record
class Sent:
    """An outbox row.

    Attributes:
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


class Store:
    """An open store.

    Args:
        path: of the file, made if it is not there.
        durability: "normal": survives the death of the process; a power cut may lose the last commits. "full": survives
            a power cut too.

    Raises:
        UsageError: the file is of another version or no store. DiskError: it cannot be written now.
    """

    def __init__(self, path: Path, durability: str = "normal"):
        if durability not in ("normal", "full"):
            raise UsageError(f"durability = {durability!r}, it is 'normal' or 'full'")
        self.path = path
        self.files = Files(path.with_suffix(".bodies"), sync=durability == "full")
        # The loop may be started on another thread than the one that opened the store; it is used by one at a time.
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.slots: dict[int, int] = {}  # seq -> row in the outbox
        self.free: list[int] = []  # rows of the outbox whose message is done with
        self.reserved = self.logged = 0
        try:
            self.prepare(durability)
        except sqlite3.DatabaseError as e:
            self.db.close()
            if getattr(e, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise  # the disk's fault, and perhaps for a moment only
            raise UsageError(f"{path}: not a node's store ({e})") from None
        except BaseException:
            self.db.close()
            raise

    def prepare(self, durability: str) -> None:
        # The directory is this process's alone (desk.py), so SQLite need not look at each commit who else is there.
        self.db.execute("pragma locking_mode = exclusive")
        found = self.db.execute("pragma user_version").fetchone()[0]
        if found not in (0, FORMAT):
            hint = "end the run with the version that began it, or give the node an empty directory"
            raise UsageError(f"{self.path}: store of format {found}, this version reads {FORMAT}; {hint}")
        self.db.execute("pragma journal_mode = wal")
        self.db.execute(f"pragma synchronous = {durability}")
        self.db.execute(f"pragma wal_autocheckpoint = {LOG}")
        self.db.execute("pragma secure_delete = off")  # some builds write zeros over all that is deleted
        self.db.executescript(TABLES)
        self.db.execute(f"pragma user_version = {FORMAT}")
        self.db.execute("insert or ignore into kv values('epoch', ?)", (randbits(62),))
        self.epoch = int(self.db.execute("select v from kv where k = 'epoch'").fetchone()[0])

    def close(self) -> None:
        self.db.close()

    def transaction(self, keep: Callable[[], bool] | None = None) -> Transaction:
        """All or nothing, together with what was kept open before.

        Args:
            keep: asked at the end; the transaction is left open for the next one.
        """
        return Transaction(self, keep)

    def commit(self) -> None:
        self.delete_free()
        reach("saved")
        self.db.execute("commit")
        reach("committed")

    def rest(self) -> None:
        """Nothing is to be done: a good time for what would keep a commit waiting later."""
        if self.logged >= SOON:
            self.db.execute("pragma wal_checkpoint(passive)").fetchall()
            self.logged = 0

    # -- values

    def get(self, key: str) -> bytes | None:
        row = self.db.execute("select v from kv where k = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, value: bytes | int) -> None:
        self.db.execute("insert into kv values(?, ?) on conflict do update set v = excluded.v", (key, value))

    def next_seq(self) -> int:
        """Above all that were ever used: after a restart, some are left out."""
        row = self.db.execute("select v from kv where k = 'seq'").fetchone()
        self.reserved = 1 if row is None else int(row[0])
        return self.reserved

    def record(self) -> bytes | None:
        row = self.db.execute("select v from record").fetchone()
        return None if row is None else row[0]

    def save_record(self, record: Buffer) -> None:
        # in place: where the size is the same, SQLite writes the same pages again and frees none
        self.logged += len(record)
        self.db.execute("insert into record values(1, ?) on conflict do update set v = excluded.v", (record,))

    # -- peers and what came from them

    def peers(self) -> dict[str, tuple[int, int, set[int]]]:
        """Name -> epoch, floor, and what was received at or above the floor."""
        found: dict[str, tuple[int, int, set[int]]] = {}
        for name, epoch, floor in self.db.execute("select name, epoch, floor from peer"):
            found[name] = (epoch, floor, set())
        for src, seq in self.db.execute("select src, seq from inbox"):
            found[src][2].add(seq)
        return found

    def save_peer(self, name: str, epoch: int, floor: int) -> None:
        """With everything below the floor forgotten."""
        self.db.execute("insert or replace into peer values(?, ?, ?)", (name, epoch, floor))
        self.db.execute("delete from inbox where src = ? and seq < ?", (name, floor))

    def renew_peer(self, name: str, epoch: int) -> None:
        """The peer has another disk: nothing was received from it."""
        self.db.execute("insert or replace into peer values(?, ?, 0)", (name, epoch))
        self.db.execute("delete from inbox where src = ?", (name,))

    def save_received(self, src: str, seq: int) -> None:
        self.db.execute("insert into inbox values(?, ?)", (src, seq))

    # -- what goes out

    def outbox(self) -> list[Sent]:
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
            about = Sent(seq, number, bool(asks), names, frozenset(waiting), chunk, digest, file)
            found.append(changed(about, notice=bool(notice), expires=expires, size=size))
        return found

    def body(self, seq: int) -> Buffer:
        row = self.db.execute("select body, file from outbox where slot = ?", (self.slots[seq],))
        body, file = row.fetchone()
        return self.files.read(file) if file else body

    def save_sent(self, sent: Sent, body: Buffer) -> None:
        """A large body is beside the database before the row is in it, so that a row always finds its file.

        The row of a message that is done with is written over, which costs SQLite half of what a deleted and a new row
        cost.
        """
        row = [sent.seq, sent.number, sent.asks, msgpack.packb(sent.receivers)]
        row += [None if sent.file else body, sent.file, sent.chunk, sent.digest]
        row += [sent.notice, sent.expires, len(body)]
        if sent.file:
            self.files.write(sent.file, body)
            reach("file")
        self.logged += len(body)
        if self.free:
            self.slots[sent.seq] = self.free.pop()
            self.db.execute(WRITE_OVER, (*row, self.slots[sent.seq]))
        else:
            slot = self.db.execute("insert into outbox values(null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
            assert slot is not None
            self.slots[sent.seq] = slot
        if not is_answer(sent.asks, sent.receivers):
            self.db.executemany("insert into deliver values(?, ?)", [(sent.seq, dst) for dst in sent.pending])
        if sent.seq >= self.reserved:
            self.reserved = sent.seq + RESERVED
            self.put("seq", self.reserved)

    def deliver_again(self, seq: int, dst: str) -> None:
        self.db.execute("insert or ignore into deliver values(?, ?)", (seq, dst))

    def drop_deliveries(self, pairs: Iterable[tuple[int, str]]) -> None:
        self.db.executemany("delete from deliver where seq = ? and dst = ?", pairs)

    def drop_sent(self, seqs: Iterable[int]) -> None:
        self.free += [slot for seq in seqs if (slot := self.slots.pop(seq, None)) is not None]

    def delete_free(self) -> None:
        """What this transaction has not written over."""
        if self.free:
            self.db.executemany("delete from outbox where slot = ?", [(slot,) for slot in self.free])
            self.free = []

    # -- work

    def jobs(self) -> list[Job]:
        rows = self.db.execute("select sender, number, asks, body, id, file from jobs order by id")
        return [
            Job(sender, number, bool(asks), self.files.read(file) if file else body, id, file)
            for sender, number, asks, body, id, file in rows
        ]

    def save_job(self, job: Job) -> Job:
        if job.file:
            self.files.settle(job.file)
        sql = "insert into jobs(sender, number, asks, body, file) values(?, ?, ?, ?, ?)"
        row = (job.sender, job.number, job.asks, None if job.file else job.body, job.file)
        return changed(job, id=self.db.execute(sql, row).lastrowid)

    def used_files(self) -> set[str]:
        """Files that a row needs."""
        rows = self.db.execute("select file from outbox union select file from jobs")
        return {file for (file,) in rows if file}

    def drop_job(self, id: int) -> None:
        self.db.execute("delete from jobs where id = ?", (id,))

    def quarantine(self, job: Job, why: str) -> None:
        sql = "insert into quarantine(sender, number, asks, body, why, at) values(?, ?, ?, ?, ?, ?)"
        self.db.execute(sql, (job.sender, job.number, job.asks, job.body, why, time.time()))

    def quarantined(self) -> list[tuple[str, int, str]]:
        """Sender, number and traceback of each message that was set aside."""
        return self.db.execute("select sender, number, why from quarantine order by id").fetchall()

    # -- the application's

    def told(self) -> list[tuple[int, bytes]]:
        return self.db.execute("select id, body from told order by id").fetchall()

    def save_told(self, body: Buffer) -> int:
        id = self.db.execute("insert into told(body) values(?)", (body,)).lastrowid
        assert id is not None
        return id

    def drop_told(self, ids: Sequence[int]) -> None:
        self.db.executemany("delete from told where id = ?", [(id,) for id in ids])

    # -- counters

    def counters(self) -> dict[str, int]:
        saved = self.get("counters")
        return {} if saved is None else msgpack.unpackb(saved)

    def save_counters(self, counters: Mapping[str, int]) -> None:
        self.put("counters", msgpack.packb(dict(counters)))


class Transaction:
    """See `Store.transaction`. (A class, because one is made for every message; contextlib's are thrice as slow.)"""

    def __init__(self, store: Store, keep: Callable[[], bool] | None):
        self.store, self.keep = store, keep

    def __enter__(self) -> None:
        if not self.store.db.in_transaction:
            self.store.db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None and not (self.keep and self.keep()):
                self.store.commit()
        except BaseException as e:
            kind = type(e)
            raise
        finally:
            if kind is not None and self.store.db.in_transaction:
                self.store.db.execute("rollback")


def is_answer(asks: bool, receivers: Sequence[str]) -> bool:
    """One receiver, and nothing to be kept once that has it."""
    return not asks and len(receivers) == 1
