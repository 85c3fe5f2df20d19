"""What people can do with a run, from each place where it may stand; what is refused before it is queued."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.service.application.forms import from_table, list_methods, read_form, to_fields
from aggregator.service.database.database import runs as table
from aggregator.service.runs import runs
from aggregator.service.runs.runs import Wanted, add_run, change_run, find_run, list_actions, list_queue
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES

POSSIBLE = {
    runs.PROPOSED: {"approve", "stop"},
    runs.QUEUED: {"pause", "stop", "first"},
    runs.RUNNING: {"pause", "stop"},
    runs.PAUSED: {"resume", "stop"},
    runs.STOPPED: {"resume"},
    runs.FAILED: {"resume"},
    runs.FINISHED: set(),
}


def put(service: Any, id: str, **values: Any) -> None:
    with service.database.transaction() as t:
        t.execute(table.update().where(table.c.id == id).values(**values))


@pytest.mark.parametrize("state", sorted(POSSIBLE))
def test_what_is_possible_depends_on_where_a_run_stands(service: Any, state: str) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    put(service, id, state=state)
    assert set(list_actions(find_run(service.database, id))) == POSSIBLE[state]
    for action in runs.DONE:
        put(service, id, state=state, wish="")
        if action in POSSIBLE[state]:
            change_run(service.database, id, action, "another")
        else:
            with pytest.raises(runs.NotPossibleError, match=f"is {state}: it cannot be"):
                change_run(service.database, id, action, "test")


def test_a_wish_can_be_taken_back(service: Any) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    put(service, id, state=runs.RUNNING)
    change_run(service.database, id, "pause", "test")
    assert find_run(service.database, id)["wish"] == "pause"
    change_run(service.database, id, "resume", "test")
    assert find_run(service.database, id)["wish"] == ""


def test_the_queue_is_in_order_and_one_can_be_put_first(service: Any) -> None:
    ids = [add_run(service.database, Wanted(), CLASSES, "test") for _ in range(3)]
    assert ids == ["fedslr-1", "fedslr-2", "fedslr-3"]
    change_run(service.database, "fedslr-3", "first", "test")
    assert [run["id"] for run in list_queue(service.database)] == ["fedslr-3", "fedslr-1", "fedslr-2"]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"method": "nothing"}, "method = 'nothing'; there are:"),
        ({"method": "hsgd"}, "needs public inputs, split models"),
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 10**7}, "at most 1000000"),
        ({"settings": {"nope": 1}}, "nope is no setting"),
        ({"settings": {"eta_l": -1.0}}, "eta_l"),
        ({"preset": "best"}, "preset = 'best'"),
        ({"settle": {"nope": 1}}, "nope is no setting"),
        ({"augment": {"rotation": "much"}}, "rotation"),
    ],
)
def test_what_no_run_can_be_made_of_is_refused_before_it_is_queued(
    service: Any, table: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        add_run(service.database, from_table(table), CLASSES, "test")
    assert not list_queue(service.database)


def test_a_form_and_its_fields_say_the_same() -> None:
    wanted = Wanted(method="ditto", rounds=7, settings={"eta_l": 0.05}, settle={"steps": [0, 25]}, hospitals=("north",))
    fields = to_fields(vars(wanted))
    assert read_form(fields, list(fields["hospitals"])) == wanted


@pytest.mark.parametrize(
    "form", [{"rounds": "ten"}, {"settings.eta_l": "much"}, {"settings.batch": "1.5"}, {"settle.steps": "[" * 5000}]
)
def test_a_form_that_cannot_be_read_is_refused(form: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_form({"method": "fedavg", **form}, [])


def test_each_method_of_the_form_has_a_line_about_it() -> None:
    assert all(line for _, line in list_methods())
