"""The right to be the one service of a database: two of them would begin the same runs, each from its own directory.

In PostgreSQL it is an advisory lock of a session of its own, which ends with the process or, where its machine or the
network has died, half a minute later. Beside an SQLite file it is a lock on another file.

Source: PostgreSQL's documentation, "Advisory Locks".
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from aggregator.service.database.problems import ClaimedError
from edge_sdk.atomic import PRIVATE

log = logging.getLogger("auscult.service")
LOCKS = 0x41757363
"""Of PostgreSQL's advisory locks: a number that others in the same database do not use."""
SERVICE = 1
PATIENCE = 60.0
"""Seconds for which the session of a service that has died may still be there."""
AGAIN = 1.0  # seconds between two tries
EVERY = 2.0  # seconds between two looks whether it is held
LONGEST = 63  # bytes of an application's name
SESSION = """SELECT set_config('application_name', %s, false), set_config('tcp_keepalives_idle', '15', false),
    set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)"""
"""The server finds out soon that the other end is no more, and whoever looks sees who it is."""
HOLDER = """SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'
    AND classid = %s AND objid = %s AND objsubid = 2 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class Claim:
    """The right of one process to a database. Used by one thread at a time.

    Args:
        directory: of the service, which others are told.
    """

    def __init__(self, engine: Engine, directory: Path):
        self.engine, self.directory = engine, directory
        self.mark = secrets.token_hex(4)
        told = f"{self.mark} {socket.gethostname()}:{directory.absolute()}".encode()[:LONGEST]
        self.told = told.decode(errors="ignore")
        self.connection: Connection | None = None
        self.file: int | None = None
        self.look_at = 0.0

    def take(self, patience: float = PATIENCE) -> None:
        """Takes it, and waits for the session of a service that has died.

        Raises:
            ClaimedError: another service has it.
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        if self.engine.dialect.name == "sqlite":
            return self.take_file()
        until, told = time.monotonic() + patience, False
        while (holder := self.try_session()) is not None:
            if time.monotonic() >= until:
                raise self.refuse(holder)
            if not told:
                log.warning(
                    "another service works with the database, %s: waiting until it has ended", name_holder(holder)
                )
            told = True
            time.sleep(AGAIN)

    def keep(self) -> None:
        """Takes it anew if it was lost, as when the database was restarted. Errors as of `take`."""
        if self.file is not None or time.monotonic() < self.look_at:
            return
        if self.connection is not None:
            try:
                self.connection.exec_driver_sql("SELECT 1")
            except sql.exc.DBAPIError:
                self.drop()
        if self.connection is None:
            self.take(0.0)
        self.look_at = time.monotonic() + EVERY

    def drop(self) -> None:
        """Gives it back."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sql.exc.SQLAlchemyError):
                connection.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def try_session(self) -> str | None:
        """Opens a session that has it; or returns who else has it. A session of this process that it has lost, and
        whose end the server does not know of yet, is ended."""
        connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.detach()  # it is closed when it is given back, and with it goes the lock
            connection.exec_driver_sql(SESSION, (self.told,))
            holder = lock_session(connection)
            if holder is not None and holder[1].startswith(self.mark):
                connection.exec_driver_sql("SELECT pg_terminate_backend(%s, 5000)", (holder[0],))
                holder = lock_session(connection)
            if holder is not None:
                return holder[1]
            self.connection = connection
            return None
        finally:
            if self.connection is not connection:
                connection.close()

    def take_file(self) -> None:
        """The lock beside an SQLite file; one in memory is nobody else's."""
        database = self.engine.url.database
        if not database or database == ":memory:":
            return
        file = os.open(f"{database}.service", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = os.pread(file, 4096, 0).decode(errors="replace")
            os.close(file)
            raise self.refuse(told) from None
        os.ftruncate(file, 0)
        os.pwrite(file, self.told.encode(), 0)
        self.file = file

    def refuse(self, holder: str) -> ClaimedError:
        """The error for a database that is another's. `holder`: as that has told; "": it has not."""
        return ClaimedError(
            f"database: another service works with it, {name_holder(holder)}; stop that one, or give {self.directory} "
            "a database of its own: two services on one would begin the same runs"
        )


def lock_session(connection: Connection) -> tuple[int, str] | None:
    """Lets a session take the lock; else returns the number and the name of the session that has it."""
    if connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s, %s)", (LOCKS, SERVICE)).scalar_one():
        return None
    return find_session(connection) or (0, "")


def find_session(connection: Connection) -> tuple[int, str] | None:
    """Number and name of the session that has the lock."""
    holder = connection.exec_driver_sql(HOLDER, (LOCKS, SERVICE)).first()
    return None if holder is None else (int(holder[0]), holder[1] or "")


def find_holder(engine: Engine) -> str | None:
    """Who has the right to a database, as far as it says; None: nobody, or it is in a file, which nobody is asked of.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database does not answer.
    """
    if engine.dialect.name == "sqlite":
        return None
    with engine.connect() as connection:
        found = find_session(connection)
    return None if found is None else name_holder(found[1])


def name_holder(told: str) -> str:
    """Machine and directory of a service. `told`: by its session or in its file."""
    return told.partition(" ")[2] or "which does not say where it is"
