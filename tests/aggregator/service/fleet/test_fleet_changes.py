"""Reports of changes: one device of many costs one row, and what is lost is put right by the next whole report."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.service.fleet.monitor import to_hospital, to_report
from aggregator.service.fleet.reports import read_report
from edge_sdk.errors import PeerError
from edge_sdk.live.loop.fleet_report import AGAIN, COUNTS, NAMES, FleetReporter
from edge_sdk.live.membership.rate_limit import Frequency
from edge_sdk.live.presence.presence import Child

MANY = 300
TOPIC = "auscult/v1/cloud/north/up/f"


class Hospital:
    """A hospital's node as far as its reporter looks at it. `sent`: what it has published, not yet taken out."""

    def __init__(self, devices: int, level: str = NAMES):
        self.sent: list[bytes] = []
        connection = SimpleNamespace(room=1, publish=lambda topic, payload, qos: self.sent.append(payload))
        self.here = {f"d-{i}": Child(1, 1, 1, True, True) for i in range(devices)}
        membership = SimpleNamespace(presence=SimpleNamespace(children=self.here), run=None, refusal="")
        lane = SimpleNamespace(membership=membership, session=None)
        self.node: Any = SimpleNamespace(
            name="north",
            parent="cloud",
            publisher=SimpleNamespace(above=SimpleNamespace(connection=connection, up=True), list_limits=list),
            counters={},
            waiting_log=SimpleNamespace(what="", gauges=lambda now: {"waiting_seconds": 0.0}),
            dispatcher=SimpleNamespace(roster=None, strangers={}, heard_at=dict.fromkeys(self.here, 5.0)),
            neighbours=SimpleNamespace(labels=SimpleNamespace(told=700)),
            children=tuple(self.here),
            of_lanes=SimpleNamespace(
                shared=None, leading=(lane,), lane_of=lambda name: lane, rooms={"evaluations": 2, "trainings": 1}
            ),
        )
        self.reporter, self.now = FleetReporter(level), 1.0

    def look(self, seconds: float) -> list[bytes]:
        """What is reported when so much time has passed."""
        self.now += seconds
        self.reporter.publish_due(self.node, self.now)
        sent, self.sent[:] = list(self.sent), []
        return sent

    def truth(self) -> dict[str, str]:
        return {name: "here" if name in self.here else "away" for name in self.node.children}


def seen_by(service: Any) -> dict[str, str]:
    return {device.name: device.state for device in service.monitor.seen["north"].devices}


def test_one_device_that_goes_costs_one_row(service: Any) -> None:
    hospital = Hospital(MANY)
    [whole] = hospital.look(0.0)
    assert len(json.loads(whole)["children"]) == MANY
    service.monitor.take(TOPIC, whole)
    service.database.changed.clear()
    assert hospital.look(2.0) == []
    gone = hospital.here.pop("d-17")
    [changes] = hospital.look(1.0)
    assert [row["name"] for row in json.loads(changes)["children"]] == ["d-17"] and len(changes) < 600
    service.monitor.take(TOPIC, changes)
    assert seen_by(service) == hospital.truth() and service.database.changed.is_set()
    assert service.monitor.seen["north"].counts == {"here": MANY - 1, "away": 1}
    assert [d.name for d in service.monitor.seen["north"].devices] == list(hospital.truth())
    hospital.here["d-17"] = gone
    service.monitor.take(TOPIC, *hospital.look(1.0))
    service.database.changed.clear()
    [again] = hospital.look(AGAIN)
    assert len(json.loads(again)["children"]) == MANY
    service.monitor.take(TOPIC, again)
    assert seen_by(service) == hospital.truth() and not service.database.changed.is_set()  # it says nothing new


def test_changes_after_one_that_was_lost_wait_for_the_next_whole_report(service: Any) -> None:
    hospital, draw = Hospital(40), random.Random(3)
    service.monitor.frequency = Frequency(1e9, 1e9)  # minutes of reports come at once here
    lost, right = 0, 0
    for _ in range(300):
        name = f"d-{draw.randrange(40)}"
        if hospital.here.pop(name, None) is None:
            hospital.here[name] = Child(1, 1, 1, True, True)
        for payload in hospital.look(draw.choice((0.3, 0.6, 1.2))):
            truth, part = hospital.truth(), json.loads(payload)["part"]
            if part and draw.random() < 0.2:
                lost += 1
                continue
            service.monitor.take(TOPIC, payload)
            if part == 0:
                right += 1
                assert seen_by(service) == truth
    assert lost > 10 and right > 10
    service.monitor.take(TOPIC, *hospital.look(2 * AGAIN))
    assert seen_by(service) == hospital.truth()


def test_a_device_that_is_new_or_gone_for_good_brings_a_whole_report(service: Any) -> None:
    hospital = Hospital(5)
    service.monitor.take(TOPIC, *hospital.look(0.0))
    hospital.node.children = (*hospital.node.children[1:], "new")
    [payload] = hospital.look(1.0)
    assert json.loads(payload)["part"] == 0
    service.monitor.take(TOPIC, payload)
    assert seen_by(service) == hospital.truth()


def test_changes_add_no_device_to_those_of_the_whole_report(service: Any) -> None:
    """They once did, without bound: 20,000 with each report."""
    hospital = Hospital(3)
    service.monitor.take(TOPIC, *hospital.look(0.0))
    before = hospital.truth()
    gone = hospital.here.pop("d-1")
    [changes] = hospital.look(1.0)
    service.monitor.take(TOPIC, changes.replace(b'"d-1"', b'"x-1"'))
    assert seen_by(service) == before and service.monitor.refused == 1
    service.monitor.take(TOPIC, changes)  # the next whole report is waited for
    assert seen_by(service) == before
    hospital.here["d-1"] = gone
    hospital.here.pop("d-2")
    service.monitor.take(TOPIC, *hospital.look(2 * AGAIN))
    assert seen_by(service) == hospital.truth() != before


def test_without_names_there_are_numbers_only() -> None:
    hospital = Hospital(5, COUNTS)
    hospital.look(0.0)
    hospital.here.clear()
    [payload] = hospital.look(1.0)
    assert json.loads(payload)["counts"] == {"away": 5} and "children" not in json.loads(payload)


def test_what_is_kept_is_what_was_reported(service: Any, make_service: Any) -> None:
    hospital = Hospital(3)
    service.monitor.take(TOPIC, *hospital.look(0.0))
    hospital.here.clear()
    service.monitor.take(TOPIC, *hospital.look(1.0))
    service.monitor.save()
    seen = service.monitor.seen["north"]
    assert seen.labels == 700 and to_hospital("north", seen.heard, to_report(seen)) == seen
    assert make_service().monitor.seen["north"] == seen


@pytest.mark.parametrize("change", [{"part": -1}, {"part": "1"}, {"part": 0}, {"serial": None}, {"version": 1}])
def test_changes_that_are_none_are_dropped(change: dict[str, Any]) -> None:
    hospital = Hospital(2)
    hospital.look(0.0)
    hospital.here.clear()
    [payload] = hospital.look(1.0)
    assert read_report(payload, "north")["part"] == 1
    with pytest.raises(PeerError):
        read_report(json.dumps(json.loads(payload) | change).encode(), "north")
