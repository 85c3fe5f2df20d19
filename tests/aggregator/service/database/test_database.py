"""The database: changes of several processes at once, forms of earlier versions, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sql

from aggregator.service.administration.accounts import TOKEN, People
from aggregator.service.database import audit
from aggregator.service.database.database import Database, about, database_in, keys, people, runs, schedules
from aggregator.service.database.migrations import SCHEMA, STEPS
from aggregator.service.database.problems import DatabaseAwayError
from aggregator.service.runs.runs import find_run
from edge_sdk.errors import UsageError

FORM_1 = """
CREATE TABLE about ("key" VARCHAR(40) NOT NULL, value TEXT, PRIMARY KEY ("key"));
CREATE TABLE runs (id VARCHAR(64) NOT NULL, place INTEGER NOT NULL, state VARCHAR(16) NOT NULL,
  wish VARCHAR(16) NOT NULL, wanted JSON NOT NULL, hospitals JSON NOT NULL, cloned VARCHAR(64) NOT NULL,
  "by" VARCHAR(64) NOT NULL, why TEXT NOT NULL, created FLOAT NOT NULL, started FLOAT, ended FLOAT, PRIMARY KEY (id));
CREATE TABLE hospitals (name VARCHAR(64) NOT NULL, report JSON NOT NULL, first_heard FLOAT NOT NULL,
  last_heard FLOAT NOT NULL, PRIMARY KEY (name));
CREATE TABLE models (sha256 VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL, name VARCHAR(200) NOT NULL,
  file TEXT NOT NULL, bundle VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, facts JSON NOT NULL, promoted FLOAT,
  created FLOAT NOT NULL, PRIMARY KEY (sha256));
CREATE TABLE audit (seq INTEGER NOT NULL, at FLOAT NOT NULL, who VARCHAR(64) NOT NULL, action VARCHAR(64) NOT NULL,
  subject VARCHAR(200) NOT NULL, detail TEXT NOT NULL, hash VARCHAR(64) NOT NULL, PRIMARY KEY (seq));
CREATE TABLE people (name VARCHAR(64) NOT NULL, role VARCHAR(16) NOT NULL, password TEXT NOT NULL,
  created FLOAT NOT NULL, PRIMARY KEY (name));
CREATE TABLE keys (hash VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL, name VARCHAR(64) NOT NULL,
  role VARCHAR(16) NOT NULL, csrf VARCHAR(64) NOT NULL, created FLOAT NOT NULL, expires FLOAT NOT NULL,
  PRIMARY KEY (hash));
