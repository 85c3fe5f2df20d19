"""A disk that is full, or soon will be: people are told of the disk, and not of a database or of nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.application import alerts


@pytest.fixture
def database_url() -> str:
    return ""


def test_little_room_on_the_disk_needs_a_person(browse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose disk was full said that one device was away, and nothing else."""
    viewer = browse("viewer")
    assert "disk" not in viewer.get("/").text
    monkeypatch.setattr(alerts, "LITTLE", 1e30)
    need = viewer.get("/api/v1/status").json()["needs"][0]
    assert need["what"] == "The disk is nearly full" and " are free where the service keeps everything" in need["why"]
    assert "The disk is nearly full" in viewer.get("/").text
    assert "auscult_service_needs 3" in viewer.get("/metrics").text  # the broker, the hospital and the disk


def test_a_full_disk_is_said_to_be_full(browse: Any, service: Any, tmp_path: Path) -> None:
    """It once said that the database does not answer, and to try again."""
    operator = browse("admin")
    token = service.people.make_key("token", "robot", "operator", 60.0, "test")
    service.database.engine.dispose()

    def stop_growing(connection: Any, _: Any) -> None:  # SQLite's own way to a disk without room
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sql.event.listen(service.database.engine, "connect", stop_growing)
    heads = {"authorization": f"Bearer {token}"}
    answers = [operator.post("/api/v1/runs", json={"method": "fedavg"}, headers=heads) for _ in range(60)]
    [said] = {answer.json()["error"] for answer in answers if answer.status_code == 503}
    assert said == "The disk of the database is full: nothing was changed; make room and try again."
