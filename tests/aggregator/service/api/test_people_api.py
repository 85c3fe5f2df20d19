"""People, tokens and the audit log over the API and from the console: who may, and what it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aggregator.service.administration.accounts import TOKEN
from tests.aggregator.service.conftest import PASSWORD, secret_in

API = "/api/v1"


@pytest.fixture
def database_url() -> str:
    return ""


def bearer(service: Any, role: str, *scopes: str) -> dict[str, str]:
    return {"authorization": f"Bearer {service.people.make_key(TOKEN, 'robot', role, 60.0, 'test', scopes)}"}


def test_a_leaked_token_is_revoked_over_the_api(browse: Any, service: Any) -> None:
    leaked, admin, browser = bearer(service, "operator", "runs"), bearer(service, "admin"), browse()
    assert browser.get(f"{API}/runs", headers=leaked).status_code == 200
    tokens = browser.get(f"{API}/tokens", headers=admin).json()["tokens"]
    [row] = [token for token in tokens if token["scopes"] == ["runs"]]
    assert leaked["authorization"].split()[1] not in str(tokens)
    assert browser.post(f"{API}/tokens/{row['id']}/revoke", json={}, headers=admin).json() == {"revoked": row["id"]}
    assert browser.get(f"{API}/runs", headers=leaked).status_code == 401
    assert browser.post(f"{API}/tokens/{row['id']}/revoke", json={}, headers=admin).status_code == 404
    [entry] = browser.get(f"{API}/audit?q=token.revoke", headers=admin).json()["entries"]
    assert (entry["who"], entry["subject"], entry["detail"]) == ("robot", "robot", {"id": row["id"]})


def test_a_leaked_token_is_revoked_in_the_console(browse: Any, service: Any) -> None:
    leaked, browser = bearer(service, "viewer"), browse("admin")
    page = browser.get("/settings").text
    [id] = [row["id"] for row in service.people.list_tokens()]
    assert f'action="/tokens/{id}/revoke"' in page
    assert browser.post(f"/tokens/{id}/revoke", data={}).status_code == 403
    assert browser.post(f"/tokens/{id}/revoke", data={"csrf": secret_in(page)}).status_code == 303
    assert browser.get(f"{API}/runs", headers=leaked).status_code == 401


def test_who_is_removed_is_signed_out_and_the_last_admin_stays(browse: Any, service: Any) -> None:
    eve, browser = browse("operator"), browse("admin")
    csrf = {"csrf": secret_in(browser.get("/settings").text)}
    assert eve.get("/runs").status_code == 200
    assert browser.post("/people/operator/remove", data=csrf).status_code == 303
    assert eve.get("/runs").status_code == 303
    answer = browser.post("/people/admin/remove", data=csrf)
    assert answer.status_code == 409 and "the last admin" in answer.text
    service.people.add("other", "admin", PASSWORD, "test")
    assert browser.post("/people/admin/remove", data=csrf).status_code == 303
    assert browser.get("/runs").status_code == 303


@pytest.mark.parametrize("path", ["people", "tokens", "people/operator/remove", "tokens/0/revoke"])
@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_people_and_tokens_are_for_admins(browse: Any, service: Any, path: str, role: str) -> None:
    method = "POST" if path.count("/") else "GET"
    assert browse().request(method, f"{API}/{path}", headers=bearer(service, role)).status_code == 403
    assert browse().request(method, f"{API}/{path}").status_code == 401


def test_the_audit_log_is_read_in_pages_and_from_where_somebody_stopped(browse: Any, service: Any) -> None:
    for i in range(6):
        service.people.make_key(TOKEN, f"robot-{i}", "viewer", 60.0, "test")
    heads, browser = bearer(service, "viewer", "audit"), browse()

    def read(query: str) -> dict[str, Any]:
        found: dict[str, Any] = browser.get(f"{API}/audit{query}", headers=heads).json()
        return found

    whole = read("")
    numbers = [entry["seq"] for entry in whole["entries"]]
    assert numbers == [*range(8, 0, -1)] and whole["total"] == 8 and whole["broken"] is None
    assert [e["seq"] for e in read("?limit=2&offset=3")["entries"]] == [5, 4]
    onward = read("?after=5&limit=2")
    assert [e["seq"] for e in onward["entries"]] == [6, 7] and onward["total"] == 3
    assert read("?after=8")["entries"] == []
    assert [e["subject"] for e in read("?q=robot-3")["entries"]] == ["robot-3"]
    assert browser.get(f"{API}/audit?limit=x", headers=heads).status_code == 422
    assert browser.get(f"{API}/runs", headers=heads).status_code == 403
    assert browser.get(f"{API}/audit").status_code == 401


def test_the_chain_is_checked_beside_other_requests(browse: Any, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log grows for years, and nobody else was answered while all of it was read."""
    beside = []

    def find_break(database: Any) -> tuple[int | None, int, str]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        beside.append(database)
        return None, 0, ""

    monkeypatch.setattr("aggregator.service.database.audit.find_break", find_break)
    browser = browse("viewer")
    for path in ("/audit", f"{API}/audit", f"{API}/status"):
        assert browser.get(path).status_code == 200
    assert len(beside) == 3
