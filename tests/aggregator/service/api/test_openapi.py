"""The API's document: every route is in it, and real answers are as it says."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.api.openapi import list_routes, plain_path
from aggregator.service.application.guard import ROLE
from aggregator.service.application.schemas import DECLARED
from aggregator.service.database.database import runs
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from tests.aggregator.service.asking import ask
from tests.aggregator.service.console.test_pages import fill
from tests.aggregator.service.runs.test_two_people import add_model
from tests.aggregator.service.schema_check import find_faults

WRIST = Path(__file__).parents[4] / "models" / "shipped" / "wrist.bundle"


@pytest.fixture
def robot(browse: Any, service: Any) -> Any:
    """A program with a token that may do everything."""
    client = browse()
    client.headers["authorization"] = f"Bearer {service.people.make_key('token', 'robot', 'admin', 60.0, 'test')}"
    return client


def schema_of(document: Any, method: str, path: str, code: int) -> Any:
    operation = document["paths"][f"/api/v1{path}"][method]
    schema = operation["responses"][str(code)]["content"]["application/json"]["schema"]
    return document["components"]["schemas"]["Problem"] if "$ref" in schema else schema


def test_the_document_has_every_route_and_what_it_needs(robot: Any) -> None:
    document = robot.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1") and document["info"]["version"]
    said = {(path, method) for path, methods in document["paths"].items() for method in methods}
    routes = list_routes(robot.app)
    assert said == {(f"/api/v1{plain_path(r)}", m.lower()) for r in routes for m in r.methods - {"HEAD"}}
    for route in routes:
        assert getattr(route.endpoint, ROLE), f"{route.path} is open to everybody"
    for route in routes:
        assert hasattr(route.endpoint, DECLARED), f"{route.path} does not declare what it answers"
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert {p["name"] for p in operation["parameters"] if p["in"] == "path"} == set(
                re.findall(r"{(\w+)}", path)
            )
            assert operation["summary"] and "401" in operation["responses"]


Asked = list[tuple[str, str, str, Any, int]]
"""Method, path as the document has it, path, body and code of the answer."""


def ask_for_all(robot: Any, asked: Asked) -> set[tuple[str, str]]:
    """Asks for all of these, and checks the answers; returns which of the document's operations were among them."""
    document, faults = robot.get("/api/openapi.json").json(), {}
    for method, path, url, body, code in asked:
        given = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = robot.request(method, f"/api/v1{url}", **given)
        assert answer.status_code == code, (url, answer.text)
        faults[f"{method} {url} {code}"] = find_faults(answer.json(), schema_of(document, method, path, code))
    assert {key: found for key, found in faults.items() if found} == {}
    return {(method, path) for method, path, *_, code in asked if code < 300}


