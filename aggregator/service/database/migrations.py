"""The form of the database: a number, and a step from each form to the next.

A database of an older version of Auscult is brought to the form of this one when the service is started, in one
transaction: after a kill in the middle it has its old form, whole. There are no steps back, so make a backup before a
new version (`auscult service backup`); a database that a newer version has made is refused.

To change the form: change the tables in database.py, and add a step here under the next number. Tables that are missing
are made after the steps, so a step does what changes those that are there; for new tables alone it is `add_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.errors import UsageError
from edge_sdk.version import find_version

Step = Callable[[Connection], None]


def add_tables(t: Connection) -> None:
    """Only adds tables: they are made after the steps."""


def add_column(t: Connection, table: str, words: str) -> None:
    """Adds a column. `words`: as CREATE TABLE has it; NOT NULL needs a DEFAULT, for the rows that are there."""
    t.execute(sql.text(f"ALTER TABLE {table} ADD COLUMN {words}"))


def scope_tokens(t: Connection) -> None:
    """A token may be for some parts of the API only, and a run may await a second person's approval."""
    add_column(t, "keys", "scopes VARCHAR(200) DEFAULT '' NOT NULL")
    add_column(t, "runs", "awaits INTEGER DEFAULT 0 NOT NULL")


def add_events(t: Connection) -> None:
    """A schedule may begin a run when there are enough new samples. The first versions had no schedules."""
    if sql.inspect(t).has_table("schedules"):
        add_column(t, "schedules", "samples INTEGER DEFAULT 0 NOT NULL")
        add_column(t, "schedules", "counted JSON DEFAULT '{}' NOT NULL")


def add_lanes(t: Connection) -> None:
    """A rollout may go on beside a training at the same hospitals."""
    add_column(t, "runs", "beside INTEGER DEFAULT 0 NOT NULL")


def add_claim(t: Connection) -> None:
    """Changes no table: one service works with the database, and a version that does not know that is refused."""


FIRST = 1
STEPS: Mapping[int, Step] = {2: scope_tokens, 3: add_tables, 4: add_events, 5: add_lanes, 6: add_tables, 7: add_claim}
"""Number of a form -> what makes it of a database of the form before it."""
SCHEMA = max(STEPS, default=FIRST)
"""Number of the form that database.py describes."""


def migrate(t: Connection, tables: sql.MetaData) -> None:
    """Brings a database to the present form, within a transaction that nobody else is beside; a new one is filled.

    Raises:
        UsageError: it is of a newer version of Auscult, or of something else.
    """
    about = tables.tables["about"]
    there = {*sql.inspect(t).get_table_names()} & {*tables.tables}
    if not there:
        tables.create_all(t)
        t.execute(
            about.insert(), [{"key": "schema", "value": str(SCHEMA)}, {"key": "version", "value": find_version()}]
        )
        return
    form = read_form(t, about) if "about" in there else None
    if form is None:
        raise UsageError(f"has a table {min(there)!r}, and is not of Auscult's service: name an empty database")
    for number in range(form + 1, SCHEMA + 1):
        STEPS[number](t)
        reach("service.migrated")
    tables.create_all(t)
    if form < SCHEMA:
        t.execute(about.update().where(about.c.key == "schema").values(value=str(SCHEMA)))
        note_version(t, about)


def read_form(t: Connection, about: sql.Table) -> int | None:
    """Number of the form that a database has; None: it has none.

    Raises:
        UsageError: this version does not know it.
    """
    found = {row.key: row.value for row in t.execute(sql.select(about.c.key, about.c.value))}
    form = found.get("schema", "")
    if not form.isdigit():
        return None
    if not FIRST <= int(form) <= SCHEMA:
        made = f", made by Auscult {found['version']}" if "version" in found else ""
        raise UsageError(
            f"has form {form}{made}; this is Auscult {find_version()}, which knows forms {FIRST} to {SCHEMA}: use the "
            "version that made it, or put back a backup from before"
        )
    return int(form)


def note_version(t: Connection, about: sql.Table) -> None:
    """Note which version has made the present form."""
    changed = t.execute(about.update().where(about.c.key == "version").values(value=find_version()))
    if not changed.rowcount:
        t.execute(about.insert().values(key="version", value=find_version()))
