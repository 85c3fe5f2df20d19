"""What hospitals report: over a real broker, and whatever else may come on that topic."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.wrong_passwords import TRIES, WITHIN, WrongPasswords
from aggregator.service.fleet.monitor import SILENT, SeenHospital
from aggregator.service.fleet.reports import read_report
from edge_sdk.contract.children.limits import MOST_DEVICES
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.live.test_who_takes_part import refuse

CHILD = {"name": "a", "state": "here", "refusal": "", "heard": 5, "bytes_in": 1, "bytes_out": 2, "late": 0}
REPORT = {
    **{"version": 1, "node": "north", "run": "r", "refusal": "", "waiting": "", "devices": 1, "counts": {"here": 1}},
    "children": [CHILD],
}


def test_a_console_sees_who_is_here_and_why_not(tmp_path: Path, quick: LocalBroker, make_service: Any) -> None:
    service = make_service(name="agg", broker=quick.url, hospitals={})
    net = Net(tmp_path, quick.url)
    hospital = net.hospital("h", "a", "b", "c", wait_for=1, reports="names")
    odd = net.node("b", None, "h", (), assemble=refuse)  # type: ignore[arg-type]
    service.monitor.start()
    stranger = net.device("watch-9", "h")
    with playing(net.aggregator("h", size=3), hospital, net.device("a", "h"), odd, stranger):
        eventually(lambda: [h.strangers for h in service.monitor.list_hospitals()] == [("watch-9",)], 60)
        eventually(lambda: service.monitor.sizes() == {"h": 3}, 60)
        eventually(lambda: states(service) == {"a": True, "b": "refuses", "c": "away"}, 60)
        [seen] = service.monitor.list_hospitals()
    assert "label 'wlak'" in next(d.why for d in seen.devices if d.name == "b")
    service.monitor.stop()
    again = make_service(name="agg", broker=quick.url, hospitals={})  # the latest report outlives the service
    assert again.monitor.list_hospitals()[0].name == "h"


def states(service: Any) -> dict[str, Any]:
    """Device -> its state; True for one that takes part."""
    found = [d for h in service.monitor.list_hospitals() for d in h.devices]
    return {d.name: True if d.state in ("here", "training") else d.state for d in found}


def test_numbers_without_names_where_no_more_is_told(tmp_path: Path, quick: LocalBroker, make_service: Any) -> None:
    service = make_service(name="agg", broker=quick.url, hospitals={})
    net = Net(tmp_path, quick.url)
    service.monitor.start()
    silent = net.hospital("s", "x", reports="nothing")
    with playing(net.aggregator("h", "s"), net.hospital("h", "a", "b", reports="counts"), silent):
        eventually(lambda: service.monitor.sizes() == {"h": 2}, 60)
    [seen] = service.monitor.list_hospitals()
    assert seen.counts == {"away": 2} and not seen.devices
    service.monitor.stop()


def test_a_clock_that_is_set_back_makes_no_silence_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hospital that was heard of tomorrow would have been well for a day, whatever became of it."""
    hospital = SeenHospital("north", time.time(), 2)
    assert not hospital.is_silent
    monkeypatch.setattr(time, "time", lambda: hospital.heard - 86400)
    assert hospital.is_silent


def test_wrong_passwords_lock_nobody_out_until_the_clock_has_come_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, now = WrongPasswords(), time.monotonic()
    for _ in range(TRIES):
        wrong.note("ada", "127.0.0.1")
    assert wrong.must_wait("ada", "127.0.0.1")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now + WITHIN + 1)
    assert not wrong.must_wait("ada", "127.0.0.1")


