"""The console under attack, beside what test_door.py has: every route with odd inputs, sessions, secrets in logs."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.routing import Mount, Route

from aggregator.service.application.guard import COOKIE
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.conftest import CLASSES, PASSWORD, secret_in
from tests.aggregator.service.console.test_pages import fill

ODD = [
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "%3Cscript%3E",
    "x" * 3000,
    "a%0d%0aset-cookie:%20a=b",
    "%27%20or%201=1--",
    "%ff",
]
QUERIES = ["?page=%00", "?q=%00%ff", "?sort=__class__", "?state=%27", "?run=%00&run=..", "?before=-1", "?before=1e9"]
KINDS = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
WRITES = ["/runs", "/runs/mine/first", "/schedules/x/remove", "/models/x/promote", "/api/v1/runs", "/api/v1/schedules"]
BODIES = [
    b"",
    b"null",
    b"[" * 100_000,
    b'{"id": {"a": 1}, "settings": "x", "rounds": "9"}',
    b'{"rounds": 1e400, "seed": 123456789012345678901234567890}',
    b'{"settings": {"eta_l": NaN}, "hospitals": "north"}',
    b'{"name": [1], "begin": 7, "days": 3, "run": {"method": {}}}',
    b'{"id": "../../x", "method": "fedavg", "bundle": "../../etc/passwd"}',
    b"\xff\xfe",
]


def list_routes(routes: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from list_routes(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            yield from ((prefix + route.path, method) for method in (route.methods or set()) - {"HEAD"})


@pytest.fixture
def robot(browse: Any, service: Any) -> Any:
    client = browse()
    client.headers["authorization"] = f"Bearer {service.people.make_key('token', 'robot', 'admin', 60.0, 'test')}"
    return client


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 4])
def test_no_input_makes_any_route_fail(robot: Any, service: Any, step: int) -> None:
    """A client of tests raises what an endpoint raises, so a fault of ours is not taken for a refusal."""
    id, kinds = fill(service), itertools.cycle(KINDS)
    for path, method in list_routes(robot.app.routes):
        if path in ("/events", "/sign-out"):
            continue
        for odd in [*ODD[::step], id] if "{" in path else [""]:
            parts = [odd if "{" in part else part for part in path.split("/")]
            for body in BODIES[::step] if method == "POST" else [b""]:
                heads = {"content-type": next(kinds)}
                answer = robot.request(method, "/".join(parts), content=body, headers=heads)
                assert answer.status_code < 500, (method, path, odd, body, answer.text)
                assert "set-cookie" not in answer.headers and "Traceback" not in answer.text
    for query in QUERIES:
        for page in ("/fleet", "/audit", "/compare", "/runs", "/runs/new"):
            assert robot.get(page + query).status_code < 500


def test_a_session_that_somebody_has_laid_there_before_is_worth_nothing(browse: Any, service: Any) -> None:
    service.people.add("ada", "viewer", PASSWORD, "test")
    client = browse()
    client.cookies.set(COOKIE, "laid-by-an-attacker")
    answer = client.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    assert answer.status_code == 303 and "laid-by-an-attacker" not in answer.headers["set-cookie"]
    fresh = browse()
    fresh.cookies.set(COOKIE, "laid-by-an-attacker")
    assert fresh.get("/").status_code == 303


def test_a_role_that_was_taken_away_is_gone_at_once(browse: Any, service: Any) -> None:
    client = browse("admin")
    assert client.get("/runs/new").status_code == 200
    service.people.add("admin", "viewer", PASSWORD, "test")
    assert client.get("/runs/new").status_code == 303
    client.post("/sign-in", data={"name": "admin", "password": PASSWORD})
    assert client.get("/runs/new").status_code == 403
    service.people.remove("admin", "test")
    assert client.get("/").status_code == 303


@pytest.mark.parametrize("role", ["", "viewer", "operator", "approver", "admin"])
def test_each_route_is_for_its_role_and_those_above(browse: Any, service: Any, role: str) -> None:
    """What is named by an id or a hash is for the same roles whoever it belongs to."""
    add_run(service.database, Wanted(), CLASSES, "test", "mine")
    client = browse(role)
    secret = {"csrf": secret_in(client.get("/").text)} if role else {}
    for path in WRITES:
        answer = client.post(path, data=secret, headers={"x-csrf": secret.get("csrf", "")})
        allowed = answer.status_code not in (401, 403)
        assert allowed == (role in ("operator", "approver", "admin")), (path, role, answer.status_code)


def test_secrets_are_in_no_log(
    make_service: Callable[..., Any], browse: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service.people.add("ada", "admin", PASSWORD, "test")
    client = browse()
    client.post("/sign-in", data={"name": "ada", "password": "wrong-but-near"})
    client.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    cookie = client.cookies[COOKIE]
    secret = secret_in(client.get("/").text)
    token = service.people.make_key("token", "robot", "viewer", 60.0, "test")
    client.get("/api/v1/runs", headers={"authorization": f"Bearer {token}"})
    client.get(f"/fleet?q={token}")
    service.write_connection("http://127.0.0.1:1")
    own = json.loads((service.file.directory / "console.json").read_text())["token"]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]  # of the client
    logged = "".join(ours) + "".join(path.read_text() for path in service.file.directory.glob("logs/*"))
    audited = client.get("/audit").text
    for word in (PASSWORD, "wrong-but-near", cookie, secret, token, own):
        assert word not in logged and (word == secret or word not in audited)
    assert (service.file.directory / "console.json").stat().st_mode & 0o077 == 0
