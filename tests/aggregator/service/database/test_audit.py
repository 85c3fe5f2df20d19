"""The chain of the audit log: whatever is changed in it is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sql

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
