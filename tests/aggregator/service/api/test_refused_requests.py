"""Requests that the API's document does not allow: each is refused as the document says, and nothing is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.service.application.forms import LEVELS
from aggregator.service.runs.runs import Wanted, add_run, list_runs
from tests.aggregator.service.conftest import CLASSES
from tests.aggregator.service.runs.test_two_people import add_model

API = "/api/v1"


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.fixture
def robot(browse: Any, service: Any) -> Any:
    client = browse()
    client.headers["authorization"] = f"Bearer {service.people.make_key('token', 'robot', 'admin', 60.0, 'test')}"
    return client


def nest(levels: int) -> str:
    return "[" * levels + "]" * levels


DEEP, LIMIT, LARGE = nest(900), nest(LEVELS), "1" + "0" * 400
ODD = (
    f'{{"settings": {{"a": {DEEP}}}}}',
    f'{{"id": {DEEP}, "name": {DEEP}, "hospital": {DEEP}}}',
    f'{{"run": {{"settings": {{"a": {DEEP}}}}}, "to": {DEEP}}}',
    f'{{"settings": {{"a": {LIMIT}}}, "to": {LIMIT}, "begin": 1}}',
    f'{{"to": {LARGE}, "hours": {LARGE}, "rounds": {LARGE}}}',
)
WRITES = ("runs", "runs/mine/clone", "models/HASH/rollout", "models/HASH/evaluate", "schedules", "enrolment/tokens")


def test_what_is_too_deep_or_too_large_is_refused(robot: Any, service: Any) -> None:
    """Tables within tables ended in a traceback, and so did a whole number that no float can be."""
    add_run(service.database, Wanted(), CLASSES, "test", "mine")
    for path in WRITES:
        for body in ODD:
            answer = robot.post(f"{API}/{path.replace('HASH', service.registry.first)}", content=body)
            assert answer.status_code == 422 and answer.json()["error"], (path, body[:40])
    assert [row["id"] for row in list_runs(service.database)] == ["mine"]


def test_an_id_is_a_text(robot: Any, service: Any) -> None:
    """`null` made a run of the name "None"."""
    add_run(service.database, Wanted(), CLASSES, "test", "mine")
    for path in WRITES[:4]:
        for value in (None, 5, True, ["a"], {}):
            answer = robot.post(f"{API}/{path.replace('HASH', service.registry.first)}", json={"id": value})
            assert answer.status_code == 422 and "id = " in answer.json()["error"]
    assert [row["id"] for row in list_runs(service.database)] == ["mine"]


def test_a_token_is_for_what_was_said_and_nothing_near_it(robot: Any) -> None:
    yes: tuple[tuple[str, Any], ...] = (("approved", "yes"), ("approved", {}), ("hospital", 5), ("name", []))
    for key, value in (*yes, ("hours", True), ("hours", "2"), ("hours", 0)):
        answer = robot.post(f"{API}/enrolment/tokens", json={key: value})
        assert answer.status_code == 422 and key in answer.json()["error"]


def test_a_run_that_trains_is_no_rollout(robot: Any, service: Any) -> None:
    add_run(service.database, Wanted(), CLASSES, "test", "mine")
    assert robot.get(f"{API}/rollouts/mine").status_code == 404
    assert robot.get("/rollouts/mine").status_code == 404


def test_a_path_names_all_methods_that_it_takes(robot: Any) -> None:
    """Those of its first route alone were named."""
    both = "GET, HEAD, POST"
    for path, methods in (
        (f"{API}/runs", both),
        (f"{API}/models", both),
        (f"{API}/runs/a/stop", "POST"),
        (f"{API}/status", "GET, HEAD"),
        ("/runs", both),
        ("/enrolment/token", both),
        ("/sign-out", "POST"),
    ):
        for method in ("OPTIONS", "DELETE", "TRACE"):
            answer = robot.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_the_document_says_how_many_rows_there_may_be(robot: Any) -> None:
    document = robot.get("/api/openapi.json").json()
    for path, methods in document["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", ()):
            if (most := parameter["schema"].get("maximum")) is not None:
                given = f"{path}?{parameter['name']}="
                assert robot.get(f"{given}{most}").status_code == 200
                assert robot.get(f"{given}{most + 1}").status_code == 422
            else:
                assert parameter["schema"]["type"] == "string"


def test_no_path_of_this_machine_is_told(robot: Any, service: Any) -> None:
    """The file of a model that is damaged was named with where the service keeps it."""
    sha256 = add_model(service)
    answer = robot.post(f"{API}/models/{sha256}/rollout", json={})
    assert answer.status_code == 422 and str(service.file.directory) not in answer.text
