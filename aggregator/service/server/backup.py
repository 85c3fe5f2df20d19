"""A service in one file, made while it runs, and put back into an empty place.

The file is a backup as `auscult backup` makes them of a node: a tar archive whose manifest names everything in it with
its hash. `database.jsonl` in it has the rows of all tables as they were at one moment, in no database's own format, so
what was made on SQLite can be put back on PostgreSQL and the other way round. Stores of runs are copied after that, so
they are as old as the rows or newer. Sessions of browsers and logs are left out.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.administration.accounts import BROWSER, SESSION
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.service import CONNECTION
from aggregator.service.database import audit
from aggregator.service.database.database import Database, about, database_in, keys, tables
from aggregator.service.database.migrations import FIRST, SCHEMA
from edge_sdk.atomic import make_private_directory, replace_file, sync_to_disk
from edge_sdk.delivery.storage.snapshot import make_another_disk
from edge_sdk.errors import UsageError
from edge_sdk.tools.backups.backup import STORE, Manifest, describe, list_files, stage, staged_for, write_archive
from edge_sdk.tools.backups.restore import staged_beside, unpack
from edge_sdk.version import find_version

ROWS = "database.jsonl"
RUNS = "runs"
LEFT_OUT = ("logs", RUNS, CONNECTION)
"""Of the service's directory; runs are copied store by store."""
AT_ONCE = 500  # rows


def back_up(file: FleetFile, target: Path, who: str, passphrase: str = "") -> Manifest:
    """Writes a backup of a service, whether it runs or not. `passphrase`: encrypts it; "": it is not encrypted.

    Raises:
        UsageError: there is no service, or the file is there already, or cannot be written.
        StoreDamaged: a run's store is damaged.
    """
    if not file.directory.is_dir():
        raise UsageError(f"{file.directory}: no service has been started there")
    if target.exists():
        raise UsageError(f"{target} is there already: a backup is never written over another")
    where = staged_for(target, file.directory if passphrase else None)
    with closing(database_in(file.directory, file.database)) as database, where as staged:
        write_rows(database, staged / ROWS)
        stage_files(file.directory, staged)
        manifest = describe(file.name, staged)
        with replace_file(target) as written:
            write_archive(written, staged, manifest, passphrase)
        sync_to_disk(target, target.absolute().parent)
        with database.transaction() as t:
            audit.note(t, who, "service.backup", file.name, files=len(manifest.members))
    return manifest


def stage_files(directory: Path, staged: Path) -> None:
    """Copies all files of a service but its database; models do not change, and what is written is replaced whole."""
    for path in list_files(directory):
        place = path.relative_to(directory)
        if place.parts[0] not in LEFT_OUT:
            make_private_directory((staged / place).parent)
            with suppress(FileNotFoundError):  # it has another name meanwhile, or is done with
                shutil.copy2(path, staged / place)
    for run in sorted((directory / RUNS).glob("*")):
        if run.is_dir() and not run.is_symlink():
            make_private_directory(staged / RUNS)
            make_private_directory(staged / RUNS / run.name)
            stage(run, staged / RUNS / run.name)


def write_rows(database: Database, path: Path) -> None:
    """Writes the rows of all tables, as they are at one moment: the first line says of which form they are."""
    alone = {"isolation_level": "REPEATABLE READ"} if database.engine.dialect.name == "postgresql" else {}
    with database.engine.connect().execution_options(**alone) as t, path.open("w") as lines:
        lines.write(json.dumps({"schema": SCHEMA, "version": find_version()}) + "\n")
        for table in tables.sorted_tables:
            query = sql.select(table)
            if table is keys:
                query = query.where(keys.c.kind.not_in((SESSION, BROWSER)))
            with t.execution_options(yield_per=AT_ONCE).execute(query) as rows:
                lines.writelines(json.dumps([table.name, dict(row)]) + "\n" for row in rows.mappings())


def restore(file: FleetFile, source: Path, who: str, passphrase: str = "") -> Manifest:
    """Puts a backup into the directory and the database of a service, which must both be empty.

    The directory gets its name before the rows are committed: after a kill in between, the database is empty and the
    directory is not, which the next try says. The other way round a service would begin its runs anew.

    Raises:
        UsageError: something is there already, or the file is no backup of a service, or is damaged.
    """
    directory = file.directory.absolute()
    with staged_beside(directory) as staged:
        manifest = unpack(source, staged, passphrase)
        if not (staged / ROWS).exists():
            raise UsageError(f"{source}: is a backup of a node, not of a service: auscult restore puts it back")
        for store in sorted(staged.glob(f"{RUNS}/*/*{STORE}")):
            make_another_disk(store)
        put_back(file, staged, lambda: place(staged, directory), who, manifest)
    return manifest


def place(staged: Path, directory: Path) -> None:
    (staged / ROWS).unlink()
    os.sync()
    staged.rename(directory)


def put_back(file: FleetFile, staged: Path, move: Callable[[], None], who: str, manifest: Manifest) -> None:
    """Writes the rows of a backup into an empty database; `move` is called before they are committed."""
    database = database_in(staged, file.database)
    try:
        with database.transaction() as t:
            for table in tables.sorted_tables:
                if table is not about and t.execute(sql.select(sql.func.count()).select_from(table)).scalar_one():
                    raise UsageError(f"the database has rows in {table.name}: a backup is put into an empty one only")
            insert_rows(t, staged / ROWS)
            audit.note(t, who, "service.restore", manifest.node, made=manifest.made)
            move()
    finally:
        database.close()


def insert_rows(t: Connection, path: Path) -> None:
    """Inserts rows in groups. Columns that are newer than the backup have their defaults."""
    for name, rows in group_rows(path):
        table = tables.tables.get(name)
        if table is None or not {*rows[0]} <= {*table.c.keys()}:
            raise UsageError(
                f"the backup has rows of {name!r} that this version does not know: use the one that made it"
            )
        if table is not about:
            t.execute(table.insert(), rows)


def group_rows(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows of a backup, in groups of one table.

    Raises:
        UsageError: they are of a form that this version does not know.
    """
    with path.open() as lines:
        head = json.loads(lines.readline())
        if not FIRST <= head["schema"] <= SCHEMA:
            raise UsageError(
                f"the backup has form {head['schema']}, made by Auscult {head['version']}; this is Auscult "
                f"{find_version()}, which knows forms {FIRST} to {SCHEMA}"
            )
        group: tuple[str, list[dict[str, Any]]] = ("", [])
        for line in lines:
            name, row = json.loads(line)
            if name != group[0] or len(group[1]) == AT_ONCE:
                if group[1]:
                    yield group
                group = (name, [])
            group[1].append(row)
        if group[1]:
            yield group