def test_a_silent_hospital_is_counted_on_no_longer(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service.monitor.take("auscult/v1/cloud/south/up/f", json.dumps({**REPORT, "node": "south"}).encode())
    assert service.monitor.sizes() == {"north": 2, "south": 1}  # north is named in the settings
    import time

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + SILENT + 1)
    assert service.monitor.sizes() == {"north": 2}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"node": "south"},
        {"devices": -1},
        {"devices": "1"},
        {"devices": True},
        {"counts": {"here": 1.5}},
        {"counts": 3},
        {"refusal": None},
        {"children": {}},
        {"children": [3]},
        {"children": [{**CHILD, "name": "../a"}]},
        {"children": [{**CHILD, "name": "<script>"}]},
        {"children": [{**CHILD, "state": "dead"}]},
        {"children": [{**CHILD, "heard": "now"}]},
        {"children": [{**CHILD, "late": 2**64}]},
        {"children": [{}]},
        {"strangers": ["<b>"]},
        {"devices": MOST_DEVICES + 1},
        {"roster": 2**31},
        {"strangers": 3},
    ],
)
def test_what_is_no_report_is_dropped(service: Any, change: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        read_report(json.dumps({**REPORT, **change}).encode(), "north")
    service.monitor.take("auscult/v1/cloud/north/up/f", json.dumps({**REPORT, **change}).encode())
    assert service.monitor.refused == 1 and not service.monitor.seen


@pytest.mark.parametrize("labels", [2**53 + 84, -1, "700", None])
def test_a_wrong_sum_of_labels_costs_the_labels_and_not_the_report(service: Any, labels: Any) -> None:
    for told in (700, labels):
        service.monitor.take("auscult/v1/cloud/north/up/f", json.dumps({**REPORT, "labels": told}).encode())
    seen = service.monitor.seen["north"]
    assert len(seen.devices) == len(REPORT["children"]) and seen.labels is None and service.monitor.refused == 1


def test_no_text_of_a_hospital_takes_the_console_down(browse: Any, service: Any) -> None:
    """Half a character is JSON and no UTF-8: the overview could not be shown until the hospital said another thing."""
    change = {
        "refusal": "\ud800 no\x1b[2J",
        "waiting": "\udfff",
        "run": "\0",
        "children": [{**CHILD, "refusal": "\ud83d"}],
    }
    service.monitor.take("auscult/v1/cloud/north/up/f", json.dumps({**REPORT, **change}).encode())
    service.monitor.save()
    client = browse("viewer")
    for path in ("/", "/fleet", "/api/v1/fleet", "/api/v1/fleet/north", "/metrics"):
        assert client.get(path).status_code == 200, path
    [seen] = service.monitor.list_hospitals()
    assert (seen.refusal, seen.waiting, seen.run, seen.devices[0].refusal) == ("? no?[2J", "?", "?", "?")


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"null", b"[" * 100_000, b"{}"])
def test_bytes_that_are_no_report_are_dropped(payload: bytes) -> None:
    with pytest.raises(PeerError):
        read_report(payload, "north")


def test_who_has_no_name_is_no_hospital() -> None:
    for name in ("<b>", "x" * 65, "", "a b"):
        with pytest.raises(PeerError, match="is no name"):
            read_report(json.dumps({**REPORT, "node": name}).encode(), name)


def test_a_broken_piece_of_a_report_is_a_report_or_none() -> None:
    whole = json.dumps(REPORT).encode()
    assert read_report(whole, "north")["devices"] == 1
    for end in range(len(whole)):
        with pytest.raises(PeerError):
            read_report(whole[:end], "north")


def test_the_settings_say_what_is_wrong_with_them(service: Any) -> None:
    for change, says in (
        ({"listen": "here"}, "expected ADDRESS:PORT"),
        ({"classes": ()}, "at least 2"),
        ({"hospitals": {"north": 0}}, "at least 1 device"),
        ({"hospitals": {"north": 2_000_000_000}}, "at most 100000"),
        ({"bundles": (Path("nope"),)}, "no such file"),
    ):
        with pytest.raises(UsageError, match=says):
            type(service.file)(**{**vars(service.file), **change})


def test_a_hospital_that_reports_too_often_is_read_less_often(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report costs a look through its rows, and a row in the database every two seconds."""
    now, payload = [1000.0], json.dumps({**REPORT, "node": "south"}).encode()
    monkeypatch.setattr("aggregator.service.fleet.monitor.time.monotonic", lambda: now[0])
    read: list[str] = []

    def count(payload: bytes, sender: str) -> dict[str, Any]:
        read.append(sender)
        return read_report(payload, sender)

    monkeypatch.setattr("aggregator.service.fleet.monitor.read_report", count)
    for _ in range(1000):
        service.monitor.take("auscult/v1/cloud/south/up/f", payload)
    assert len(read) == 100 and service.monitor.refused == 900
    service.monitor.take("auscult/v1/cloud/west/up/f", json.dumps({**REPORT, "node": "west"}).encode())
    now[0] += 1.0
    for _ in range(10):
        service.monitor.take("auscult/v1/cloud/south/up/f", payload)
    assert read.count("south") == 104 and read.count("west") == 1, "another hospital has an allowance of its own"
    assert {h.name for h in service.monitor.list_hospitals()} >= {"south", "west"}
