"""The table of a run's rounds, its hops, and who is not counted, against literals."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggregator.phases import PhaseClock
from aggregator.service.application import view
from aggregator.service.database.database import runs
from aggregator.service.fleet.monitor import SeenDevice, SeenHospital
from aggregator.service.fleet.reports import read_report
from aggregator.service.fleet.traffic import NewBytes, find_hops
from aggregator.service.runs.round_table import tabulate
from edge_sdk.contract.children.patience import LATEST
from edge_sdk.errors import PeerError
from tests.aggregator.service.console.test_pages import fill

SUMS = {"loss": 3.0, "devices": 4.0, "global_accuracy": 2.0, "global_accuracy_squared": 1.25, "untold": 1.0}
JUDGED = {"devices": 4.0, "global_accuracy": 3.0, "personal_harmed": 1.0, "personal_density": 0.5}


@pytest.fixture
def database_url() -> str:
    return ""


def test_a_round_has_its_spread_its_ranks_and_its_phases() -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "round", "round": 1, "devices": 5, "sums": SUMS, "time": 0.0, "phases": {"Train": 2.0}},
        {"kind": "evaluation", "round": 1, "sums": JUDGED, "time": 1.5, "phases": {"Evaluate": 1.0}},
        {"kind": "refused", "sender": "x", "time": 1.0},
        {"kind": "round", "round": 2, "devices": 5, "sums": SUMS, "time": 5.0, "phases": {"Train": 3.0}}
        | {"ranks": {"a": 2, "b": 5}, "sent_parameters": 90},
        {"kind": "evaluation", "round": 3, "sums": JUDGED, "time": 6.0},
    ]
    first, second = tabulate(lines)
    assert (first["untold"], first["loss"], first["global"], first["global_spread"]) == (1, 0.75, 0.5, 0.25)
    assert (first["harmed"], first["density"], first["rank"], first["local"]) == (1, 0.125, None, None)
    assert (first["seconds"], first["training"], first["aggregator"]) == (None, 2.0, None)
    assert (second["seconds"], second["training"], second["evaluation"], second["aggregator"]) == (5.0, 3.0, 1.0, 1.0)
    assert (second["rank"], second["sent_parameters"], second["harmed"]) == (3.5, 90, None)


def test_a_run_of_before_has_no_phases() -> None:
    [row] = tabulate([{"kind": "round", "round": 1, "devices": 2, "time": 0.0}])
    assert [row[key] for key in ("training", "evaluation", "aggregator", "rank", "harmed")] == [None] * 5


def test_times_that_are_new_are_told_once() -> None:
    clock = PhaseClock()
    assert clock.read({"A": (1.0,)}) == {"A": 1.0}
    assert clock.read({"A": (1.0,)}) == {}
    assert clock.read({"A": (1.0, 2.0, 4.0), "B": (0.5,)}) == {"A": 6.0, "B": 0.5}
    many = tuple(float(i) for i in range(LATEST))
    clock.read({"A": many})
    assert clock.read({"A": (*many[2:], 7.0, 8.0)}) == {"A": 15.0}
    assert PhaseClock().read({"A": (1.0, 2.0)}) == {}  # after a restart nobody knows which are new


def hospital(run: str, **traffic: tuple[int, int]) -> SeenHospital:
    devices = tuple(SeenDevice(n, "north", "here", bytes_in=up, bytes_out=down) for n, (up, down) in traffic.items())
    return SeenHospital("north", time.time(), len(devices), run, devices=devices)


def test_bytes_of_devices_belong_to_the_run_of_their_hospital(service: Any) -> None:
    found = NewBytes()
    found.note(None, hospital("r", a=(900, 900)))
    found.note(hospital("q", a=(900, 900), b=(0, 0)), hospital("r", a=(1000, 910), b=(5, 7)))
    with service.database.transaction() as t:
        found.save(t)
    again = NewBytes()
    again.note(hospital("r", a=(1000, 910)), hospital("r", a=(990, 1000)))  # killed: it goes on from what it saved
    again.note(hospital("r", a=(990, 1000)), hospital("r", a=(1030, 1000)))
    again.note(hospital("r", a=(1030, 1000)), hospital("", a=(2000, 2000)))  # in no run
    with service.database.transaction() as t:
        again.save(t)
    assert find_hops(service.database, "r") == {"north": {"up": 145, "down": 107}}
    assert find_hops(service.database, "q") == {}


def test_bytes_of_a_device_that_leaves_and_returns_are_counted_once(service: Any) -> None:
    """All that it had ever sent was once counted again."""
    found, both = NewBytes(), hospital("r", a=(100, 100), b=(400, 500))
    for before, now in (
        (hospital("r", a=(0, 0), b=(0, 0)), both),
        (both, hospital("r", a=(110, 100))),
        (hospital("r", a=(110, 100)), hospital("r", a=(120, 100), b=(400, 500))),
        (hospital("r", a=(120, 100), b=(400, 500)), hospital("r", a=(120, 100), b=(401, 502))),
    ):
        found.note(before, now)
    assert found.counts == {("r", "north", "up"): 120 + 401, ("r", "north", "down"): 100 + 502}


def test_bytes_belong_to_the_run_of_the_device_where_several_go_on_at_its_hospital() -> None:
    def two(sent: int) -> SeenHospital:
        devices = tuple(SeenDevice(n, "north", "here", bytes_in=sent, run=run) for n, run in (("a", "r"), ("b", "q")))
        return SeenHospital("north", time.time(), 2, "r, q", devices=devices)

    found = NewBytes()
    found.note(two(10), two(15))
    assert {key: count for key, count in found.counts.items() if count} == {
        ("r", "north", "up"): 5,
        ("q", "north", "up"): 5,
    }


def test_what_a_report_says_of_machines_is_checked(service: Any) -> None:
    child = {"name": "a", "state": "here", "refusal": "", "heard": 1, "bytes_in": 0, "bytes_out": 0, "late": 0}
    report = {"version": 1, "node": "north", "run": "", "refusal": "", "waiting": "", "devices": 1, "counts": {}}
    good = child | {"version": "0.1.0", "board": "Pi", "battery": 30}

    def read(child: dict[str, Any], **more: Any) -> dict[str, Any]:
        return read_report(json.dumps(report | {"children": [child], **more}).encode(), "north")

    assert read(good, software="0.1.0")["children"] == [good] and read(child)["children"] == [child]
    for wrong in ({"version": 3}, {"board": "x" * 65}, {"board": "a\nb"}, {"battery": 101}, {"battery": None}):
        with pytest.raises(PeerError, match="its report cannot be read"):
            read(child | wrong)
    service.monitor.take("auscult/v1/cloud/north/up/f", json.dumps(report | {"children": [good]}).encode())
    [device] = service.monitor.seen["north"].devices
    assert (device.version, device.board, device.battery) == ("0.1.0", "Pi", 30)
    service.monitor.save()
    assert type(service.monitor)(service.file, service.database).seen["north"] == service.monitor.seen["north"]


def test_a_running_run_says_who_is_not_counted_and_why(service: Any) -> None:
    id = fill(service)
    with service.database.transaction() as t:
        t.execute(runs.update().values(state="running", hospitals={"north": 4}))
    service.monitor.seen["north"] = replace(service.monitor.seen["north"], run=id, heard=time.time())
    path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
    line = {"kind": "round", "round": 6, "devices": 4, "sums": {"untold": 2.0}, "time": 30.0}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    [row] = service.database.read(runs.select())
    found = {one["name"]: one["why"] for one in view.describe_run(service, row, whole=True)["not_counted"]}
    assert found["w-00002"] == "label 'wlak'" and "w-00003" in found and "w-00001" not in found
    assert found["2 devices"].startswith("counted in the latest round without scores")
    service.monitor.seen["north"] = replace(service.monitor.seen["north"], run="another")
    [one, _] = view.describe_run(service, row, whole=True)["not_counted"]
    assert one == {"name": "north", "why": "is not in this run yet"}
