"""The service's database: tables, and a transaction that every change is made in.

SQLite by default, another one by its URL. Metrics of runs are not in it: they are in the runs' own files, and are read
from there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from edge_sdk.errors import UsageError

SCHEMA = 1
"""Number of the form of the tables. Another one is refused, unless there is a step from it in MIGRATIONS."""

tables = sql.MetaData()

about = sql.Table("about", tables, sql.Column("key", sql.String(40), primary_key=True), sql.Column("value", sql.Text))

runs = sql.Table(
    "runs",
    tables,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("place", sql.Integer, nullable=False),  # in the queue
    sql.Column("state", sql.String(16), nullable=False),
    sql.Column("wish", sql.String(16), nullable=False, default=""),
    sql.Column("wanted", sql.JSON, nullable=False),  # what was asked for: see runs.Wanted
    sql.Column("hospitals", sql.JSON, nullable=False, default=dict),  # name -> devices, from its first start
    sql.Column("cloned", sql.String(64), nullable=False, default=""),
    sql.Column("by", sql.String(64), nullable=False, default=""),
    sql.Column("why", sql.Text, nullable=False, default=""),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("started", sql.Float),
    sql.Column("ended", sql.Float),
)

hospitals = sql.Table(
    "hospitals",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("report", sql.JSON, nullable=False),  # the latest, as edge_sdk/live/fleet_report.py makes it
    sql.Column("first_heard", sql.Float, nullable=False),
    sql.Column("last_heard", sql.Float, nullable=False),
)

models = sql.Table(
    "models",
    tables,
    sql.Column("sha256", sql.String(64), primary_key=True),
    sql.Column("kind", sql.String(16), nullable=False),  # bundle or global
    sql.Column("name", sql.String(200), nullable=False),
    sql.Column("file", sql.Text, nullable=False),  # relative to the service's directory
    sql.Column("bundle", sql.String(64), nullable=False, default=""),  # that a global model belongs to
    sql.Column("run", sql.String(64), nullable=False, default=""),
    sql.Column("facts", sql.JSON, nullable=False, default=dict),
    sql.Column("promoted", sql.Float),
    sql.Column("created", sql.Float, nullable=False),
)

audit = sql.Table(
    "audit",
    tables,
    sql.Column("seq", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("at", sql.Float, nullable=False),
    sql.Column("who", sql.String(64), nullable=False),
    sql.Column("action", sql.String(64), nullable=False),
    sql.Column("subject", sql.String(200), nullable=False),
    sql.Column("detail", sql.Text, nullable=False),
    sql.Column("hash", sql.String(64), nullable=False),
)

people = sql.Table(
    "people",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("role", sql.String(16), nullable=False),
    sql.Column("password", sql.Text, nullable=False),  # argon2id
    sql.Column("created", sql.Float, nullable=False),
)

keys = sql.Table(
    "keys",
    tables,
    sql.Column("hash", sql.String(64), primary_key=True),  # sha256 of a session's cookie or of a token
    sql.Column("kind", sql.String(16), nullable=False),  # session or token
    sql.Column("name", sql.String(64), nullable=False),
    sql.Column("role", sql.String(16), nullable=False),
    sql.Column("csrf", sql.String(64), nullable=False, default=""),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("expires", sql.Float, nullable=False),
)

Row = dict[str, Any]


class Database:
    """The database. `changed` is set after each transaction that has changed something.

    Args:
        url: as SQLAlchemy has it.

    Raises:
        UsageError: it cannot be opened, or a version of Auscult has made it that this one does not know.
    """

    def __init__(self, url: str):
        self.engine: Engine = sql.create_engine(url, connect_args={"timeout": 30} if url.startswith("sqlite") else {})
        self.lock, self.changed = threading.RLock(), threading.Event()
        if url.startswith("sqlite"):
            sql.event.listen(self.engine, "connect", prepare_sqlite)
        try:
            tables.create_all(self.engine)
            self.check_schema()
        except sql.exc.SQLAlchemyError as error:
            said = str(error.__cause__ or error).splitlines()[0]
            raise UsageError(f"database {self.engine.url!r}: cannot be opened: {said}") from error

    def check_schema(self) -> None:
        """Note the number of the form in a new database.

        Raises:
            UsageError: it has another one.
        """
        with self.transaction() as t:
            found = t.execute(sql.select(about.c.value).where(about.c.key == "schema")).scalar()
            if found is None:
                t.execute(about.insert().values(key="schema", value=str(SCHEMA)))
            elif found != str(SCHEMA):
                raise UsageError(
                    f"database {self.engine.url!r} has form {found}, this version of Auscult knows {SCHEMA}: "
                    "use the version that made it, or another directory"
                )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction; one at a time in this process. Whoever waits for changes is woken at its end."""
        with self.lock, self.engine.begin() as connection:
            yield connection
        self.changed.set()

    def read(self, query: sql.Select[Any]) -> list[Row]:
        """The rows of a query, as dictionaries."""
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def close(self) -> None:
        self.engine.dispose()


def database_in(directory: Path, url: str = "") -> Database:
    """The database of a service. `url`: ""; an SQLite file in its directory."""
    return Database(url or f"sqlite:///{directory / 'service.db'}")


def prepare_sqlite(connection: Any, _: Any) -> None:
    """Write-ahead log, so that readers do not wait; each commit is on the disk before it is said to be."""
    cursor = connection.cursor()
    for words in ("journal_mode = wal", "synchronous = full", "foreign_keys = on"):
        cursor.execute(f"pragma {words}")
    cursor.close()