def list_asked(service: Any, id: str, folder: Path) -> Asked:
    """Something of every operation."""
    bundle = service.registry.find()["sha256"]
    old = find_shipped_bundle("split-tabular.bundle")
    assert old is not None
    sha256 = add_model(service)
    token = service.desk.make_token("test", "north", "", 1.0, False)
    ask(service, folder, "w-1", token)
    service.desk.make_token("test", "north")
    [invitation] = [row["id"] for row in service.enrolment.list_tokens()]
    for name, role in (("ada", "admin"), ("eve", "viewer")):
        service.people.add(name, role, "correct horse battery", "test")
    service.people.make_key("token", "leaked", "viewer", 30.0, "test", ["runs"])
    [leaked] = [row["id"] for row in service.people.list_tokens() if row["name"] == "leaked"]
    return [
        ("get", "/status", "/status", None, 200),
        ("get", "/runs", "/runs", None, 200),
        ("post", "/runs", "/runs", {"method": "fedavg", "id": "mine"}, 201),
        ("post", "/runs", "/runs", {"nope": 1}, 422),
        ("get", "/runs/{id}", f"/runs/{id}", None, 200),
        ("get", "/runs/{id}", "/runs/nothing", None, 404),
        ("post", "/runs/{id}/clone", "/runs/mine/clone", {"rounds": 4}, 201),
        ("post", "/runs/{id}/{action}", "/runs/mine/pause", {}, 200),
        ("post", "/runs/{id}/{action}", "/runs/mine/pause", {}, 409),
        ("post", "/runs/{id}/{action}", "/runs/mine/nothing", {}, 404),
        ("get", "/fleet", "/fleet", None, 200),
        ("get", "/fleet", "/fleet?limit=2&offset=1&state=here&q=w-&sort=name", None, 200),
        ("get", "/fleet", "/fleet?limit=100000", None, 422),
        ("get", "/fleet/{name}", "/fleet/north", None, 200),
        ("get", "/fleet/{name}", "/fleet/w-00002", None, 200),
        ("get", "/models", "/models", None, 200),
        ("post", "/models", "/models", WRIST.read_bytes(), 201),
        ("post", "/models", "/models", b"no bundle", 422),
        ("post", "/models", "/models", old.read_bytes(), 422),
        ("post", "/models/{sha256}/promote", f"/models/{bundle}/promote", {}, 422),
        ("post", "/models/{sha256}/promote", f"/models/{sha256}/promote", {}, 200),
        ("post", "/models/{sha256}/approve", f"/models/{sha256}/approve", {}, 409),
        ("post", "/models/{sha256}/deny", f"/models/{sha256}/deny", {}, 409),
        ("post", "/models/{sha256}/rollout", f"/models/{bundle}/rollout", {"to": 0.5, "id": "half"}, 201),
        ("post", "/models/{sha256}/rollout", f"/models/{bundle}/rollout", {"to": 7}, 422),
        ("post", "/models/{sha256}/evaluate", f"/models/{bundle}/evaluate", {"devices": ["w-1"], "id": "good"}, 201),
        ("post", "/models/{sha256}/evaluate", f"/models/{bundle}/evaluate", {"margin": 0.5}, 422),
        ("get", "/rollouts", "/rollouts", None, 200),
        ("get", "/rollouts/{id}", "/rollouts/half", None, 200),
        ("get", "/rollouts/{id}", "/rollouts/nothing", None, 404),
        ("post", "/rollouts/{id}/rollback", "/rollouts/half/rollback", {}, 409),
        ("post", "/schedules", "/schedules", {"name": "n", "begin": "22:00", "end": "06:00", "days": ["mon"]}, 201),
        ("post", "/schedules", "/schedules", {"name": "n", "begin": "now", "end": "06:00"}, 422),
        ("get", "/schedules", "/schedules", None, 200),
        ("post", "/schedules/{name}/remove", "/schedules/n/remove", {}, 200),
        ("get", "/enrolment", "/enrolment", None, 200),
        ("post", "/enrolment/tokens", "/enrolment/tokens", {"hospital": "north", "hours": 1}, 201),
        ("post", "/enrolment/tokens", "/enrolment/tokens", {"hours": "never"}, 422),
        ("get", "/enrolment/tokens", "/enrolment/tokens", None, 200),
        ("post", "/enrolment/tokens/{id}/revoke", f"/enrolment/tokens/{invitation}/revoke", {}, 200),
        ("post", "/enrolment/tokens/{id}/revoke", "/enrolment/tokens/none/revoke", {}, 404),
        ("post", "/enrolment/{name}/{action}", "/enrolment/w-1/approve", {}, 200),
        ("post", "/enrolment/{name}/{action}", "/enrolment/w-1/approve", {}, 409),
        ("post", "/enrolment/{name}/{action}", "/enrolment/w-1/replace", {}, 200),
        ("get", "/enrolment", "/enrolment", None, 200),
        ("get", "/audit", "/audit?limit=20&q=token", None, 200),
        ("get", "/audit", "/audit?after=-1", None, 422),
        ("get", "/people", "/people", None, 200),
        ("post", "/people/{name}/remove", "/people/eve/remove", {}, 200),
        ("post", "/people/{name}/remove", "/people/eve/remove", {}, 404),
        ("get", "/tokens", "/tokens", None, 200),
        ("post", "/tokens/{id}/revoke", f"/tokens/{leaked}/revoke", {}, 200),
        ("post", "/tokens/{id}/revoke", f"/tokens/{leaked}/revoke", {}, 404),
    ]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_real_answers_are_as_the_document_says(robot: Any, service: Any, tmp_path: Path) -> None:
    """Of every operation there is."""
    id = fill(service)
    asked = ask_for_all(robot, list_asked(service, id, tmp_path))
    with service.database.transaction() as t:  # a rollout that has begun can be taken back
        t.execute(runs.update().where(runs.c.id == "half").values(state="running"))
    asked |= ask_for_all(
        robot,
        [
            ("post", "/rollouts/{id}/rollback", "/rollouts/half/rollback", {}, 201),
            ("get", "/rollouts", "/rollouts", None, 200),
        ],
    )
    service.file = replace(service.file, two_people=True)
    [other] = [m for m in service.registry.list_all("global") if m["promoted"]]
    asked |= ask_for_all(
        robot,
        [
            ("post", "/models/{sha256}/promote", f"/models/{other['sha256']}/promote", {}, 200),
            ("post", "/models/{sha256}/deny", f"/models/{other['sha256']}/deny", {}, 200),
            ("post", "/models/{sha256}/promote", f"/models/{other['sha256']}/promote", {}, 200),
            ("get", "/models", "/models", None, 200),
        ],
    )
    service.people.add("bob", "approver", "correct horse battery", "test")
    robot.headers["authorization"] = f"Bearer {service.people.make_key('token', 'bob', 'approver', 60.0, 'test')}"
    asked |= ask_for_all(robot, [("post", "/models/{sha256}/approve", f"/models/{other['sha256']}/approve", {}, 200)])
    every = {(m.lower(), plain_path(r)) for r in list_routes(robot.app) for m in r.methods - {"HEAD"}}
    assert every - asked == set()


def test_what_a_body_may_be_is_as_it_is_taken(robot: Any) -> None:
    """No key that the document does not name is taken, and no body where each part has a default."""
    document = robot.get("/api/openapi.json").json()
    [asked] = document["paths"]["/api/v1/runs"]["post"]["requestBody"]["content"].values()
    assert asked["schema"]["additionalProperties"] is False
    assert document["paths"]["/api/v1/runs"]["post"]["requestBody"]["required"] is False
    assert document["paths"]["/api/v1/models"]["post"]["requestBody"]["required"] is True
    assert robot.post("/api/v1/runs", json={"": 1}).status_code == 422 and robot.post("/api/v1/runs").status_code == 201
    answer = robot.request("TRACE", "/api/v1/runs/a/stop")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_faults_are_found() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for wrong in ([], {}, {"a": "x"}, {"a": True}, {"a": 1, "b": 2}):
        assert find_faults(wrong, schema)
    assert not find_faults({"a": 1}, schema)
