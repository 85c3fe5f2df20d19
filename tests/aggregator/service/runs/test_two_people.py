"""Two people: what one asks for begins when another one has approved it, and there is no way around that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from aggregator.service.administration.terminal import HEADER
from aggregator.service.application.service import read_connection
from aggregator.service.database import audit
from aggregator.service.models.rollouts import add_rollout
from aggregator.service.runs import runs
from aggregator.service.runs.runs import NotPossibleError, Wanted, change_run, find_run, list_queue
from aggregator.service.runs.schedules import DailyWindow, add_schedule, look_at_schedules, remove_schedule
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


NOON = time.mktime(time.strptime("2026-11-22 12:00", "%Y-%m-%d %H:%M"))
DAY = DailyWindow("00:00", "23:59")


def test_a_proposed_run_is_not_approved_by_way_of_its_schedule(service: Any) -> None:
    """Not by who has changed the schedule before it began, nor with the schedule of another person in its place."""
    database, id = service.database, "nightly-2026-11-22"
    for who, rounds in (("alice", 5), ("mallory", 999)):
        add_schedule(database, "nightly", Wanted(rounds=rounds), DAY, CLASSES, who)
    look_at_schedules(database, NOON, 1)
    with pytest.raises(NotPossibleError, match="asked for by mallory"):
        change_run(database, id, "approve", "mallory")
    with pytest.raises(NotPossibleError, match=f"{id} awaits approval"):
        add_schedule(database, "nightly", Wanted(rounds=7), DAY, CLASSES, "bob")
    remove_schedule(database, "nightly", "mallory")
    add_schedule(database, "nightly", Wanted(rounds=7), DAY, CLASSES, "bob")
    with pytest.raises(NotPossibleError, match="its schedule was changed"):
        change_run(database, id, "approve", "mallory")
    assert find_run(database, id)["state"] == runs.PROPOSED


def test_who_changes_a_schedule_leaves_what_was_asked_before_to_nobody(service: Any) -> None:
    """A stopped proposal is proposed again after another person has changed the schedule."""
    database, id = service.database, "nightly-2026-11-22"
    add_schedule(database, "nightly", Wanted(), DAY, CLASSES, "alice")
    look_at_schedules(database, NOON, 1)
    change_run(database, id, "stop", "alice")
    add_schedule(database, "nightly", Wanted(rounds=7), DAY, CLASSES, "bob")
    change_run(database, id, "resume", "alice")
    with pytest.raises(NotPossibleError, match="its schedule was changed"):
        change_run(database, id, "approve", "alice")


def add_model(service: Any) -> str:
    """A global model that a run has left; returns its hash."""
    bundle = service.registry.find()["sha256"]
    path = service.registry.path_of(bundle)
    facts = {"method": "fedavg", "rounds": 1, "hospitals": {"north": 2}, "accuracy": {}, "loss": 1.0}
    service.registry.add("global", "ab" * 32, "mine", path, facts, bundle=bundle, run="mine")
    return "ab" * 32


def test_a_model_is_in_use_when_another_person_has_approved_it(browse: Any, service: Any) -> None:
    operator, approver, admin = browse("operator"), browse("approver"), browse("admin")
    sha256 = add_model(service)

    def decide(client: Any, action: str) -> int:
        form = {"csrf": secret_in(client.get("/").text)}
        return int(client.post(f"/models/{sha256}/{action}", data=form).status_code)

    assert decide(approver, "approve") == 409  # nobody has asked for it
    assert decide(admin, "promote") == 303 and service.registry.promoted() is None
    assert decide(admin, "approve") == 409 and decide(operator, "approve") == 403 and decide(operator, "promote") == 409
    assert service.registry.promoted() is None
    assert (
        "Model mine awaits approval" in approver.get("/").text and "proposed by admin" in approver.get("/models").text
    )
    assert "Approve" not in admin.get("/models").text and "Approve" in approver.get("/models").text
    assert decide(operator, "deny") == 303 and decide(approver, "approve") == 409
    assert decide(operator, "promote") == 303 and decide(approver, "approve") == 303
    assert service.registry.promoted()["name"] == "mine" and decide(approver, "approve") == 409
    said = [(e["action"], e["who"]) for e in audit.list_latest(service.database, 4, "model.")]
    assert said[:4] == [("model.promote", "approver"), ("model.propose", "operator"), ("model.deny", "operator"),
                        ("model.propose", "admin")]  # fmt: skip


def test_a_rollout_cannot_be_approved_by_who_asked_for_it(browse: Any, service: Any) -> None:
    admin = browse("admin")
    sha256 = service.registry.find()["sha256"]
    form = {"csrf": secret_in(admin.get("/").text), "model": sha256, "to": "50"}
    assert admin.post("/rollouts", data=form).status_code == 303
    assert find_run(service.database, "rollout-1")["state"] == runs.PROPOSED
    assert "Approve" not in admin.get("/rollouts/rollout-1").text
    assert act(admin, "approve", "rollout-1") == 409 and act(browse("operator"), "approve", "rollout-1") == 403
    service.supervisor.look()
    assert not service.supervisor.processes.running
    approver = browse("approver")
    assert "Approve" in approver.get("/rollouts/rollout-1").text and act(approver, "approve", "rollout-1") == 303
    assert find_run(service.database, "rollout-1")["state"] == runs.QUEUED


def test_a_command_on_the_services_machine_is_somebodys_and_no_second_person(browse: Any, service: Any) -> None:
    """All such commands were "service" in the audit log, as what the service does by itself."""
    service.write_connection("http://127.0.0.1")
    token = read_connection(service.file.directory)[1]
    client = browse()
    heads = {"authorization": f"Bearer {token}"}
    asked = client.post("/api/v1/runs", json={"method": "fedavg", "id": "mine"}, headers=heads | {HEADER: "ada"})
    assert asked.json()["by"] == "ada (terminal)"
    for user in ("ada", "bob", "", "no\tname"):
        assert client.post("/api/v1/runs/mine/approve", json={}, headers=heads | {HEADER: user}).status_code == 409
    robot = service.people.make_key("token", "robot", "operator", 60.0, "test")
    other = {"authorization": f"Bearer {robot}", HEADER: "ada"}  # says something that only the service's token may
    assert client.post("/api/v1/runs/mine/stop", json={}, headers=other).status_code == 200
    told = [(entry["who"], entry["action"]) for entry in audit.list_latest(service.database, 20)]
    assert ("ada (terminal)", "run.queue") in told and ("robot", "run.stop") in told
    assert {who for who, action in told if action == "refused"} == {"ada (terminal)", "bob (terminal)", "service"}
