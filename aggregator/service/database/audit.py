"""The audit log: who did what and when, each entry with a hash over it and over the entry before.

Whoever changes, removes or inserts an entry breaks the chain from there on, and `auscult audit verify` finds where.
Cutting off the end breaks nothing, so keep the latest hash, which that command prints, somewhere else now and then.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.database.database import Database, Row, audit
from edge_sdk.errors import UsageError

LONGEST = 200  # characters of a search
AT_ONCE = 500  # entries in memory while the chain is checked
SERVICE = "service"
"""Who did it where no person did."""
FIRST = "0" * 64
"""What stands for the hash before the first entry."""


def hash_entry(before: str, entry: Row) -> str:
    """sha256 over an entry and the hash of the one before it."""
    told = [before, entry["seq"], repr(entry["at"]), entry["who"], entry["action"], entry["subject"], entry["detail"]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def note(t: Connection, who: str, action: str, subject: str, **detail: Any) -> None:
    """Adds an entry, in the transaction of what it is about: both are on the disk, or neither."""
    last = t.execute(sql.select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)).first()
    seq, before = (1, FIRST) if last is None else (last.seq + 1, last.hash)
    entry: Row = {"seq": seq, "at": time.time(), "who": who, "action": action, "subject": subject}
    entry["detail"] = json.dumps(detail, sort_keys=True)
    t.execute(audit.insert().values(**entry, hash=hash_entry(before, entry)))


def find_break(database: Database) -> tuple[int | None, int, str]:
    """Checks the chain. It reads every entry: a page that asks for it does so beside the others.

    Returns:
        (number of the first entry that does not fit, or None; number of entries; latest hash).
    """
    before, expected = FIRST, 1
    query = sql.select(audit).order_by(audit.c.seq)
    with database.engine.connect() as t, t.execution_options(yield_per=AT_ONCE).execute(query) as rows:
        for row in rows.mappings():  # a cursor at the server is closed although the rest is not read
            entry = dict(row)
            if entry["seq"] != expected or hash_entry(before, entry) != entry["hash"]:
                return expected, expected - 1, before
            before, expected = entry["hash"], expected + 1
    return None, expected - 1, before


SORTS = {"seq": audit.c.seq.desc(), "who": audit.c.who, "action": audit.c.action, "subject": audit.c.subject}
"""Key of a column by which the log may be sorted -> its order; after that the newest entry is first."""


def list_latest(
    database: Database, count: int, text: str = "", sort: str = "seq", skip: int = 0, after: int = 0
) -> list[Row]:
    """Entries, the newest first.

    Args:
        text: part of who, what, of what or the details of an entry.
        sort: one of SORTS, after a dash for the opposite order. skip: entries before the first one of the answer.
        after: only entries with a higher number.
    """
    column = SORTS.get(sort.removeprefix("-"), SORTS["seq"])
    order = reverse(column) if sort.startswith("-") else column
    query = sql.select(audit).order_by(order, audit.c.seq.desc()).limit(count).offset(skip)
    return database.read(query.where(*choose(text, after)))


def count_entries(database: Database, text: str = "", after: int = 0) -> int:
    """Number of the entries that `list_latest` chooses from."""
    [row] = database.read(sql.select(sql.func.count().label("count")).select_from(audit).where(*choose(text, after)))
    return int(row["count"])


def choose(text: str, after: int) -> list[sql.ColumnElement[bool]]:
    """Conditions for entries with a part of a text, and a number above another one. Raises UsageError for a text that
    is longer than anything in the log is worth searching for: SQLite takes none of 50,000."""
    if len(text) > LONGEST:
        raise UsageError(f"q: {len(text):,} characters, at most {LONGEST}")
    found = [sql.or_(*(part.icontains(text, autoescape=True) for part in SEARCHED))] if text else []
    return found + ([audit.c.seq > after] if after else [])


SEARCHED = (audit.c.who, audit.c.action, audit.c.subject, audit.c.detail)


def reverse(column: sql.ColumnElement[Any]) -> sql.ColumnElement[Any]:
    """The opposite order of one of SORTS."""
    return audit.c.seq.asc() if column is SORTS["seq"] else column.desc()
