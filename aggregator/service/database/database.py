"""The service's database: tables, and a transaction that every change is made in.

SQLite by default, PostgreSQL by its URL. Metrics of runs are not in it: they are in the runs' own files, and are read
from there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from aggregator.service.database.claim import LOCKS, Claim
from aggregator.service.database.migrations import migrate
from aggregator.service.database.problems import DatabaseAwayError, say_cause
from edge_sdk.atomic import PRIVATE, close_to_others
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.errors import UsageError

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
    sql.Column("awaits", sql.Integer, nullable=False, default=0),  # approvals that it still needs
    sql.Column(
        "beside", sql.Integer, nullable=False, default=0
    ),  # number of its lane at its hospitals; 0: the main one
    sql.Column("cloned", sql.String(64), nullable=False, default=""),
    sql.Column("by", sql.String(64), nullable=False, default=""),
    sql.Column("why", sql.Text, nullable=False, default=""),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("started", sql.Float),
    sql.Column("ended", sql.Float),
)

schedules = sql.Table(
    "schedules",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("wanted", sql.JSON, nullable=False),
    sql.Column("begin", sql.String(5), nullable=False),  # as 22:00, in the service's time zone
    sql.Column("end", sql.String(5), nullable=False),
    sql.Column("days", sql.String(40), nullable=False, default=""),
    sql.Column("latest", sql.String(10), nullable=False, default=""),  # day of the window that began a run last
    sql.Column("held", sql.String(64), nullable=False, default=""),  # run that was paused at the end of a window
    sql.Column("samples", sql.Integer, nullable=False, default=0),  # new ones that begin a run; 0: a window does
    sql.Column("counted", sql.JSON, nullable=False, default=dict),  # hospital -> its sum of labels that is not new
    sql.Column("by", sql.String(64), nullable=False, default=""),
    sql.Column("created", sql.Float, nullable=False),
)

hospitals = sql.Table(
    "hospitals",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("report", sql.JSON, nullable=False),  # the latest, as edge_sdk/live/loop/fleet_report.py makes it
    sql.Column("first_heard", sql.Float, nullable=False),
    sql.Column("last_heard", sql.Float, nullable=False),
)

hops = sql.Table(  # bytes between a hospital and its devices in a run, as the hospital has reported them
    "hops",
    tables,
    sql.Column("run", sql.String(64), primary_key=True),
    sql.Column("hospital", sql.String(64), primary_key=True),
    sql.Column("up", sql.BigInteger, nullable=False),
    sql.Column("down", sql.BigInteger, nullable=False),
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

proposals = sql.Table(  # of models that somebody else has to approve before they are in use
    "proposals",
    tables,
    sql.Column("sha256", sql.String(64), primary_key=True),
    sql.Column("by", sql.String(64), nullable=False),
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

hooks = sql.Table(
    "hooks",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("taken", sql.Integer, nullable=False),  # number of the audit log's entry that it was told last
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
    sql.Column("scopes", sql.String(200), nullable=False, default=""),  # of a token, with commas; "": all
    sql.Column("csrf", sql.String(64), nullable=False, default=""),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("expires", sql.Float, nullable=False),
)

invitations = sql.Table(
    "enrolment_tokens",
    tables,
    sql.Column("hash", sql.String(64), primary_key=True),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("parent", sql.String(64), nullable=False),
    sql.Column("name", sql.String(64), nullable=False),  # that it is for; empty: any
    sql.Column("approved", sql.Boolean, nullable=False),  # who brings it needs no further approval
    sql.Column("by", sql.String(64), nullable=False),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("expires", sql.Float, nullable=False),
    sql.Column("used", sql.String(64), nullable=False, default=""),  # by whom
)
"""One-time tokens with which nodes enrol."""

Row = dict[str, Any]


class Database:
    """The database. `changed` is set after each transaction that has changed something.

    Args:
        url: as SQLAlchemy has it.

    Raises:
        UsageError: it cannot be opened, or a version of Auscult has made it that this one does not know.
        DatabaseAwayError: it does not answer now.
    """

    def __init__(self, url: str):
        self.lock, self.changed = threading.RLock(), threading.Event()
        self.claim: Claim | None = None
        with telling_why(url):
            self.engine: Engine = make_engine(url)
            try:
                with self.transaction() as t:
                    migrate(t, tables)
            except BaseException:
                self.engine.dispose()
                raise

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that changes something, one at a time in all processes: what it has read stays true until it
        ends. Whoever waits for changes is woken then."""
        with self.lock, self.engine.connect().execution_options(**{CHANGES: True}) as connection, connection.begin():
            yield connection
            reach("service.saved")
        reach("service.committed")
        self.changed.set()

    def read(self, query: sql.Select[Any]) -> list[Row]:
        """The rows of a query, as dictionaries."""
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def claim_for(self, directory: Path) -> None:
        """Makes the process the one service of this database, until it is closed. Errors as of `Claim.take`."""
        claim = Claim(self.engine, directory)
        with telling_why(str(self.engine.url)):
            claim.take()
        self.claim = claim

    def keep_claim(self) -> None:
        """Takes the right of `claim_for` anew where it was lost. Errors as of `Claim.take`."""
        if self.claim is not None:
            self.claim.keep()

    def close(self) -> None:
        """Closes all connections; one that another thread still works with, as soon as that has done."""
        if self.claim is not None:
            self.claim.drop()
        sql.event.listen(self.engine.pool, "checkin", close_late)
        self.engine.dispose()


