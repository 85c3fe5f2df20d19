"""The SQLite file of one node in one run: its tables, how it is opened, and the transaction. Nothing else uses SQLite.

What is saved here decides what happens after a power cut, so the rules of the tables stand beside them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import randbits

from edge_sdk.atomic import PRIVATE, close_to_others
from edge_sdk.delivery.storage.checksums import StoreDamaged, check_row, row_checksum
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.log_check import WritingMark, check_header, has_lost_commits, read_boot_id
from edge_sdk.errors import UsageError

FORMAT = 5
BEFORE = (3, 4)  # formats with fewer checksums, which are still read
PASSING = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT),
)  # errors that are the disk's fault or the moment's, and say nothing against the file
LOG_PAGES = 10_000  # of 4 KB: when the log has so many, a commit waits until they are in their places and synced
UNKNOWN = 0  # epoch of no disk: whoever comes next under this name is met as one with a new disk
RESTORED = "restored"  # key of a mark: this store was put back from a backup, and its node has not gone on since
Database = sqlite3.Connection
DiskError = sqlite3.Error
"""Exception of a full or broken disk."""

TABLES = """
-- crc: checksum of the body (or record, or event), wherever that is (null in rows of an older version)
-- row_crc: checksum of the row's other columns, with crc in the place of the body
-- epoch, run, counters, numbers of the next message and of the latest event
-- boot: id of the machine's start, while the file is open
-- lost: commits are missing, and the session has not dealt with it
create table if not exists kv(k text primary key, v blob, row_crc int) without rowid;
-- the node's record, encoded: one row
create table if not exists record(id integer primary key check (id = 1), v blob, crc int);
-- a peer's disk (epoch). Everything of it below `floor` has been received
create table if not exists peer(name text primary key, epoch int, floor int, row_crc int) without rowid;
-- received from the peer's present disk, at or above its floor
create table if not exists inbox(src text, seq int, row_crc int, primary key(src, seq)) without rowid;
-- a message is kept until everybody has acknowledged it and, if it was a question, been asked another one
create table if not exists outbox(slot integer primary key, seq int, number int, asks int, receivers blob, body blob,
    file text, chunk int, digest blob, notice int, expires real, size int, crc int, row_crc int);
-- who has not acknowledged it yet. An answer has one receiver and no row here: it is deleted when it is acknowledged
create table if not exists deliver(seq int, dst text, row_crc int, primary key(seq, dst)) without rowid;
-- received and acknowledged, not yet worked on
create table if not exists jobs(id integer primary key autoincrement, sender text, number int, asks int, body blob,
    file text, crc int, row_crc int);
-- events for the application, until it has them
create table if not exists told(id integer primary key autoincrement, body blob, crc int, row_crc int);
-- what a role could not work on
create table if not exists quarantine(id integer primary key autoincrement, sender text, number int, asks int,
    body blob, why text, at real);
"""


def open_database(path: Path, durability: str, mark: WritingMark) -> Database:
    """Open a node's file, or make it. Where commits of an earlier process are missing in it, that is noted there.

    Args:
        mark: of this file; until the caller says something else, a transaction is under way.

    Raises:
        UsageError: it is of another version. StoreDamaged: it is no database any more. DiskError: it cannot be written
            now.
    """
    check_header(path)
    log_cut = has_lost_commits(path.with_name(f"{path.name}-wal"), mark.found)
    make_private_file(path)
    if not log_cut:  # else the next process has to find the same, if this one ends before it has noted that
        mark.note(True)
    # The loop may be started on another thread than the one that opened the file; it is used by one at a time.
    with finding_damage(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            found = choose_settings(db, path, durability)
            if not log_cut:
                empty_log(db)  # half a commit may be at its end, and no other may be written over a part of that
            with rolled_back_on_error(db):
                make_tables(db, found)
                note_opening(db, log_cut, durability)
            # synced; from now on whatever lies behind the end of the log was written by this process
            empty_log(db)
            return db
        except BaseException:
            db.close()
            raise


@contextmanager
def finding_damage(path: Path) -> Iterator[None]:
    """Read a file that an earlier process has written, in a `with`: what SQLite cannot read of it is damaged.

    Raises:
        StoreDamaged: instead of an error that no waiting mends.
    """
    try:
        yield
    except sqlite3.Error as e:
        if is_passing(e) or isinstance(e, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
            raise
        raise StoreDamaged(f"{path}: {e}") from None


def is_passing(error: sqlite3.Error) -> bool:
    """The disk is at fault, and perhaps for a moment only."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in PASSING


