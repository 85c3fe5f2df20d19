"""A copy of a store while its node runs, and what has to be changed before such a copy is put to work.

A node holds its database in exclusive mode, so no other process can read it through SQLite. Its files can be copied all
the same. With a write-ahead log every commit is appended to the log, and a checkpoint brings pages of the log to the
database and changes nothing in the log; the log begins anew, under another salt in its header, only after all of it has
been brought over. So: copy the database, then the log. Whatever page a checkpoint was writing meanwhile is in the log
that is copied after it, and wins when the copy is opened. If the log's header has changed between, the log has begun
anew, and all is copied again. The last commit in the copy that is whole is the state of the node at that moment.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from secrets import randbits

from edge_sdk.delivery.storage.checksums import StoreDamaged, row_checksum
from edge_sdk.delivery.storage.database import (
    RESTORED,
    UNKNOWN,
    Database,
    check_pages,
    get_value,
    make_private_file,
    open_database,
    put_value,
)
from edge_sdk.delivery.storage.log_check import WritingMark
from edge_sdk.errors import UsageError

HEADER = 32  # bytes of the log's header; among them the salts, which change when the log begins anew
TRIES = 20


def copy_store(source: Path, target: Path) -> None:
    """Copy a store with the bodies that its rows name, as it is at one moment. The node may run meanwhile.

    Args:
        source: RUN.db in the node's directory.
        target: RUN.db in another directory, which exists.

    Raises:
        StoreDamaged: it is not as it was written. UsageError: it changes too fast to be copied.
    """
    copy_often(source, lambda: copy_database(source, target) and copy_bodies(source, target))


def copy_alone(source: Path, target: Path) -> None:
    """Copy a database with a write-ahead log that names no bodies. Arguments and errors as of `copy_store`."""
    copy_often(source, lambda: copy_database(source, target))


def copy_often(source: Path, copy: Callable[[], bool]) -> None:
    """Copy until it is of one moment. Raises UsageError: it is not, however often it is tried."""
    if not any(copy() for _ in range(TRIES)):
        raise UsageError(f"{source} changes faster than it can be copied; try again, or stop the node for that time")


def copy_database(source: Path, target: Path) -> bool:
    """Copy database and log, and make one file of the two; False: the log has begun anew meanwhile."""
    raw, log = target.with_name(f"{target.name}.raw"), target.with_name(f"{target.name}.raw-wal")
    try:
        before = read_header(source)
        shutil.copyfile(source, raw)
        if before:
            shutil.copyfile(log_of(source), log)
        if read_header(source) != before:
            return False
        target.unlink(missing_ok=True)
        make_whole(raw, target)
        return True
    except FileNotFoundError:
        if not source.exists():
            raise
        return False  # the log was removed: the node has just stopped
    finally:
        for path in (raw, log, raw.with_name(f"{raw.name}-shm")):
            path.unlink(missing_ok=True)


def make_whole(raw: Path, target: Path) -> None:
    """Write the content of a database and its log into one new file, after a look at all of it."""
    with closing(sqlite3.connect(raw, isolation_level=None)) as db:
        check_pages(db)
        make_private_file(target)
        db.execute("vacuum into ?", (str(target),))


def copy_bodies(source: Path, target: Path) -> bool:
    """Copy the large bodies that rows of the copy name; False: one was removed meanwhile, with its row."""
    with closing(sqlite3.connect(target)) as db:
        rows = db.execute("select file from outbox union select file from jobs").fetchall()
    bodies = target.with_suffix(".bodies")
    shutil.rmtree(bodies, ignore_errors=True)
    names = sorted(name for (name,) in rows if name)
    if names:
        bodies.mkdir(mode=0o700)
    for name in names:
        try:
            shutil.copyfile(source.with_suffix(".bodies") / name, bodies / name)
        except FileNotFoundError:
            return False
        (bodies / name).chmod(0o600)
    return True


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def read_header(path: Path) -> bytes:
    """Header of the log; empty where there is no log."""
    try:
        with log_of(path).open("rb") as file:
            return file.read(HEADER)
    except FileNotFoundError:
        return b""


def count_events(path: Path) -> int:
    """Number of the latest event for the application that a store had when it was copied."""
    with closing(sqlite3.connect(path)) as db:
        row = db.execute("select seq from sqlite_sequence where name = 'told'").fetchone()
    return 0 if row is None else int(row[0])


def make_another_disk(path: Path) -> int:
    """Prepare the copy of a store for work; returns its new epoch.

    A copy is older than what its peers have seen. Were it to go on as the disk that it was, it would use numbers of
    messages again that they know, and they would drop what is new; and it would wait for answers that were given to its
    later self. So it becomes another disk, and its peers are met as if they had other disks too: both sides void what
    was under way between them, and every question that is still open is asked again. The numbers of its own questions
    go on far above those of its later self (renumbering.py).

    Raises:
        StoreDamaged: it is not as it was written. UsageError: it is none.
    """
    with closing(WritingMark(path)) as mark, closing(open_database(path, "full", mark)) as db:
        check_pages(db)
        if get_value(db, "run") is None:
            raise StoreDamaged(f"{path}: no run is named in it")
        db.execute("begin immediate")
        epoch = renew_epoch(db)
        put_value(db, "boot", b"")  # it is closed as it should be
        db.execute("commit")
        mark.remove()
        return epoch


def renew_epoch(db: Database) -> int:
    """Make a store another disk, whose peers are met as if they had other disks too; returns its epoch. Within a
    transaction."""
    epoch = randbits(62) + 1
    put_value(db, "epoch", epoch)
    for (name,) in db.execute("select name from peer").fetchall():
        row = (name, UNKNOWN, 0)
        db.execute("insert or replace into peer values(?, ?, ?, ?)", (*row, row_checksum(*row)))
    db.execute("delete from inbox")
    put_value(db, RESTORED, 1)
    return epoch
