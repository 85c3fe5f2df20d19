"""A device that is enrolled between the begin of a run that keeps its devices and that run's first hello."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aggregator.service.database.database import runs as table
from aggregator.service.fleet.rosters import Rosters
from aggregator.service.runs import runs
from aggregator.service.runs.device_overlap import PresentFleet
from aggregator.service.runs.queue import line_up
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.conftest import CLASSES
from tests.aggregator.service.fleet.test_enrolment import ask

NOISE = {"clip": 1.0, "epsilon": 8.0, "cohort": 1}


def put(service: Any, state: str, id: str = "", **wanted: Any) -> str:
    """A run at north that stands so; a new one without an id."""
    id = id or add_run(service.database, Wanted(hospitals=("north",), **wanted), CLASSES, "test")
    with service.database.transaction() as t:
        t.execute(table.update().where(table.c.id == id).values(state=state, hospitals={"north": 1}))
    return id


def enrol(service: Any, base: Path, name: str) -> None:
    ask(service, base, name, service.desk.make_token("ada", "north", approved=True))


def test_who_is_enrolled_after_the_begin_of_a_run_waits_for_the_next_one(service: Any, tmp_path: Path) -> None:
    """Its hospital once counted one device more than the run, and refused it."""
    rosters = Rosters(service.database, service.enrolment)
    enrol(service, tmp_path, "watch-1")
    assert rosters.bring_up("north", 0) == (1, ["watch-1"])
    noisy = put(service, runs.RUNNING, method="fedavg", privacy=NOISE)
    enrol(service, tmp_path, "watch-2")
    assert rosters.bring_up("north", 1) == (1, ["watch-1"])
    assert not rosters.knows_others("north", 1)
    put(service, runs.FINISHED, noisy)
    put(service, runs.RUNNING, method="fedavg")  # which can do with others
    assert rosters.knows_others("north", 1)
    assert rosters.bring_up("north", 1) == (2, ["watch-1", "watch-2"])


def test_such_a_run_begins_when_its_hospitals_know_their_devices() -> None:
    news = {"north"}
    fleet = PresentFleet({"north": 2}, knows_others=lambda name: name in news)

    def begun(**wanted: Any) -> tuple[list[str], dict[str, str]]:
        row: Any = {"id": "a", "wanted": {"hospitals": ("north",), **wanted}, "hospitals": {}, "beside": 0}
        found = line_up([row], [], fleet, 4)
        return [run["id"] for run, _ in found.begin], found.waits

    noisy = {"method": "fedavg", "privacy": NOISE}
    assert begun(**noisy) == ([], {"a": "a waits until north has heard which devices belong to it"})
    assert begun(method="fedavg") == (["a"], {})
    news.clear()
    assert begun(**noisy) == (["a"], {})