def make_private_file(path: Path) -> None:
    """Make the file, if it is not there, for its owner alone: SQLite's other files take over its mode."""
    with suppress(OSError):  # SQLite will say what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
        if path.stat().st_mode & 0o077:
            close_to_others(path)


def is_damage(error: BaseException) -> bool:
    """SQLite says that the file is not as it was written, which no waiting mends."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check_pages(db: Database) -> None:
    """Look through the whole file.

    Raises:
        StoreDamaged: a page is not as SQLite has written it.
    """
    try:
        found = db.execute("pragma quick_check(1)").fetchone()[0]
    except DiskError as e:
        if not is_damage(e):
            raise
        found = str(e)
    if found != "ok":
        raise StoreDamaged(found)


def choose_settings(db: Database, path: Path, durability: str) -> int:
    """Check the version, and choose how commits are made durable; returns the format that was found."""
    # The directory is this process's alone (live/presence/directory.py locks it), so SQLite need not ask at each commit
    # whether another process uses the file.
    db.execute("pragma locking_mode = exclusive")
    found: int = db.execute("pragma user_version").fetchone()[0]
    if found not in (0, *BEFORE, FORMAT):
        hint = "end the run with the version that began it, or give the node an empty directory"
        raise UsageError(f"{path}: store of format {found}, this version reads {FORMAT}; {hint}")
    db.execute("pragma journal_mode = wal")
    db.execute(f"pragma synchronous = {durability}")
    db.execute(f"pragma wal_autocheckpoint = {LOG_PAGES}")
    db.execute("pragma secure_delete = off")  # some builds write zeros over all that is deleted
    # A transaction larger than the cache would write some pages twice, and their checksums last: a kill before that
    # looks like damage (log_check.py).
    db.execute("pragma cache_spill = off")
    return found


def empty_log(db: Database) -> None:
    """Bring all pages of the log to their places, synced, and cut it to nothing."""
    db.execute("pragma wal_checkpoint(truncate)").fetchall()


def make_tables(db: Database, found: int) -> None:
    """Make the tables that are missing in a store of the format that was found. Within a transaction."""
    if found in BEFORE:
        add_checksums(db, found)
    for statement in TABLES.split(";"):
        db.execute(statement)
    db.execute(f"pragma user_version = {FORMAT}")
    if get_value(db, "epoch") is None:
        put_value(db, "epoch", randbits(62))


@contextmanager
def rolled_back_on_error(db: Database) -> Iterator[None]:
    """One transaction, in a `with`."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


ADDED: dict[str, tuple[str, str]] = {
    "kv": ("k", "k, v"),
    "peer": ("name", "name, epoch, floor"),
    "inbox": ("src, seq", "src, seq"),
    "outbox": ("slot", "slot, seq, number, asks, receivers, file, chunk, digest, notice, expires, size, crc"),
    "deliver": ("seq, dst", "seq, dst"),
    "jobs": ("id", "id, sender, number, asks, file, crc"),
    "told": ("id", "id, crc"),
}
"""Table -> its key, and the columns that row_crc is the checksum of, in this order."""


