"""Two people: what one asks for begins when another one has approved it, and there is no way around that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from aggregator.service import runs
from aggregator.service.rollouts import add_rollout
from aggregator.service.runs import Wanted, find_run, list_queue
from aggregator.service.schedules import DailyWindow, add_schedule, look_at_schedules, remove_schedule
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES, secret_in


@pytest.fixture
def service(make_service: Callable[..., Any]) -> Any:
    return make_service(two_people=True)


def ask(client: Any, id: str = "mine") -> None:
    form = {"csrf": secret_in(client.get("/runs/new").text), "method": "fedavg", "rounds": "3", "id": id}
    assert client.post("/runs", data=form | {"preset": "recommended"}).status_code == 303


def act(client: Any, action: str, id: str = "mine") -> int:
    return int(client.post(f"/runs/{id}/{action}", data={"csrf": secret_in(client.get("/").text)}).status_code)


def test_a_run_begins_when_another_person_has_approved_it(browse: Any, service: Any) -> None:
    operator, approver, admin = browse("operator"), browse("approver"), browse("admin")
    ask(operator)
    assert find_run(service.database, "mine")["state"] == runs.PROPOSED and not list_queue(service.database)
    assert "Run mine awaits approval" in approver.get("/").text
    assert "Approve" not in operator.get("/runs/mine").text and "Approve" in approver.get("/runs/mine").text
    assert act(operator, "approve") == 403
    service.supervisor.look()
    assert not service.supervisor.processes.running
    assert act(approver, "approve") == 303
    assert find_run(service.database, "mine")["state"] == runs.QUEUED
    ask(admin, "own")
    assert act(admin, "approve", "own") == 409  # not what they have asked for themselves, whoever they are


def test_there_is_no_way_around_the_second_person(browse: Any, service: Any) -> None:
    operator = browse("operator")
    ask(operator)
    for actions in (["stop", "resume"], ["stop", "resume", "first"], ["pause"], ["first"]):
        for action in actions:
            act(operator, action)
        assert find_run(service.database, "mine")["state"] == runs.PROPOSED, actions
    token = service.people.make_key("token", "robot", "operator", 60.0, "test")
    heads = {"authorization": f"Bearer {token}"}
    clone = operator.post("/api/v1/runs/mine/clone", json={}, headers=heads).json()
    assert clone["state"] == runs.PROPOSED
    for name, more in (("own", {"awaits": 0}), ("own", {"state": "queued"})):
        assert operator.post("/api/v1/runs", json={"id": name, **more}, headers=heads).status_code == 422
    assert not list_queue(service.database)


def test_a_rollout_needs_another_person_too(browse: Any, service: Any) -> None:
    id = add_rollout(service.database, service.registry, service.registry.find()["sha256"], {}, "operator", awaits=1)
    assert find_run(service.database, id)["state"] == runs.PROPOSED
    assert act(browse("approver"), "approve", id) == 303


def test_a_token_is_for_the_parts_of_the_api_that_it_names(browse: Any, service: Any) -> None:
    key = service.people.make_key("token", "robot", "admin", 60.0, "test", ["fleet", "status"])
    client = browse()
    client.headers["authorization"] = f"Bearer {key}"
    allowed = {path: client.get(path).status_code for path in ("/api/v1/fleet", "/api/v1/status")}
    refused = ("/api/v1/runs", "/api/v1/fleetx", "/api/v1//fleet", "/api/openapi.json", "/", "/audit", "/events")
    assert set(allowed.values()) == {200}
    assert {client.get(path).status_code for path in refused} <= {403, 404}
    assert client.post("/api/v1/runs", json={}).status_code == 403
    for scopes, days in ((["nothing"], 1.0), ([], 0.0), ([], -1.0), ([], 1e6)):
        with pytest.raises(UsageError):
            service.people.make_key("token", "robot", "viewer", days * 86400, "test", scopes)


def test_nobody_approves_a_run_of_their_own_schedule(browse: Any, service: Any) -> None:
    """Neither while it is there nor after they have removed it."""
    admin = browse("admin")
    for name in ("eve", "admin"):
        add_schedule(service.database, f"of-{name}", Wanted(), DailyWindow("00:00", "23:59"), CLASSES, name)
    look_at_schedules(service.database, time.mktime(time.strptime("2026-11-22 12:00", "%Y-%m-%d %H:%M")), 1)
    for action in (lambda: None, lambda: remove_schedule(service.database, "of-admin", "admin")):
        action()
        assert act(admin, "approve", "of-admin-2026-11-22") == 409
    assert act(admin, "approve", "of-eve-2026-11-22") == 303
