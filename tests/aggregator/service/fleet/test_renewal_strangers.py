"""What a stranger learns who asks for the renewal of somebody else's certificate: nothing."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.fleet.enrolment import APPROVE, REMOVE, SUSPEND
from tests.aggregator.service.asking import CLAIM, ask, request_of


@pytest.fixture
def database_url() -> str:
    return ""


def test_a_stranger_does_not_learn_who_is_enrolled(browse: Any, service: Any, tmp_path: Path) -> None:
    """Names of devices may be names of patients, and anybody was told which there are and how it stands with them."""
    for name in ("member", "waits", "away", "gone"):
        token = service.desk.make_token("test", "north", approved=name != "waits")
        ask(service, tmp_path, name, token)
        service.desk.fetch({"name": name, "claim": CLAIM})
    service.desk.decide("away", SUSPEND, "test")
    service.desk.decide("gone", REMOVE, "test")
    folder, said = tmp_path / "stranger", set()
    folder.mkdir()
    for name in ("member", "waits", "away", "gone", "nobody"):
        table = {"name": name, "request": request_of(folder, name)}
        for signature in (base64.b64encode(b"x" * 70).decode(), "no base64", "\u00e9"):
            answer = browse().post("/enrol/v1/renew", json={**table, "signature": signature})
            said.add((answer.status_code, answer.text))
        for wrong in ({"name": name}, {"name": name, "request": "none"}, {**table, "signature": ""}):
            assert browse().post("/enrol/v1/renew", json=wrong).status_code == 422
    assert len(said) == 1 and "not signed with the key" in said.pop()[1]
    service.desk.decide("away", APPROVE, "test")
