"""One service at a database: a second one is refused, and a database that is away and comes back is taken again."""

from __future__ import annotations

import logging
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.administration.check_up import check_database
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.service import FleetService
from aggregator.service.database import claim, home
from aggregator.service.database.database import Database, about, hops, hospitals
from aggregator.service.database.home import FILE
from aggregator.service.database.problems import ClaimedError, DatabaseAwayError
from aggregator.service.fleet.monitor import to_hospital
from aggregator.service.server.command import main
from edge_sdk.cli import main as auscult
from edge_sdk.errors import UsageError
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.replay.planning.toml_files import write_toml
from tests.aggregator.service.conftest import CLASSES
from tests.aggregator.service.postgres import Server


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim.Claim.take, "__defaults__", (0.0,))
    monkeypatch.setattr(claim, "EVERY", 0.0)


@pytest.fixture
def url(database_url: str, tmp_path: Path) -> str:
    return database_url or f"sqlite:///{tmp_path / 'shared.db'}"


@pytest.fixture
def make(url: str, tmp_path: Path, read_once: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Makes a service on the database in a directory of its own."""
    monkeypatch.setattr("aggregator.service.models.registry.read_bundle", read_once)
    made: list[FleetService] = []

    def make(name: str) -> FleetService:
        about = {"name": "cloud", "broker": "mqtt://127.0.0.1:1", "directory": tmp_path / name, "database": url}
        bundle = find_shipped_bundle("wrist.bundle")
        assert bundle is not None
        made.append(FleetService(FleetFile(**about, bundles=(bundle,), classes=CLASSES)))
        return made[-1]

    yield make
    for service in made:
        service.stop()


def end_sessions(database: Database) -> None:
    """What a restart of PostgreSQL does to everybody's connections."""
    with database.transaction() as t:
        words = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid()"
        t.execute(sql.text(words + " and datname = current_database()"))


def test_a_second_service_on_the_database_is_refused_and_says_where_the_first_is(
    make: Callable[[str], Any], tmp_path: Path
) -> None:
    first = make("one")
    with pytest.raises(UsageError, match=r"another service works with it, .*one.*two a database of its own"):
        make("two")
    first.stop()
    make("one")


def test_a_database_is_that_of_its_directory(make: Callable[[str], Any], tmp_path: Path) -> None:
    """In another one the service had new keys, which nodes refuse, and all runs were without a round."""
    make("one").stop()
    with pytest.raises(UsageError, match=r"two'.*belongs to another directory, .*one: name that one"):
        make("two")
    (tmp_path / "one").rename(tmp_path / "moved")
    make("moved").stop()
    with pytest.raises(UsageError, match="moved"):
        make("one")


def test_a_directory_that_has_lost_its_mark_is_refused_and_told_how_to_be_known_again(
    make: Callable[[str], Any], tmp_path: Path
) -> None:
    """An older copy of a directory has none; a folder whose disk is not mounted has none, either: a person can tell."""
    make("one").stop()
    mark = (tmp_path / "one" / FILE).read_text()
    (tmp_path / "one" / FILE).unlink()
    with pytest.raises(UsageError, match=f"{FILE} with the text {mark.strip()} if it is the same directory"):
        make("one")
    (tmp_path / "one" / FILE).write_text(mark)
    make("one").stop()


@pytest.mark.parametrize("form, said", [("1", "the next start brings it from form 1"), ("99", "is of form 99")])
def test_the_doctor_changes_no_database(make: Callable[[str], Any], form: str, said: str) -> None:
    """An upgrade has it look before the new version starts, beside the old one."""
    service = make("one")
    with service.database.transaction() as t:
        t.execute(about.update().where(about.c.key == "schema").values(value=form))
    found = check_database(service.file)
    assert said in found.detail and found.good is (form == "1")
    assert [r["value"] for r in service.database.read(sql.select(about).where(about.c.key == "schema"))] == [form]


class TestOnPostgres:
    """What happens to the right when the database is restarted."""

    @pytest.fixture
    def database_url(self, server: Server) -> str:
        return server.make_database()

    def test_it_is_taken_anew_when_the_database_is_back(self, make: Callable[[str], Any]) -> None:
        first = make("one")
        end_sessions(first.database)
        first.supervisor.look()
        with pytest.raises(UsageError, match="another service works with it"):
            make("two")

    def test_the_doctor_says_who_works_with_it(self, make: Callable[[str], Any], tmp_path: Path) -> None:
        first = make("one")
        assert check_database(first.file).good is True
        found = check_database(replace(first.file, directory=tmp_path / "two"))
        assert found.good is False and f"another service works with it, {socket.gethostname()}:" in found.detail

    def test_whose_place_another_took_meanwhile_does_nothing_any_more(
        self, make: Callable[[str], Any], tmp_path: Path
    ) -> None:
        first = make("one")
        end_sessions(first.database)
        (tmp_path / "two").mkdir(mode=0o700)
        shutil.copy(tmp_path / "one" / home.FILE, tmp_path / "two")  # a copy of the machine
        make("two")
        with pytest.raises(ClaimedError, match="two"):
            first.supervisor.look()
        first.supervisor.start()
        first.supervisor.thread.join(20)
        assert not first.supervisor.thread.is_alive() and "another service" in first.supervisor.displaced

    def test_a_session_of_its_own_that_it_lost_is_ended(self, make: Callable[[str], Any]) -> None:
        """A network that was cut: the server has not heard yet that the other end is no more."""
        first = make("one")
        lost, first.database.claim.connection = first.database.claim.connection, None
        first.supervisor.look()
        assert first.database.claim.connection is not None
        with pytest.raises(sql.exc.DBAPIError):
            lost.exec_driver_sql("SELECT 1")
        lost.close()


def test_a_database_that_does_not_answer_is_no_mistake_in_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 keeps systemd from starting it again: after a power cut the service would have stayed down."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    table = {"name": "cloud", "broker": "mqtt://127.0.0.1:1", "directory": "state", "classes": list(CLASSES)}
    table |= {"bundles": [str(find_shipped_bundle("wrist.bundle"))], "listen": "127.0.0.1:0"}
    path = write_toml(tmp_path / "fleet.toml", table | {"database": "postgresql+psycopg://a@127.0.0.1:1/x"})
    assert auscult(["serve", str(path)]) == 1
    assert "Connection refused" in capsys.readouterr().err
    with pytest.raises(DatabaseAwayError):
        main(["serve", str(path)])


def test_a_report_that_could_not_be_saved_is_saved_later(
    service: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes and the report that they are counted up to are saved together, or they are counted twice after a kill."""
    monitor = service.monitor
    monitor.seen["north"] = to_hospital("north", 5.0, {"devices": 2, "children": [], "counts": {}, "run": "r"} | EMPTY)
    monitor.unsaved.add("north")
    monitor.hops.counts["r", "north", "up"] += 7
    with monkeypatch.context() as m:
        m.setattr(service.database, "transaction", refuse)
        m.setattr(monitor.waiter, "wait", lambda *_: None)
        m.setattr(monitor.stopping, "wait", lambda _: monitor.stopping.set())
        m.setattr(monitor, "save", lambda save=monitor.save: (save(), None) if not monitor.stopping.is_set() else None)
        with caplog.at_level(logging.ERROR):
            monitor.work()
    assert "does not answer: it is away" in caplog.text and "Traceback" not in caplog.text
    monitor.save()
    assert [row["name"] for row in service.database.read(sql.select(hospitals))] == ["north"]
    assert [row["up"] for row in service.database.read(sql.select(hops))] == [7]


EMPTY = {"refusal": "", "waiting": ""}


def refuse() -> None:
    raise sql.exc.OperationalError("", None, Exception("x")) from Exception("it is away")
