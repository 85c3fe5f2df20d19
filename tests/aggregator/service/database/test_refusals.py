"""Refused actions are in the audit log, and cannot fill it."""

from __future__ import annotations

from typing import Any

from aggregator.service.database import audit
from aggregator.service.database.refusals import ALL, EACH, RefusalLog
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.asking import CLAIM
from tests.aggregator.service.conftest import CLASSES, secret_in


def list_refused(service: Any) -> list[tuple[str, str]]:
    rows = audit.list_latest(service.database, 1000)
    return [(row["who"], row["subject"]) for row in reversed(rows) if row["action"] == "refused"]


def test_who_was_refused_what_is_in_the_audit_log(browse: Any, service: Any) -> None:
    """Refusals once left no trace."""
    id = add_run(service.database, Wanted(method="fedavg"), CLASSES, "test")
    viewer, operator = browse("viewer"), browse("operator")
    token = service.people.make_key("token", "robot", "operator", 60.0, "test", ("fleet",))
    assert viewer.post(f"/runs/{id}/stop", data={"csrf": secret_in(viewer.get("/runs").text)}).status_code == 403
    assert operator.post(f"/runs/{id}/stop", data={"csrf": "of another session"}).status_code == 403
    assert operator.post(f"/runs/{id}/resume", data={"csrf": secret_in(operator.get("/").text)}).status_code == 409
    assert browse().get("/api/v1/runs", headers={"authorization": f"Bearer {token}"}).status_code == 403
    asked = {"name": "d1", "claim": CLAIM}
    assert browse().post("/enrol/v1/state", json=asked).status_code == 403
    stop = f"POST /runs/{id}/stop"
    said = [
        ("viewer", stop),
        ("operator", stop),
        ("operator", f"POST /runs/{id}/resume"),
        ("robot", "GET /api/v1/runs"),
    ]
    assert list_refused(service) == [*said, ("nobody", "POST /enrol/v1/state")]
    assert audit.find_break(service.database)[0] is None
    assert "was refused" in operator.get("/").text


def test_who_was_not_let_in_is_in_the_audit_log(browse: Any, service: Any) -> None:
    """Guessed passwords once left no trace."""
    browser = browse("viewer")
    assert browser.post("/sign-out", data={"csrf": secret_in(browser.get("/").text)}).status_code == 303
    for name, password in (("viewer", "guessed it"), ("my password", "viewer"), ("no\0body", "guessed it")):
        assert browser.post("/sign-in", data={"name": name, "password": password}).status_code == 401
    entries = audit.list_latest(service.database, 4)
    assert (entries[3]["who"], entries[3]["action"]) == ("viewer", "session.end")
    assert list_refused(service) == [("nobody", "POST /sign-in")] * 3
    assert (
        "do not go together, viewer from testclient" in entries[2]["detail"] and '"code": 401' in entries[2]["detail"]
    )
    assert all("an unknown name" in entry["detail"] for entry in entries[:2])
    assert not any("guessed it" in entry["detail"] or "my password" in entry["detail"] for entry in entries)


def test_many_refusals_take_little_room_and_are_counted(service: Any) -> None:
    now = [0.0]
    log = RefusalLog(service.database, lambda: now[0])
    for _ in range(1000):
        log.note("mallory", "POST /runs/a\0/stop", 403, "x" * 10_000)
    assert len(list_refused(service)) == EACH and log.missed == 1000 - EACH
    log.note("ada", "POST /runs/a/stop", 409, "not now")  # who is not to blame finds room
    assert '"missed": 990' in audit.list_latest(service.database, 1)[0]["detail"]
    for number in range(1000):
        log.note(f"mallory-{number}", "POST /", 403, "")
    assert len(list_refused(service)) == ALL
    now[0] = 120.0
    log.note("mallory", "POST /", 403, "")
    assert len(list_refused(service)) == ALL + 1