INSERT INTO about VALUES ('schema', '1');
INSERT INTO people VALUES ('ada', 'admin', 'x', 1.5);
INSERT INTO keys VALUES ('h', 'token', 'ada', 'viewer', '', 1.5, 9e9);
INSERT INTO runs VALUES ('first', 1, 'paused', '', '{}', '{"north": 2}', '', 'ada', '', 1.5, 2.5, NULL);
"""
"""What the first version of the service has written."""


@pytest.fixture
def url(database_url: str, tmp_path: Path) -> str:
    return database_url or f"sqlite:///{tmp_path / 'service.db'}"


def write_form_1(url: str) -> None:
    engine = sql.create_engine(url)
    with engine.begin() as t:
        for words in FORM_1.split(";\n"):
            if words.strip():
                t.exec_driver_sql(words)
    engine.dispose()


def read_form(database: Database) -> str:
    [row] = database.read(sql.select(about.c.value).where(about.c.key == "schema"))
    return str(row["value"])


def test_entries_of_several_processes_make_one_chain(url: str) -> None:
    """Each has read the latest hash before it writes: unless they take turns, two entries have one number."""
    databases = [Database(url) for _ in range(3)]

    def write(database: Database) -> None:
        for i in range(15):
            with database.transaction() as t:
                audit.note(t, "ada", "run.queue", f"run-{i}")

    threads = [threading.Thread(target=write, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert audit.find_break(databases[0])[:2] == (None, 45)
    for database in databases:
        database.close()


def test_a_connection_that_is_in_use_when_the_database_is_closed_is_closed_after_it(url: str) -> None:
    database = Database(url)
    with database.engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        database.close()
        assert connection.execute(sql.select(about)).all()
    assert driver is not None
    with pytest.raises(Exception, match="closed"):
        driver.cursor().execute("select 1")


def test_a_database_of_the_first_version_is_brought_to_the_present_form(url: str) -> None:
    write_form_1(url)
    for _ in range(2):
        database = Database(url)
        assert read_form(database) == str(SCHEMA) == str(max(STEPS))
        assert find_run(database, "first")["hospitals"] == {"north": 2}
        assert database.read(sql.select(people.c.name)) == [{"name": "ada"}]
        People(database).make_key(TOKEN, "ada", "viewer", 60.0, "test")
        assert {row["scopes"] for row in database.read(sql.select(keys.c.scopes))} == {""}
        database.close()


OPEN = "import sys; from aggregator.service.database.database import Database; Database(sys.argv[1]).close()"


@pytest.mark.long
def test_a_kill_in_the_middle_of_a_step_leaves_the_old_form_whole(url: str) -> None:
    write_form_1(url)
    for point in ("service.migrated:1", "service.saved:1"):
        killed = subprocess.run(
            [sys.executable, "-c", OPEN, url], env={**os.environ, "AUSCULT_FAIL": point}, timeout=60
        )
        assert killed.returncode == -signal.SIGKILL
        engine = sql.create_engine(url)
        assert {column["name"] for column in sql.inspect(engine).get_columns("keys")}.isdisjoint({"scopes"})
        engine.dispose()
    database = Database(url)
    assert read_form(database) == str(SCHEMA) and find_run(database, "first")["state"] == "paused"
    database.close()


def test_a_database_of_a_newer_version_is_refused_by_its_name(url: str) -> None:
    database = Database(url)
    with database.transaction() as t:
        t.execute(about.update().where(about.c.key == "schema").values(value="99"))
        t.execute(about.update().where(about.c.key == "version").values(value="7.1.0"))
    database.close()
    with pytest.raises(UsageError, match=r"has form 99, made by Auscult 7\.1\.0; this is Auscult .* knows forms 1 to"):
        Database(url)


def test_a_database_of_something_else_is_refused(url: str) -> None:
    engine = sql.create_engine(url)
    runs.create(engine)
    engine.dispose()
    with pytest.raises(UsageError, match="has a table 'runs', and is not of Auscult's service"):
        Database(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://ada:se-cret@127.0.0.1:1/x",
        "nothing at all se-cret",
        "oracle://ada:se-cret@127.0.0.1/x",
        "sqlite:////nowhere/at/all.db",
    ],
)
def test_what_cannot_be_opened_is_said_without_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, DatabaseAwayError), match="cannot be opened") as said:
        database_in(tmp_path, url)
    assert "se-cret" not in str(said.value)


def test_schedules_of_a_form_without_events_begin_in_their_windows(url: str) -> None:
    engine = Database(url).engine
    with engine.begin() as t:
        row = {"name": "nightly", "wanted": {}, "begin": "22:00", "end": "06:00", "created": 1.5}
        t.execute(schedules.insert().values(row))
        for column in ("samples", "counted"):
            t.execute(sql.text(f"ALTER TABLE schedules DROP COLUMN {column}"))
        t.execute(sql.text("ALTER TABLE runs DROP COLUMN beside"))
        t.execute(about.update().where(about.c.key == "schema").values(value="3"))
    engine.dispose()
    database = Database(url)
    [found] = database.read(sql.select(schedules))
    assert (found["begin"], found["samples"], found["counted"]) == ("22:00", 0, {})
    database.close()
