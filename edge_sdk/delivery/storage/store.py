"""The memory of one node in one run: record, inbox, outbox and jobs, which change together in one transaction.

The tables are in `database.py`, large bodies in `files.py`. Nothing in this module knows what a message means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.records import changed, record
from edge_sdk.delivery.storage.checksums import check_row, check_saved, checksum, row_checksum
from edge_sdk.delivery.storage.database import (
    RESTORED,
    Transaction,
    check_pages,
    close_database,
    finding_damage,
    get_value,
    open_database,
    put_value,
)
from edge_sdk.delivery.storage.files import Files
from edge_sdk.delivery.storage.log_check import WritingMark
from edge_sdk.delivery.storage.outbox_table import OutboxRow, OutboxTable
from edge_sdk.errors import UsageError
from edge_sdk.wire.frames import Buffer

SAVE_RECORD = "insert into record values(1, ?, ?) on conflict do update set v = excluded.v, crc = excluded.crc"
QUARANTINED, QUARANTINED_BYTES = 100, 64 * 2**20  # messages set aside that are kept, and bytes of them together
FORGET_QUARANTINED = """
delete from quarantine where id < (select max(id) from quarantine) and id in (
    select id from (select id, row_number() over latest as place, sum(length(body)) over latest as bytes
    from quarantine window latest as (order by id desc)) where place > ? or bytes > ?)