def add_checksums(db: Database, found: int) -> None:
    """Give each row of a store of an older format its checksum."""
    if found == BEFORE[0]:
        for table in ("record", "outbox", "jobs", "told"):
            db.execute(f"alter table {table} add column crc int")
    for table, (key, columns) in ADDED.items():
        db.execute(f"alter table {table} add column row_crc int")
        where, keys = " and ".join(f"{k} = ?" for k in key.split(", ")), len(key.split(", "))
        for row in db.execute(f"select {columns} from {table}").fetchall():  # the key comes first
            db.execute(f"update {table} set row_crc = ? where {where}", (row_checksum(*row), *row[:keys]))


def check_values(db: Database) -> None:
    """Check all values, also under names that nobody will look for: one of them may be a name that has changed.

    Raises:
        StoreDamaged: one is not what was saved.
    """
    for key, value, crc in db.execute("select k, v, row_crc from kv"):
        check_row(str(key), crc, key, value)


def get_value(db: Database, key: str) -> bytes | int | None:
    """A value by its name; None: there is none.

    Raises:
        StoreDamaged: it is not what was saved.
    """
    row = db.execute("select v, row_crc from kv where k = ?", (key,)).fetchone()
    if row is None:
        return None
    check_row(key, row[1], key, row[0])
    found: bytes | int = row[0]
    return found


def put_value(db: Database, key: str, value: bytes | int) -> None:
    sql = "insert into kv values(?, ?, ?) on conflict do update set v = excluded.v, row_crc = excluded.row_crc"
    db.execute(sql, (key, value, row_checksum(key, value)))


def note_opening(db: Database, log_cut: bool, durability: str) -> None:
    """Note that the file is open, and find out whether commits of the process before are missing ("lost"). Within a
    transaction.

    They are where its log was cut, and where the power went while the file was open and commits were not synced. Peers
    would take such a node's word for things that it does not remember, so it shows itself as another disk: a new epoch.
    """
    check_values(db)
    saved, boot = get_value(db, "boot"), read_boot_id()
    power_lost = bool(saved) and bool(boot) and saved != boot
    lost = (power_lost and durability == "normal") or (log_cut and not power_lost)
    if lost:
        put_value(db, "epoch", randbits(62))
        put_value(db, "lost", 1)
    if lost or saved != boot:
        put_value(db, "boot", boot)


def close_database(db: Database, mark: WritingMark) -> None:
    """Close the file as it should be closed: a power cut later loses nothing of it."""
    mark.note(True)
    try:
        if db.in_transaction:
            db.execute("rollback")
        put_value(db, "boot", b"")
        mark.remove()
    except (OSError, DiskError):
        pass  # then the next start is more careful than it need be
    finally:
        db.close()
        mark.close()


class Transaction:
    """All or nothing, in a `with`. (A class, because one is made for every message; contextlib's are thrice as slow.)

    Args:
        mark: of the database's file.
        before_commit: writes what has been put off until then.
        stays_open: asked at the end of the `with`: True leaves the transaction open for the next one, which then
            commits or rolls back both together.
    """

    def __init__(
        self,
        db: Database,
        mark: WritingMark,
        before_commit: Callable[[], None],
        stays_open: Callable[[], bool] | None,
    ):
        self.db, self.mark, self.before_commit, self.stays_open = db, mark, before_commit, stays_open

    def __enter__(self) -> None:
        if not self.db.in_transaction:
            self.mark.note(True)
            self.db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None and not (self.stays_open and self.stays_open()):
                self.commit()
        except BaseException as e:
            kind = type(e)
            raise
        finally:
            if kind is not None:
                if self.db.in_transaction:  # where the disk is full, SQLite has rolled it back by itself
                    self.db.execute("rollback")
                self.mark.torn = True
                self.note_end()

    def commit(self) -> None:
        self.before_commit()
        reach("saved")
        self.db.execute("commit")
        self.note_end()
        reach("committed")

    def note_end(self) -> None:
        """Note that the transaction has ended, except where half of one may lie behind the end of the log."""
        if self.mark.torn:
            with suppress(DiskError):
                empty_log(self.db)
                self.mark.torn = False
        if not self.mark.torn:
            self.mark.note(False)
