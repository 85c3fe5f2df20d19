"""The service on PostgreSQL: as much as `make test` has time for. The long tests do all that SQLite does here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.database import audit
from aggregator.service.fleet.monitor import to_hospital
from aggregator.service.runs.runs import Wanted, add_run, change_run, find_run
from tests.aggregator.service.conftest import CLASSES, PASSWORD
from tests.aggregator.service.console.test_pages import fill
from tests.aggregator.service.postgres import Server


@pytest.fixture
def database_url(server: Server) -> str:
    return server.make_database()


def test_the_service_keeps_everything_in_postgresql(
    make_service: Callable[..., Any], browse: Any, service: Any
) -> None:
    id = fill(service)
    client = browse("operator")
    for page in ("/", "/fleet", f"/runs/{id}", "/models", "/audit"):
        assert client.get(page).status_code == 200
    change_run(service.database, id, "pause", "operator")
    texts = dict.fromkeys(("run", "refusal", "waiting"), "\0 from outside")
    service.monitor.seen["north"] = to_hospital("north", 5.0, {"devices": 2, "children": [], "counts": {}} | texts)
    service.monitor.unsaved.add("north")
    service.monitor.save()
    assert service.people.sign_in("operator", PASSWORD)
    again = make_service()
    assert find_run(again.database, id)["state"] == "paused" and again.monitor.seen["north"].size == 2
    assert [person["name"] for person in again.people.list_all()] == ["operator"]
    assert audit.find_break(again.database)[:2] == (None, audit.list_latest(again.database, 1)[0]["seq"])
    assert not (again.file.directory / "service.db").exists()


def test_texts_that_postgresql_does_not_take_are_refused_and_nothing_breaks(service: Any, browse: Any) -> None:
    """It takes no zero bytes: whoever sends one is told so, and what a process has said is kept without them."""
    client = browse("operator")
    for path in ("/runs/a%00b", "/api/v1/runs/a%00b", "/api/v1/fleet/a%00b"):
        assert client.get(path).status_code in (404, 422)
    assert browse().post("/sign-in", data={"name": "a\0b", "password": PASSWORD}).status_code in (401, 422)
    id = add_run(service.database, Wanted(), CLASSES, "test")
    service.supervisor.set_state(find_run(service.database, id), "failed", "it said \0 and ended")
    assert find_run(service.database, id)["why"] == "it said \N{REPLACEMENT CHARACTER} and ended"


def test_a_connection_that_the_server_has_closed_is_made_anew(service: Any, server: Server) -> None:
    with service.database.engine.connect() as t:
        t.execute(sql.text("select 1"))
    with service.database.transaction() as t:
        words = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        t.execute(sql.text(words + " and datname = current_database()"))
    assert find_run(service.database, add_run(service.database, Wanted(), CLASSES, "test"))["state"] == "queued"
