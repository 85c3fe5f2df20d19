"""The database of a sample store: windows as rows, what was said of them, and what never changes.

SQLite writes a transaction whole or not at all, also where the process is killed in the middle of it. What is deleted
is overwritten (`secure_delete`).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError, say_reason

log = logging.getLogger("auscult.samples")

VERSION = "1"
TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spans (began REAL PRIMARY KEY, ended REAL NOT NULL, activity TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    id INTEGER PRIMARY KEY, began REAL NOT NULL, ended REAL NOT NULL, recording INTEGER NOT NULL,
    held INTEGER NOT NULL, rank INTEGER NOT NULL, label TEXT
);
CREATE TABLE IF NOT EXISTS signals (id INTEGER PRIMARY KEY, x BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_time ON windows (ended);
CREATE INDEX IF NOT EXISTS by_label ON windows (label, rank);
"""


class StoreFault(Exception):
    """The file is no sample store, or is damaged."""


class StoreUnusable(AuscultError):
    """The disk does not take what is to be saved or erased, or does not give it back: it is full, or read-only.

    >>> try:
    ...     raise StoreUnusable("watch-7/samples: 52 samples could not be saved: database or disk is full")
    ... except StoreUnusable as error:
    ...     print(str(error).split(":")[-1])
     database or disk is full
    """


