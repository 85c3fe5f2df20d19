"""The API's document: every route is in it, and real answers are as it says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aggregator.service.api import ROUTES
from aggregator.service.declared import DECLARED
from aggregator.service.guard import ROLE
from aggregator.service.openapi import list_routes
from tests.aggregator.service.schema_check import find_faults
from tests.aggregator.service.test_pages import fill


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
    assert said == {(f"/api/v1{r.path}", m.lower()) for r in routes for m in r.methods - {"HEAD"}}
    for route in routes:
        assert getattr(route.endpoint, ROLE), f"{route.path} is open to everybody"
    for route in ROUTES:
        assert hasattr(route.endpoint, DECLARED), f"{route.path} does not declare what it answers"
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert {p["name"] for p in operation["parameters"] if p["in"] == "path"} == set(
                re.findall(r"{(\w+)}", path)
            )
            assert operation["summary"] and "401" in operation["responses"]


def test_real_answers_are_as_the_document_says(robot: Any, service: Any) -> None:
    id = fill(service)
    document = robot.get("/api/openapi.json").json()
    sha256 = service.registry.list_all()[0]["sha256"]
    asked: list[tuple[str, str, str, Any, int]] = [
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
        ("post", "/models/{sha256}/promote", f"/models/{sha256}/promote", {}, 422),
        ("post", "/schedules", "/schedules", {"name": "n", "begin": "22:00", "end": "06:00", "days": ["mon"]}, 201),
        ("post", "/schedules", "/schedules", {"name": "n", "begin": "now", "end": "06:00"}, 422),
        ("get", "/schedules", "/schedules", None, 200),
        ("post", "/schedules/{name}/remove", "/schedules/n/remove", {}, 200),
    ]
    faults = {}
    for method, path, url, body, code in asked:
        answer = robot.request(method, f"/api/v1{url}", json=body)
        assert answer.status_code == code, (url, answer.text)
        faults[f"{method} {url} {code}"] = find_faults(answer.json(), schema_of(document, method, path, code))
    assert {key: found for key, found in faults.items() if found} == {}


def test_faults_are_found() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for wrong in ([], {}, {"a": "x"}, {"a": True}, {"a": 1, "b": 2}):
        assert find_faults(wrong, schema)
    assert not find_faults({"a": 1}, schema)