"""
SOON = 1_000_000  # bytes in SQLite's log from which an idle node brings them to their places in the file
RETIRED = 2**25  # bytes of files that wait for the log to be brought home, at most
RESERVED = 64  # numbers of messages: what is next is saved once for so many


SELECT_JOBS = "select id, sender, number, asks, file, crc, row_crc, body from jobs order by id"
SAVE_PEER = "insert or replace into peer values(?, ?, ?, ?)"


NEW_DISK = -1  # number of a job that is no message: the role is to hear that its sender has another disk


@record
class Job:
    """A message that waits for the role. `id`: its row, or None where it was never written. `file`: holds the body."""

    sender: str
    number: int
    asks: bool
    body: Buffer
    id: int | None = None
    file: str | None = None


class Store:
    """An open store.

    Args:
        path: of the file, made if it is not there.
        durability: "normal": survives the death of the process; a power cut may lose the last commits. "full": survives
            a power cut too.

    Attributes:
        epoch: drawn when the file was made: a peer that sees another one knows that this is another disk.
        outbox: its rows; saved through `save_sent`, which also takes care of their numbers.
        reserved: number of a message below which all numbers count as used, even if a crash comes now.
        rolled_back: commits of an earlier process are missing, so the epoch is a new one; the record is whole.
        events, jobs: numbers of the latest event and job.

    Raises:
        UsageError: the file is of another version. StoreDamaged: it is no store any more. DiskError: it cannot be
            written now.
    """

    def __init__(self, path: Path, durability: str = "normal"):
        if durability not in ("normal", "full"):
            raise UsageError(f"durability = {durability!r}, it is 'normal' or 'full'")
        self.path = path
        self.files = Files(path.with_suffix(".bodies"))
        self.durability, self.retired, self.retired_bytes = durability, list[str](), 0
        self.mark = WritingMark(path)
        try:
            self.db = open_database(path, durability, self.mark)
        except BaseException:
            self.mark.close()
            raise
        self.outbox = OutboxTable(self.db, self.files)
        self.reserved = self.written = 0
        try:
            with finding_damage(path):
                self.epoch = int(get_value(self.db, "epoch") or 0)
                self.rolled_back = bool(get_value(self.db, "lost"))
                self.events = max(int(get_value(self.db, "events") or 0), self.find_last("told"))
                self.jobs = self.find_last("jobs")
        except BaseException:
            self.drop()
            raise
        self.mark.note(False)

    def find_last(self, table: str) -> int:
        """Number of the last row that was ever in a table, as far as SQLite remembers; 0: there was none."""
        known = "union select seq from sqlite_sequence where name = ?"
        found = self.db.execute(f"select max(id) from (select id from {table} {known})", (table,)).fetchone()[0]
        return int(found or 0)

    def close(self) -> None:
        close_database(self.db, self.mark)

    def drop(self) -> None:
        """Close as a kill would, or after the disk has failed: the next process looks twice."""
        self.db.close()
        self.mark.close()

    def check_pages(self) -> None:
        """Look through the whole file.

        Raises:
            StoreDamaged: it is not as it was written.
        """
        check_pages(self.db)

    def transaction(self, stays_open: Callable[[], bool] | None = None) -> Transaction:
        """All or nothing, together with what was left open before.

        Args:
            stays_open: asked at the end; True leaves the transaction open for the next one.
        """
        return Transaction(self.db, self.mark, self.outbox.delete_free, stays_open)

    def checkpoint(self) -> None:
        """Bring SQLite's log to its places. For an idle moment: later, it would keep a commit waiting."""
        if self.written + self.outbox.written + self.retired_bytes >= SOON:
            self.force_checkpoint()

    def force_checkpoint(self) -> None:
        """Bring SQLite's log to its places, synced, and delete the files that no row names any more."""
        self.db.execute("pragma wal_checkpoint(passive)").fetchall()
        self.files.remove(self.retired)
        self.written = self.outbox.written = self.retired_bytes = 0
        self.retired = []

    def retire_files(self, names: Sequence[str]) -> None:
        """Delete files that no row names since the last commit, as soon as a power cut cannot undo that commit."""
        if self.durability == "full":
            return self.files.remove(names)
        self.retired += names
        self.retired_bytes += self.files.count_bytes(names)
        if self.retired_bytes > RETIRED:
            self.force_checkpoint()

    # -- values

    def get_value(self, key: str) -> bytes | None:
        """A value by its name; None: there is none.

        Raises:
            StoreDamaged: it is not what was saved.
        """
        found: Any = get_value(self.db, key)  # what was put: a number, where that was one
        value: bytes | None = found
        return value

    def put_value(self, key: str, value: bytes | int) -> None:
        put_value(self.db, key, value)

    def note_recovery(self) -> None:
        """Peers are being told that this is another disk: nothing more is to be done about lost commits."""
        self.put_value("lost", 0)
        self.rolled_back = False

    def load_record(self) -> bytes | None:
        """The node's record, encoded; None before it was first saved.

        Raises:
            StoreDamaged: it is not what was saved.
        """
        row = self.db.execute("select v, crc from record").fetchone()
        if row is None:
            return None
        check_saved("record", row[0], row[1])
        return bytes(row[0])

    def save_record(self, record: Buffer) -> None:
        # in place: where the size is the same, SQLite writes the same pages again and frees none
        self.written += len(record)
        self.db.execute(SAVE_RECORD, (record, checksum(record)))

    @property
    def is_restored(self) -> bool:
        """It was put back from a backup, and its node has not gone on since."""
        return bool(get_value(self.db, RESTORED))

    def forget_restored(self) -> None:
        self.put_value(RESTORED, 0)

    def load_counters(self) -> dict[str, int]:
        saved = self.get_value("counters")
        return {} if saved is None else msgpack.unpackb(saved)

    def save_counters(self, counters: Mapping[str, int]) -> None:
        self.put_value("counters", msgpack.packb(dict(counters)))

    # -- peers and what came from them

    def load_peers(self) -> dict[str, tuple[int, int, set[int]]]:
        """Name -> epoch, floor, and what was received at or above the floor.

        Raises:
            StoreDamaged: a row is not what was saved.
        """
        found: dict[str, tuple[int, int, set[int]]] = {}
        for name, epoch, floor, crc in self.db.execute("select name, epoch, floor, row_crc from peer"):
            check_row(f"peer {name}", crc, name, epoch, floor)
            found[name] = (epoch, floor, set())
        for src, seq, crc in self.db.execute("select src, seq, row_crc from inbox"):
            check_row(f"inbox of {src}", crc, src, seq)
            found[src][2].add(seq)
        return found

    def save_peer(self, name: str, epoch: int, floor: int) -> None:
        """Save how far a peer has been heard. Single messages below the floor need not be remembered any more."""
        self.db.execute(SAVE_PEER, (name, epoch, floor, row_checksum(name, epoch, floor)))
        self.db.execute("delete from inbox where src = ? and seq < ?", (name, floor))

    def renew_peer(self, name: str, epoch: int) -> None:
        """The peer has another disk: nothing was received from it."""
        self.db.execute(SAVE_PEER, (name, epoch, 0, row_checksum(name, epoch, 0)))
        self.db.execute("delete from inbox where src = ?", (name,))

    def save_received(self, src: str, seq: int) -> None:
        self.db.execute("insert into inbox values(?, ?, ?)", (src, seq, row_checksum(src, seq)))

    # -- what goes out

    def load_next_seq(self) -> int:
        """A number above all that were ever used. After a restart some are left out, which does no harm."""
        self.reserved = int(get_value(self.db, "seq") or 1)
        return self.reserved

    def save_sent(self, row: OutboxRow, body: Buffer) -> None:
        """Save a new message, and that its number is used."""
        self.outbox.save_row(row, body)
        if row.seq >= self.reserved:
            self.reserved = row.seq + RESERVED
            self.put_value("seq", self.reserved)

    # -- work

    def load_jobs(self) -> list[Job]:
        """Messages that wait for the role, in the order in which they came.

        Raises:
            StoreDamaged: one of them is not what was received.
        """
        found = []
        for id, sender, number, asks, file, crc, row_crc, inline in self.db.execute(SELECT_JOBS):
            check_row(f"message {number} of {sender}", row_crc, id, sender, number, asks, file, crc)
            body = self.files.read_saved(file) if file else inline
            check_saved(f"message {number} of {sender}", body, crc)
            found.append(Job(sender, number, bool(asks), body, id, file))
        return found

    def save_job(self, job: Job) -> Job:
        """The job with the number of its row."""
        if job.file:
            self.files.sync_body(job.file)
        self.jobs += 1
        about = (self.jobs, job.sender, job.number, int(job.asks), job.file, checksum(job.body))
        sql = "insert into jobs(id, sender, number, asks, file, crc, row_crc, body) values(?, ?, ?, ?, ?, ?, ?, ?)"
        self.db.execute(sql, (*about, row_checksum(*about), None if job.file else job.body))
        return changed(job, id=self.jobs)

    def drop_job(self, id: int) -> None:
        self.db.execute("delete from jobs where id = ?", (id,))

    def list_used_files(self) -> set[str]:
        """Names of the files that a row needs."""
        rows = self.db.execute("select file from outbox union select file from jobs")
        return {file for (file,) in rows if file}

    def quarantine(self, job: Job, why: str) -> None:
        """Keep a message that a role could not work on; of many the latest, as far as there is room for them."""
        sql = "insert into quarantine(sender, number, asks, body, why, at) values(?, ?, ?, ?, ?, ?)"
        self.db.execute(sql, (job.sender, job.number, job.asks, job.body, why, time.time()))
        self.db.execute(FORGET_QUARANTINED, (QUARANTINED, QUARANTINED_BYTES))

    def load_quarantine(self) -> list[tuple[str, int, str]]:
        """Sender, number and traceback of each message that was set aside."""
        return self.db.execute("select sender, number, why from quarantine order by id").fetchall()

    # -- the application's

    def load_told(self) -> list[tuple[int, bytes]]:
        """Number and encoding of the events that the application has not had.

        Raises:
            StoreDamaged: one of them is not what was saved.
        """
        found = self.db.execute("select id, body, crc, row_crc from told order by id").fetchall()
        for id, body, crc, row_crc in found:
            check_row(f"event {id}", row_crc, id, crc)
            check_saved(f"event {id}", body, crc)
        return [(id, body) for id, body, _, _ in found]

    def save_told(self, body: Buffer) -> int:
        """Save an event; returns its number, which grows and is never used twice."""
        self.events += 1
        crc = checksum(body)
        self.put_value("events", self.events)
        sql = "insert into told(id, body, crc, row_crc) values(?, ?, ?, ?)"
        self.db.execute(sql, (self.events, body, crc, row_checksum(self.events, crc)))
        return self.events

    def drop_told(self, ids: Sequence[int]) -> None:
        self.db.executemany("delete from told where id = ?", [(id,) for id in ids])
