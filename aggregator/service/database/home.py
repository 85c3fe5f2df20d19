"""The directory that a database belongs to: in it are the runs, models and keys that the rows are about."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import sqlalchemy as sql

from aggregator.service.database.database import Database, about
from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError

FILE, KEY = "database.id", "directory"
"""File in the directory, and row of the table `about`: both have the same random number."""


def check_home(database: Database, directory: Path) -> None:
    """Checks that a database belongs to a directory; one that belongs to none is its own from now on.

    Raises:
        UsageError: it belongs to another one, without which a service had new keys, and runs without rounds.
    """
    path, row = directory / FILE, about.c.key == KEY
    mine = path.read_text().strip() if path.exists() else ""
    with database.transaction() as t:
        id, _, where = str(t.execute(sql.select(about.c.value).where(row)).scalar() or "").partition(" ")
        if id and id != mine:
            known = "" if mine else f"; or write {path} with the text {id} if it is the same directory"
            raise UsageError(
                f"directory = {str(directory)!r}: the database belongs to another directory, {where}: name that one, "
                f"restore its backup into an empty directory and an empty database, or take an empty database{known}"
            )
        if not mine:
            mine = secrets.token_hex(16)
            write_text(path, f"{mine}\n")
        now = f"{mine} {socket.gethostname()}:{directory.absolute()}"
        if not t.execute(about.update().where(row).values(value=now)).rowcount:
            t.execute(about.insert().values(key=KEY, value=now))