def database_in(directory: Path, url: str = "") -> Database:
    """The database of a service. `url`: ""; an SQLite file in its directory, which nobody else can read: there are
    hashes of passwords in it, and names."""
    path = directory / DATABASE
    if not url:  # SQLite gives the files beside it the same mode
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
        for each in (path, *directory.glob(f"{path.name}-*")):
            close_to_others(each)
    return Database(url or f"sqlite:///{path}")


DATABASE = "service.db"
"""File of an SQLite database in the directory of its service."""


@contextmanager
def telling_why(url: str) -> Iterator[None]:
    """Raises UsageError in place of what a database's driver raises, and DatabaseAwayError where it does not answer."""
    try:
        yield
    except UsageError as error:
        said = str(error)
        raise UsageError(said if said.startswith("database") else f"database {hide_password(url)}: {said}") from None
    except ModuleNotFoundError as error:
        raise UsageError(f"database: {error.name} is missing here: pip install 'auscult[postgres]'") from error
    except sql.exc.NoSuchModuleError as error:
        raise UsageError(f"database {hide_password(url)}: cannot be opened: {error}") from error
    except sql.exc.ArgumentError:  # SQLAlchemy before 2.0.31 repeats the text, with the password that may be in it
        like = "postgresql+psycopg://NAME:PASSWORD@HOST/DATABASE"
        raise UsageError(f"database URL: cannot be opened: it is no URL; expected one like {like}") from None
    except sql.exc.OperationalError as error:
        kind = UsageError if url.startswith("sqlite") else DatabaseAwayError
        raise kind(f"database {hide_password(url)}: cannot be opened: {say_cause(error)}") from error
    except sql.exc.SQLAlchemyError as error:
        raise UsageError(f"database {hide_password(url)}: cannot be opened: {say_cause(error)}") from error


def hide_password(url: str) -> str:
    """A URL for an error, without what is secret in it."""
    try:
        return repr(sql.make_url(url))
    except sql.exc.ArgumentError:
        return "URL"


def make_engine(url: str) -> Engine:
    """Connections to a database.

    Its driver begins no transactions of its own, so that those of ours begin as they should: for changes with the one
    lock that there is. A writer that waited for it until its first change would have read what another one changes
    meanwhile, such as the latest hash of the audit log.
    """
    kind = sql.make_url(url).get_backend_name()
    if kind == "sqlite":
        engine = sql.create_engine(url, connect_args={"timeout": 30})
        sql.event.listen(engine, "connect", prepare_sqlite)
        sql.event.listen(engine, "begin", begin_sqlite)
    elif kind == "postgresql":
        engine = sql.create_engine(url, pool_pre_ping=True)
        sql.event.listen(engine, "begin", begin_postgres)
    else:
        raise UsageError(f"cannot be opened: {kind} is not known, sqlite and postgresql+psycopg are")
    return engine


def close_late(connection: Any, _: Any) -> None:
    """A connection has come back to a pool that is closed, and to which nobody comes any more."""
    if connection is not None:
        connection.close()


CHANGES = "auscult_changes"
"""Option of a connection whose transactions change something."""


def prepare_sqlite(connection: Any, _: Any) -> None:
    """Write-ahead log, so that readers do not wait; each commit is on the disk before it is said to be."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for words in ("journal_mode = wal", "synchronous = full", "foreign_keys = on"):
        cursor.execute(f"pragma {words}")
    cursor.close()


def begin_sqlite(connection: Connection) -> None:
    """Begin, and take the lock for changes at once."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(CHANGES) else "BEGIN")


def begin_postgres(connection: Connection) -> None:
    """Take the lock for changes; a process that holds it for half a minute has hung."""
    if connection.get_execution_options().get(CHANGES):
        words = "SELECT set_config('lock_timeout', '30s', true), pg_advisory_xact_lock(%s)"
        connection.exec_driver_sql(words, (LOCKS,))
