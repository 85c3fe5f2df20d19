"""A service whose parts are there and whose threads are not started, and clients of its web application."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("starlette", "sqlalchemy", "jinja2", "argon2", "httpx2")):
    collect_ignore_glob = ["test_*.py"]  # the extra `service` is not installed

from edge_sdk.replay.planning.bundles import find_shipped_bundle
from tests.aggregator.service import postgres

CLASSES = tuple(f"c{i}" for i in range(11))
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of tests are worth little, and their hashes cost as much."""
    from argon2 import PasswordHasher

    monkeypatch.setattr("aggregator.service.administration.accounts.PasswordHasher", partial(PasswordHasher, 1, 8, 1))


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A PostgreSQL server, started when the first test wants it."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    if not postgres.is_installed():
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    with postgres.running() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of the database of a service: the default one, and in the long tests also an empty one on PostgreSQL."""
    if request.param == "sqlite":
        return ""
    server: postgres.Server = request.getfixturevalue("server")
    return server.make_database()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with the tables of a service and nothing in them."""
    from aggregator.service.database.database import database_in

    folder = tmp_path_factory.mktemp("empty")
    database_in(folder).close()
    (file,) = folder.iterdir()  # nothing is left in a log beside it
    return file


@pytest.fixture(scope="session")
def read_once() -> Callable[[Path], Any]:
    """Bundles that come with the package, read and checked once."""
    from edge_sdk.model.bundle import read_bundle

    known: dict[Path, Any] = {}

    def read(path: Path) -> Any:
        if path != find_shipped_bundle(path.name):
            return read_bundle(path)
        if path not in known:
            known[path] = read_bundle(path)
        return known[path]

    return read


@pytest.fixture
def make_service(
    tmp_path: Path,
    database_url: str,
    empty_database: Path,
    read_once: Callable[[Path], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Any]]:
    """Makes a service in one directory; each one before is closed as a kill would leave it."""
    from aggregator.service.administration.settings_file import FleetFile
    from aggregator.service.application.service import FleetService

    monkeypatch.setattr("aggregator.service.models.registry.read_bundle", read_once)
    made: list[Any] = []

    def end() -> None:
        for service in made:
            service.supervisor.processes.stop()
            service.database.close()
            service.lock.close()
        made.clear()

    def make(is_open: bool = False, **settings: Any) -> Any:
        end()
        bundle = find_shipped_bundle("wrist.bundle")
        assert bundle is not None
        if not database_url and not (tmp_path / "service").exists():
            (tmp_path / "service").mkdir(mode=0o700)
            shutil.copyfile(empty_database, tmp_path / "service" / "service.db")
        about = {
            "name": "cloud",
            "broker": "mqtt://127.0.0.1:1",
            "directory": tmp_path / "service",
            "database": database_url,
        }
        file = FleetFile(**{**about, "bundles": (bundle,), "classes": CLASSES, "hospitals": {"north": 2}, **settings})
        made.append(FleetService(file, is_open=is_open))
        return made[-1]

    yield make
    end()


@pytest.fixture
def service(make_service: Callable[..., Any]) -> Any:
    return make_service()


@pytest.fixture
def browse(service: Any) -> Iterator[Callable[..., Any]]:
    """A browser of the service's console: `browse()` is nobody, `browse("viewer")` somebody of that role."""
    from starlette.testclient import TestClient

    from aggregator.service.server.app import make_app

    clients = []

    def make(role: str = "") -> Any:
        client = TestClient(make_app(service), base_url="http://127.0.0.1", follow_redirects=False)
        clients.append(client)
        if role:
            service.people.add(role, role, PASSWORD, "test")
            assert client.post("/sign-in", data={"name": role, "password": PASSWORD}).status_code == 303
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def served(make_service: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
    """A service whose console is served for real, and where nodes enrol at it."""
    from aggregator.service.application.live_updates import ConsoleServer
    from aggregator.service.server.app import make_app
    from aggregator.service.server.command import listen
    from edge_sdk.tools.credentials.enrol import Desk

    service = make_service(listen="127.0.0.1:0")
    line = listen(service.file)
    server = ConsoleServer(make_app(service))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[line])), daemon=True)
    thread.start()
    yield service, Desk(f"http://127.0.0.1:{line.getsockname()[1]}")
    server.should_exit = True
    thread.join(20)
    line.close()


WITH_ID = {"/runs/{id}": "/runs/ditto-1", "/compare": "/compare?run=ditto-1"}
"""Route of a page that shows something of `fill` -> its address then."""
ELSEWHERE = {
    *("/sign-in", "/sign-in/provider", "/sign-in/provider/back"),  # for nobody yet: test_door.py
    *("/events", "/metrics", "/api/openapi.json"),  # no pages
    *("/enrolment/token", "/enrolment/{name}/{action}"),  # they show /enrolment
    "/rollouts/{id}",  # needs a model that was trained: models/test_rollouts.py
}
"""Routes that `list_pages` leaves out."""


def list_readable() -> list[str]:
    """The path of each route that can be read, of pages, files and the API, as the application has it."""
    from starlette.routing import Mount, Route

    from aggregator.service.server.app import ROUTES

    mounted = [(m.path, m.routes) for m in ROUTES if isinstance(m, Mount)]
    routes = [(prefix, r) for prefix, rs in [("", ROUTES), *mounted] for r in rs or () if isinstance(r, Route)]
    return [prefix + r.path for prefix, r in routes if "GET" in (r.methods or ())]


def list_pages(filled: bool = True) -> list[str]:
    """Every page of the console that somebody can look at, from the routes of the application.

    Args:
        filled: with what `fill` makes, which pages with an id need; such a page has its address in WITH_ID.
    """
    paths = [p for p in list_readable() if p not in ELSEWHERE and not p.startswith("/api/") and not p.endswith(".csv")]
    if not filled:
        return [path for path in paths if "{" not in path]
    pages = [WITH_ID.get(path, path) for path in paths]
    assert not [path for path in pages if "{" in path], "WITH_ID or ELSEWHERE has to say what becomes of a page"
    return pages


def secret_in(page: str) -> str:
    """The secret that the forms of a page bring."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]
