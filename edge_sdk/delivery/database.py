"""The SQLite file of one node in one run: its tables, how it is opened, and the transaction. Nothing else uses SQLite.

What is saved here decides what happens after a power cut, so the rules of the tables stand beside them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import randbits

from edge_sdk.atomic import PRIVATE, close_to_others
from edge_sdk.delivery.checksums import StoreDamaged
from edge_sdk.delivery.failpoints import reach
from edge_sdk.errors import UsageError

FORMAT = 4
BEFORE = 3  # the format without checksums, which is still read
PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM)  # perhaps
LOG_PAGES = 10_000  # of 4 KB: when the log has so many, a commit waits until they are in their places and synced
UNKNOWN = 0  # epoch of no disk: whoever comes next under this name is met as one with a new disk
RESTORED = "restored"  # key of a mark: this store was put back from a backup, and its node has not gone on since
Database = sqlite3.Connection
DiskError = sqlite3.Error
"""Exception of a full or broken disk."""

TABLES = """
-- crc: checksum of the body (or record, or event), wherever that is; null in rows of an older version
-- epoch, run, number of the next message, counters
create table if not exists kv(k text primary key, v blob) without rowid;
-- the node's record, encoded: one row
create table if not exists record(id integer primary key check (id = 1), v blob, crc int);
-- a peer's disk (epoch); everything of it below `floor` has been received
create table if not exists peer(name text primary key, epoch int, floor int) without rowid;
-- received from the peer's present disk, at or above its floor
create table if not exists inbox(src text, seq int, primary key(src, seq)) without rowid;
-- a message is kept until everybody has acknowledged it and, if it was a question, been asked another one
create table if not exists outbox(slot integer primary key, seq int, number int, asks int, receivers blob, body blob,
    file text, chunk int, digest blob, notice int, expires real, size int, crc int);
-- who has not acknowledged it yet; an answer has one receiver and no row here: it is deleted when it is acknowledged
create table if not exists deliver(seq int, dst text, primary key(seq, dst)) without rowid;
-- received and acknowledged, not yet worked on
create table if not exists jobs(id integer primary key autoincrement, sender text, number int, asks int, body blob,
    file text, crc int);
-- events for the application, until it has them
create table if not exists told(id integer primary key autoincrement, body blob, crc int);
-- what a role could not work on
create table if not exists quarantine(id integer primary key autoincrement, sender text, number int, asks int,
    body blob, why text, at real);
"""

ADD_CHECKSUMS = """
alter table record add column crc int;
alter table outbox add column crc int;
alter table jobs add column crc int;
alter table told add column crc int;
"""


def open_database(path: Path, durability: str) -> Database:
    """Open a node's file, or make it.

    Raises:
        UsageError: it is of another version. StoreDamaged: it is no database any more. DiskError: it cannot be written
            now.
    """
    make_private_file(path)
    # The loop may be started on another thread than the one that opened the file; it is used by one at a time.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        prepare_database(db, path, durability)
    except sqlite3.DatabaseError as e:
        db.close()
        if is_damage(e):
            raise StoreDamaged(f"{path}: {e}") from None
        if getattr(e, "sqlite_errorcode", 0) & 0xFF in PASSING:
            raise  # the disk's fault, and perhaps for a moment only
        raise UsageError(f"{path}: not a node's store ({e})") from None
    except BaseException:
        db.close()
        raise
    return db


def make_private_file(path: Path) -> None:
    """Make the file, if it is not there, for its owner alone: SQLite's other files take over its mode."""
    with suppress(OSError):  # SQLite will say what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
        if path.stat().st_mode & 0o077:
            close_to_others(path)


def is_damage(error: BaseException) -> bool:
    """SQLite says that the file is not as it was written, which no waiting mends."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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


def prepare_database(db: Database, path: Path, durability: str) -> None:
    """Check the version, choose how commits are made durable, make the tables."""
    # The directory is this process's alone (live/directory.py locks it), so SQLite need not ask at each commit whether
    # another process uses the file.
    db.execute("pragma locking_mode = exclusive")
    found = db.execute("pragma user_version").fetchone()[0]
    if found not in (0, BEFORE, FORMAT):
        hint = "end the run with the version that began it, or give the node an empty directory"
        raise UsageError(f"{path}: store of format {found}, this version reads {FORMAT}; {hint}")
    db.execute("pragma journal_mode = wal")
    db.execute(f"pragma synchronous = {durability}")
    db.execute(f"pragma wal_autocheckpoint = {LOG_PAGES}")
    db.execute("pragma secure_delete = off")  # some builds write zeros over all that is deleted
    if found == BEFORE:
        db.executescript(f"begin; {ADD_CHECKSUMS} pragma user_version = {FORMAT}; commit;")
    db.executescript(TABLES)
    db.execute(f"pragma user_version = {FORMAT}")
    db.execute("insert or ignore into kv values('epoch', ?)", (randbits(62),))


class Transaction:
    """All or nothing, in a `with`. (A class, because one is made for every message; contextlib's are thrice as slow.)

    Args:
        before_commit: writes what has been put off until then.
        stays_open: asked at the end of the `with`: True leaves the transaction open for the next one, which then
            commits or rolls back both together.
    """

    def __init__(self, db: Database, before_commit: Callable[[], None], stays_open: Callable[[], bool] | None):
        self.db, self.before_commit, self.stays_open = db, before_commit, stays_open

    def __enter__(self) -> None:
        if not self.db.in_transaction:
            self.db.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None and not (self.stays_open and self.stays_open()):
                self.commit()
        except BaseException as e:
            kind = type(e)
            raise
        finally:
            if kind is not None and self.db.in_transaction:
                self.db.execute("rollback")

    def commit(self) -> None:
        self.before_commit()
        reach("saved")
        self.db.execute("commit")
        reach("committed")
