"""The chain of the audit log: whatever is changed in it is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.application.view import ACTIONS
from aggregator.service.console.audit_descriptions import describe_detail
from aggregator.service.database import audit
from aggregator.service.database.database import audit as table


@pytest.fixture
def written(service: Any) -> Any:
    with service.database.transaction() as t:
        for i in range(5):
            audit.note(t, "ada", "run.queue", f"run-{i}", rounds=i)
    return service.database


def test_what_was_written_fits_together(written: Any) -> None:
    broken, count, latest = audit.find_break(written)
    assert broken is None and count >= 5 and latest == audit.list_latest(written, 1)[0]["hash"]


@pytest.mark.parametrize("field", ["who", "action", "subject", "detail", "at", "hash"])
def test_a_changed_field_is_found(written: Any, field: str) -> None:
    number = audit.list_latest(written, 3)[-1]["seq"]
    with written.transaction() as t:
        t.execute(table.update().where(table.c.seq == number).values({field: 1.5 if field == "at" else "other"}))
    assert audit.find_break(written)[0] == number


def test_a_removed_or_exchanged_entry_is_found(written: Any) -> None:
    number = audit.list_latest(written, 3)[-1]["seq"]
    with written.transaction() as t:
        t.execute(table.delete().where(table.c.seq == number))
    assert audit.find_break(written)[0] == number
    with written.transaction() as t:
        t.execute(table.update().where(table.c.seq == number + 1).values(seq=number))
    assert audit.find_break(written)[0] == number


def test_an_entry_is_written_with_its_change_or_not_at_all(written: Any) -> None:
    count = audit.find_break(written)[1]
    with pytest.raises(sql.exc.IntegrityError), written.transaction() as t:
        audit.note(t, "ada", "run.queue", "twice")
        t.execute(table.insert().values(seq=1, at=0.0, who="", action="", subject="", detail="", hash=""))
    assert audit.find_break(written) == (None, count, audit.list_latest(written, 1)[0]["hash"])


def test_details_are_told_in_words() -> None:
    told = {
        "hospitals": {"north": 3, "south": 3},
        "sha256": "ab" * 32,
        "why": "",
        "devices": ["a", "b"],
        "approved": True,
    }
    words = "approved yes, devices a and b, hospitals (north 3, south 3), sha256 abababababab"
    assert describe_detail(json.dumps(told, sort_keys=True)) == words
    assert describe_detail("{}") == "" and describe_detail("no JSON") == "no JSON" and describe_detail("3") == "3"


def told(service: Any, action: str) -> list[tuple[str, str, Any]]:
    """Who, of what and the details of all entries of one kind, the newest first."""
    found = [entry for entry in audit.list_latest(service.database, 100) if entry["action"] == action]
    return [(entry["who"], entry["subject"], json.loads(entry["detail"])) for entry in found]


def test_a_sign_in_is_noted_with_where_it_came_from(browse: Any, service: Any) -> None:
    browse("operator")
    assert told(service, "session.make") == [("operator", "operator", {"role": "operator", "address": "testclient"})]


def test_another_role_is_noted_beside_the_one_before_and_takes_tokens_that_may_more(service: Any) -> None:
    """It was noted like somebody new, and a token of the name went on with the rights of before."""
    people = service.people
    people.add("ada", "admin", "correct horse battery", "test")
    tokens = {role: people.make_key("token", "ada", role, 60.0, "test") for role in ("viewer", "admin")}
    assert people.add("ada", "viewer", "correct horse battery", "test") == "admin"
    assert told(service, "people.add") == [
        ("test", "ada", {"role": "viewer", "before": "admin"}),
        ("test", "ada", {"role": "admin"}),
    ]
    assert people.find_key(tokens["admin"], "token") is None and people.find_key(tokens["viewer"], "token")


def test_a_start_is_noted_with_what_the_settings_file_allows(make_service: Any) -> None:
    """Whoever switches the second person off in the file, and on again afterwards, leaves a trace."""
    make_service(two_people=True).note_start()
    service = make_service()
    service.note_start()
    (_, _, now), (who, name, before) = told(service, "service.start")
    assert (who, name, before["two_people"], now["two_people"]) == ("service", "cloud", True, False)
    assert before["version"] and before["listen"] and "sign_on" not in before


def test_every_action_has_words_for_people() -> None:
    """The overview showed session.end as it is in the log."""
    rooms = Path(audit.__file__).parents[1]
    found = {
        name
        for path in rooms.rglob("*.py")
        for name in re.findall(r'note\(\w+, [^"()]+, "([a-z.]+)"', path.read_text())
    }
    assert len(found) > 12 and found - {*ACTIONS} == set()