@contextmanager
def saying_unusable(path: Path, what: str) -> Iterator[None]:
    """Says in words what a disk refuses: raises StoreUnusable in place of the errors of SQLite and of the system."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise StoreUnusable(f"{path}: {what}: {say_reason(error)}") from error


class SampleIndex:
    """An open database. Every method is one statement or a few; the caller has them in a transaction.

    Raises:
        StoreFault: the file is damaged.
        sqlite3.OperationalError: it cannot be read or made here: the disk is full or read-only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with suppress(OSError):  # SQLite says what is wrong; its other files take over this one's mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            self.db = self.open(alone=False)
        except sqlite3.OperationalError:  # as where a full disk has no room for the index of the log, shared in a file
            self.db = self.open(alone=True)
        self.seen = self.run("PRAGMA data_version").fetchone()[0]

    def open(self, alone: bool) -> sqlite3.Connection:
        """A connection to the database, which is whole. `alone`: nobody else may open it, and it takes no room."""
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            if alone:
                db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON")
            db.executescript("PRAGMA journal_size_limit=262144; PRAGMA cache_size=-1024")
            db.execute("PRAGMA wal_autocheckpoint=64")
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreFault(str(found))
            db.executescript(TABLES)
        except sqlite3.OperationalError:
            db.close()
            raise
        except sqlite3.DatabaseError as error:
            db.close()
            raise StoreFault(str(error)) from error
        except StoreFault:
            db.close()
            raise
        return db

    def run(self, text: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.db.execute(text, values)

    def __enter__(self) -> SampleIndex:
        self.db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.db.in_transaction:  # a full disk may have ended it
            try:
                self.db.execute("COMMIT" if kind is None else "ROLLBACK")
            except sqlite3.Error:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    @contextmanager
    def without_log(self) -> Iterator[None]:
        """Transactions within change the file in place and take no room on the disk, for one that is full. A process
        that is killed in the middle of one leaves a damaged file. Not within a transaction."""
        self.shorten_log()
        if self.run("PRAGMA journal_mode=MEMORY").fetchone()[0] != "memory":
            raise sqlite3.OperationalError("the log cannot be written back")
        try:
            yield
        finally:
            self.run("PRAGMA journal_mode=WAL").fetchall()

    @contextmanager
    def rebuilt(self) -> Iterator[None]:
        """What is done within is done in memory; the files are overwritten, and what is left is written in their place.
        For a disk so full that not even the log can be written back. A process that is killed meanwhile loses all that
        was to be left. Not within a transaction."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.backup(copy)
        self.db.close()
        self.db = copy
        try:
            yield
            for ending in ("", "-wal", "-shm"):
                file = self.path.with_name(self.path.name + ending)
                if file.exists():
                    overwrite(file)
                    file.unlink()
            self.run("VACUUM INTO ?", (str(self.path),))
        finally:
            copy.close()
            self.db = self.open(alone=True)

    # -- facts and words

    def fact(self, name: str, first: bytes) -> bytes:
        """What is saved under a name; `first` is saved where there is nothing yet, and never changed."""
        self.run("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, first))
        return bytes(self.run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])

    def find_fact(self, name: str) -> bytes | None:
        """What is saved under a name; None: nothing."""
        found = self.run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def set_fact(self, name: str, value: bytes) -> None:
        self.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def count_on(self, name: str, more: int) -> int:
        """Adds to a number that is saved under a name, and begins at 0; returns it."""
        total = int(self.find_fact(name) or b"0") + more
        if more:  # a disk that takes nothing can still be read
            self.set_fact(name, str(total).encode())
        return total

    def load_spans(self) -> list[tuple[float, float, str]]:
        return self.run("SELECT began, ended, activity FROM spans ORDER BY began").fetchall()

    def save_spans(self, spans: Iterable[tuple[float, float, str]]) -> None:
        """Replace all that was said."""
        self.run("DELETE FROM spans")
        self.db.executemany("INSERT INTO spans VALUES (?, ?, ?)", spans)

    # -- windows

    def add(self, rows: Iterable[tuple[int, float, float, int, int, int, str | None, bytes]]) -> None:
        """Add rows of both tables: a label that changes then does not write the window again."""
        rows = list(rows)
        self.db.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?)", [row[:-1] for row in rows])
        self.db.executemany("INSERT INTO signals VALUES (?, ?)", [(row[0], row[-1]) for row in rows])

    def next_id(self) -> int:
        return int(self.run("SELECT COALESCE(MAX(id), 0) + 1 FROM windows").fetchone()[0])

    def count_labels(self) -> dict[str | None, int]:
        """Label -> its windows; None: those without one."""
        return dict(self.run("SELECT label, COUNT(*) FROM windows GROUP BY label").fetchall())

    def list_recordings(self) -> list[tuple[int, bool]]:
        """Recordings that windows are of, each with: is it held out?"""
        return [(r, bool(held)) for r, held in self.run("SELECT DISTINCT recording, held FROM windows")]

    def overlapping(self, began: float, ended: float, longest: float) -> list[tuple[int, float, float, str | None]]:
        """Windows with a moment in this stretch of time: id, began, ended, label. None has more than `longest` s."""
        text = "SELECT id, began, ended, label FROM windows WHERE ended BETWEEN ? AND ? AND began <= ?"
        return self.run(text, (began, ended + longest, ended)).fetchall()

    def ended_before(self, time: float) -> list[tuple[int, str | None]]:
        """Windows that ended before a time: id, label."""
        return self.run("SELECT id, label FROM windows WHERE ended < ?", (time,)).fetchall()

    def find_signal(self, id: int) -> tuple[float, bytes] | None:
        """When a window began, and the window as it is written; None: there is none."""
        text = "SELECT began, x FROM windows NATURAL JOIN signals WHERE id = ?"
        found: tuple[float, bytes] | None = self.run(text, (id,)).fetchone()
        return found

    def having(self, id: int, sealed: bytes) -> list[tuple[int, str | None]]:
        """The window of this number if it is written so: id, label."""
        text = "SELECT id, label FROM windows NATURAL JOIN signals WHERE id = ? AND x = ?"
        return self.run(text, (id, sealed)).fetchall()

    def longest(self) -> float:
        """Seconds of the longest window."""
        return float(self.run("SELECT COALESCE(MAX(ended - began), 0) FROM windows").fetchone()[0])

    def latest(self) -> float:
        """Time of the last sample of all windows; -inf: there is none."""
        found = self.run("SELECT MAX(ended) FROM windows").fetchone()[0]
        return -inf if found is None else float(found)

    def set_label(self, id: int, label: str | None) -> None:
        self.run("UPDATE windows SET label = ? WHERE id = ?", (label, id))

    def delete(self, ids: Iterable[int]) -> None:
        gone = [(id,) for id in ids]
        self.db.executemany("DELETE FROM windows WHERE id = ?", gone)
        self.db.executemany("DELETE FROM signals WHERE id = ?", gone)

    def oldest_unlabelled(self, count: int) -> list[int]:
        text = "SELECT id FROM windows WHERE label IS NULL ORDER BY ended LIMIT ?"
        return [row[0] for row in self.run(text, (count,))]

    def highest_ranked(self, label: str, count: int) -> list[int]:
        text = "SELECT id FROM windows WHERE label = ? ORDER BY rank DESC LIMIT ?"
        return [row[0] for row in self.run(text, (label, count))]

    def changed_by_others(self) -> bool:
        """Has another connection (another process, as a rule) changed the database since this was last asked?"""
        before, self.seen = self.seen, self.run("PRAGMA data_version").fetchone()[0]
        return bool(before != self.seen)

    def shorten_log(self) -> None:
        """Let nothing of what was deleted stay in the log beside the database. Not within a transaction."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        self.db.close()


def open_index(path: Path) -> SampleIndex:
    """Open the database. A damaged one is put aside for a person to look at, and a new one begun."""
    try:
        return SampleIndex(path)
    except StoreFault as error:
        for ending in ("", "-wal", "-shm"):
            file = path.with_name(path.name + ending)
            if file.exists():
                file.replace(path.with_name(f"{path.name}.damaged{ending}"))
        log.error("%s is damaged (%s) and now %s.damaged; a new one is begun", path, error, path.name)
        return SampleIndex(path)


def erase_damaged(path: Path) -> None:
    """Erase a database that was put aside: nobody can say which windows are in it. Raises StoreUnusable."""
    with saying_unusable(path, "what was put aside as damaged is NOT erased"):
        for file in path.parent.glob(f"{path.name}.damaged*"):
            overwrite(file)
            file.unlink()


def overwrite(path: Path) -> None:
    """Write zeros over all that a file has, on the disk."""
    with path.open("r+b") as file:
        for at in range(0, path.stat().st_size, 1 << 16):
            file.write(bytes(min(1 << 16, path.stat().st_size - at)))
        file.flush()
        os.fsync(file.fileno())
