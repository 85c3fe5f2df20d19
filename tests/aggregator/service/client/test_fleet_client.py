"""`auscult fleet show`: all that is known of a device or a hospital, for people."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aggregator.service.client.client import ServiceClient, make_parser, print_runs
from aggregator.service.client.fleet_client import describe_member, describe_standing

NOW = {"heard": None, "why": ""}


def test_a_device_is_shown_without_what_is_not_known_of_it() -> None:
    device = {"name": "w-1", "hospital": "north", "state": "refuses", "bytes_in": 1200, "bytes_out": 7, "late": 0}
    device |= {"version": "0.1.0", "board": "", "battery": 0}
    found = describe_member(device | {"heard": time.time() - 42, "why": "label 'wlak'"})
    assert found["state"] == "cannot take part" and found["why"] == "label 'wlak'" and found["up"] == "1.2 kB"
    assert found["version"] == "0.1.0" and found["battery"] == "0 %" and "board" not in found
    assert found["last heard"] in ("42 s ago", "43 s ago") and "late in" not in found
    hospital = {"name": "north", "counts": {"here": 2, "away": 1}, "here": 2, "size": 3, "run": "r", "labels": None}
    found = describe_member(hospital | {"strangers": [], "software": "0.1.0", **NOW})
    assert found["states"] == "2 ready, 1 away" and found["devices"] == "2 of 3 here"
    assert found["last heard"] == "never" and not {"labels", "strangers", "why"} & {*found}


def test_the_command_asks_the_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def ask(client: Any, path: str, body: Any = None) -> Any:
        asked.append(path)
        return {
            "name": "north",
            "counts": {},
            "here": 0,
            "size": 1,
            "run": "",
            "labels": 3,
            "strangers": [],
            "software": "",
            **NOW,
        }

    monkeypatch.setattr(ServiceClient, "ask", ask)
    options = make_parser().parse_args(["fleet", "show", "north"])
    options.do(options, ServiceClient("http://x", "t"))
    assert asked == ["/fleet/north"] and capsys.readouterr().out.splitlines()[0].split() == ["hospital", "north"]


def test_between_runs_nobody_is_said_to_be_missing() -> None:
    """It was "0 of 5 devices here; all right"."""
    counts = {"connected": 3, "joining": 1, "away": 1}
    hospital: dict[str, Any] = {"name": "north", "counts": counts, "here": 0, "size": 5, "run": "", "why": ""}
    assert describe_standing(hospital) == "4 of 5 devices connected; no run is on"
    assert describe_standing({**hospital, "why": "waits"}) == "4 of 5 devices connected; waits"
    assert describe_standing({**hospital, "run": "r", "here": 4}) == "4 of 5 devices here; all right"


def test_lists_are_asked_for_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that moved to the next page meanwhile is there once."""
    pages = [{"runs": [{"id": "c"}, {"id": "b"}], "total": 3000}, {"runs": [{"id": "b"}, {"id": "a"}], "total": 3001}]
    asked: list[str] = []

    def ask(client: Any, path: str, body: Any = None) -> Any:
        asked.append(path)
        return pages[len(asked) - 1]

    monkeypatch.setattr(ServiceClient, "ask", ask)
    assert ServiceClient("http://x", "t").ask_for_all("runs", "id") == [{"id": "c"}, {"id": "b"}, {"id": "a"}]
    assert asked == ["/runs?limit=2000&offset=0", "/runs?limit=2000&offset=2000"]


BROKER = {"what": "The broker cannot be reached", "why": "mqtt://there: refused", "link": "/fleet"}


@pytest.mark.parametrize(
    "needs, broken, said",
    [
        ([], None, ["nothing needs a person"]),
        ([BROKER], None, ["The broker cannot be reached: mqtt://there: refused"]),
        ([], 7, ["The audit log does not hold from entry 7 on: auscult audit verify"]),
    ],
)
def test_the_command_says_what_needs_a_person(
    needs: list[dict[str, str]],
    broken: int | None,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    about = {"needs": needs, "audit": {"entries": 9, "broken": broken}, "broker": not needs, "waits": ""}
    monkeypatch.setattr(ServiceClient, "ask", lambda client, path: {"/status": about}[path])
    options = make_parser().parse_args(["fleet", "status"])
    options.do(options, ServiceClient("http://x", "t"))
    assert capsys.readouterr().out.splitlines() == said


def test_a_fleet_of_before_is_not_taken_for_one_of_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service that has lost its broker showed all as it was, without a word."""
    answers: dict[str, Any] = {
        "/fleet?limit=2000&offset=0": {"hospitals": [], "total": 0},
        "/status": {"broker": False},
    }
    monkeypatch.setattr(ServiceClient, "ask", lambda client, path: answers[path])
    options = make_parser().parse_args(["fleet", "ls"])
    options.do(options, ServiceClient("http://x", "t"))
    assert "no connection to its broker" in capsys.readouterr().err
    answers["/status"] = {"broker": True}
    options.do(options, ServiceClient("http://x", "t"))
    assert not capsys.readouterr().err


def test_devices_of_a_silent_hospital_are_not_said_to_be_here_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = {"name": "w-1", "state": "here", "heard": time.time() - 7230, "why": ""}
    never = {"name": "w-2", "state": "away", "heard": None, "why": ""}
    hospital = {"name": "north", "run": "r", "size": 2, "here": 1, "counts": {}, "why": "silent for 11 min"}
    page = {"hospitals": [{**hospital, "silent": True, "devices": [device, never]}], "total": 2}
    monkeypatch.setattr(ServiceClient, "ask", lambda client, path: page | {"broker": True})
    options = make_parser().parse_args(["fleet", "ls"])
    options.do(options, ServiceClient("http://x", "t"))
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.split() == ["w-1", "here", "2", "h", "ago"] and second.split() == ["w-2", "away", "never"]


def test_a_rollout_is_not_said_to_have_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """One that had ended stood there with 0 rounds of 1."""
    row = {"id": "x", "state": "finished", "round": 0, "rounds": 1, "loss": None, "waits": ""}
    print_runs([{**row, "method": "rollout"}, {**row, "method": "fedavg"}])
    _, rollout, run = capsys.readouterr().out.splitlines()
    assert "0/1" not in rollout and "0/1" in run
