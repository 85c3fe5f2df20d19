"""Trainings side by side at one hospital, as the service plans them: for other devices, or for another bundle."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.service.fleet.reports import read_bundles
from aggregator.service.runs.device_overlap import PresentFleet
from aggregator.service.runs.queue import find_members, line_up
from aggregator.service.runs.runs import Wanted, find_run
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES, secret_in
from tests.aggregator.service.runs.test_side_by_side import rollout

WRIST, PHONE = "a" * 64, "b" * 64
NAMES = frozenset({"w1", "w2", "p1", "p2"})
FLEET = PresentFleet(
    {"north": 4, "south": 3},
    trainings={"north": 2},
    bundles={"north": {WRIST: 2, PHONE: 2}},
    devices={"north": NAMES},
    first_bundle=WRIST,
)


def row(id: str, *hospitals: str, begun: dict[str, int] | None = None, lane: int = 0, **wanted: Any) -> Any:
    table = {"method": "fedavg", "hospitals": hospitals, **wanted}
    return {"id": id, "wanted": table, "hospitals": begun or {}, "beside": lane}


def looked(queue: list[Any], *running: Any, fleet: PresentFleet = FLEET) -> tuple[dict[str, Any], dict[str, str]]:
    """Run that begins -> its lane and its hospitals; run that waits -> for what."""
    found = line_up(queue, running, fleet, 9)
    return {run["id"]: (run["beside"], sizes) for run, sizes in found.begin}, found.waits


WATCHES = row("a", "north", begun={"north": 2})


def test_trainings_with_other_bundles_go_on_at_one_hospital() -> None:
    begun, waits = looked([row("b", "north", bundle=PHONE)], WATCHES)
    assert begun == {"b": (4, {"north": 2})} and not waits
    begun, waits = looked([row("b", "north", bundle=WRIST)], WATCHES)
    assert not begun and waits == {"b": "b waits for run a: north is in both"}


def test_trainings_with_other_devices_go_on_at_one_hospital() -> None:
    a = row("a", "north", begun={"north": 2}, devices=("w1", "p1"))
    assert looked([row("b", devices=("w2",))], a) == ({"b": (4, {"north": 1})}, {})
    assert looked([row("b", devices=("w2", "p1"))], a)[1] == {"b": "b waits for run a: north is in both"}
    assert looked([row("b", bundle=PHONE)], a)[1] == {"b": "b waits for run a: north is in both"}, "p1 may have that"


def test_a_hospital_without_room_has_one_training() -> None:
    fleet = PresentFleet(FLEET.present, bundles=FLEET.bundles, devices=FLEET.devices, first_bundle=WRIST)
    assert looked([row("b", "north", bundle=PHONE)], WATCHES, fleet=fleet)[1]
    begun, waits = looked([row("b", "north", "south", bundle=PHONE)], WATCHES)
    assert not begun and waits == {"b": "b waits for run a: north is in both"}, "south has the main lane alone"


def test_no_third_training_begins_where_two_may_go_on() -> None:
    c = row("c", "north", begun={"north": 1}, lane=4, devices=("p1",))
    a = row("a", "north", begun={"north": 1}, devices=("w1",))
    assert looked([row("d", devices=("p2",))], a, c)[1] == {"d": "d waits for run a: north is in both"}


def test_who_waits_for_devices_keeps_them_from_those_behind_it_and_no_others() -> None:
    a = row("a", "north", begun={"north": 1}, devices=("w1",))
    queue = [row("b", devices=("w1", "w2")), row("c", devices=("w2",)), row("d", devices=("p1",))]
    begun, waits = looked(queue, a)
    assert begun == {"d": (4, {"north": 1})}
    assert waits == {
        "b": "b waits for run a: north is in both",
        "c": "c waits for run b: north is in both",
    }


def test_a_rollout_in_place_of_a_training_waits_for_all_of_them() -> None:
    c = row("c", "north", begun={"north": 1}, lane=4, devices=("p1",))
    assert looked([rollout("r", "north")], c)[1] == {"r": "r waits for run c: north is in both"}


def test_a_run_for_all_has_the_hospitals_that_have_its_bundle_or_tell_of_none() -> None:
    assert looked([row("b", bundle=PHONE)])[0] == {"b": (0, {"north": 2, "south": 3})}
    none = PresentFleet({"north": 4}, trainings={"north": 2}, bundles={"north": {WRIST: 4, PHONE: 0}})
    assert looked([row("b", bundle=PHONE)], fleet=none)[1] == {
        "b": "b waits for devices with its bundle: north told of none"
    }


def test_devices_of_which_nobody_has_told_are_waited_for() -> None:
    begun, waits = looked([row("b", devices=("x1",))])
    assert not begun and waits["b"].startswith("b waits for x1: north, south told of none of them")


def test_a_hospital_joins_a_run_only_in_a_lane_that_it_has() -> None:
    b = row("b", begun={"north": 2}, lane=4, bundle=PHONE)
    assert find_members(b, FLEET, {}) == {"north": 2}, "south has no lane 4"
    assert find_members({**b, "beside": 0}, FLEET, {}) == {"north": 2, "south": 3}


def test_names_of_devices_and_bundles_are_checked() -> None:
    for devices in (("a/b",), ("w1", "w1"), tuple(f"w{i}" for i in range(10_001))):
        with pytest.raises(UsageError, match="devices"):
            Wanted(devices=devices).check(CLASSES)
    assert Wanted(devices=("w1",)).as_run("r", CLASSES).devices == ("w1",)
    for wrong in ([], {"x": 1}, {WRIST: -1}, {WRIST: True}, {chr(65 + i) * 64: 1 for i in range(101)}):
        with pytest.raises(ValueError, match=" is no "):
            read_bundles(wrong)


def test_a_run_for_some_devices_is_asked_for_in_the_form_and_shown(browse: Any, service: Any) -> None:
    browser = browse("operator")
    form = {"csrf": secret_in(browser.get("/runs/new").text), "method": "fedavg", "rounds": "7", "id": "mine"}
    form |= {"preset": "recommended", "devices": "w1, w2"}
    assert browser.post("/runs", data=form).headers["location"] == "/runs/mine"
    assert find_run(service.database, "mine")["wanted"]["devices"] == ["w1", "w2"]
    assert "<dt>Only devices</dt><dd>w1 w2</dd>" in browser.get("/runs/mine").text
    assert 'name="devices" value="w1 w2"' in browser.get("/runs/new?from=mine").text
    again = browser.post("/runs", data=form | {"id": "other", "devices": "w1 w1"})
    assert again.status_code == 422 and "w1" in again.text and "is named twice" in again.text
