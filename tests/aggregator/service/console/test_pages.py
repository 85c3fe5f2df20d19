"""The pages and the API: all can be read, with nothing in the service and with much, without any script."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from aggregator.service.console.csv_pages import quote_formula
from aggregator.service.database import audit
from aggregator.service.database.database import runs
from aggregator.service.fleet.monitor import to_hospital
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.conftest import CLASSES, list_pages, secret_in

CSV_HEADS = {"runs": "id,", "enrolment": "name,", "models": "run,", "bundles": "name,"}
CSV_HEADS |= {"rollouts": "id,", "audit": "seq,"}
"""Table of the console -> how its file begins."""
CSV_PAGES = {"bundles": "models"}
STATES = ("training", "here", "refuses", "away")


def fill(service: Any, devices: int = 4, rounds: int = 5) -> str:
    """A run with rounds behind it, and a hospital with devices in all states."""
    id = add_run(service.database, Wanted(method="ditto"), CLASSES, "test")
    path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    sums = {"loss": 1.0, "samples": 9.0, "devices": 2.0, "global_accuracy": 1.0, "personal_accuracy": 1.5}
    lines = [
        {"kind": "round", "round": r + 1, "devices": 2, "sums": sums, "time": 5.0 * r, "bytes": {"bytes_in": 1000 * r}}
        for r in range(rounds)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    children = [
        {"name": f"w-{i:05}", "state": STATES[i % 4], "refusal": "label 'wlak'" if i % 4 == 2 else "", "heard": i}
        | {"bytes_in": i, "bytes_out": 7, "late": i % 3}
        for i in range(devices)
    ]
    counts = {state: sum(c["state"] == state for c in children) for state in STATES}
    report = {"run": id, "refusal": "", "waiting": "", "counts": counts, "devices": devices, "children": children}
    service.monitor.seen["north"] = to_hospital("north", time.time(), report)
    return id


@pytest.mark.parametrize("page", list_pages(filled=False))
def test_every_page_is_there_when_nothing_else_is(browse: Any, page: str) -> None:
    assert browse("admin").get(page).status_code == 200


def test_the_overview_says_what_needs_somebody(browse: Any, service: Any) -> None:
    fill(service)
    text = browse("viewer").get("/").text
    assert "things need you" in text and "Device w-00002 cannot take part" in text and "label &#39;wlak&#39;" in text
    assert "1 device is away from north" in text


def test_a_hospital_is_in_no_run_that_has_ended(browse: Any, service: Any) -> None:
    """Its node stays in one until the next begins, and the page went on saying so."""
    id, browser = fill(service, devices=2), browse("viewer")
    healthy = {"run": id, "refusal": "", "waiting": "", "counts": {"here": 2}, "devices": 2, "children": []}
    service.monitor.seen["north"] = to_hospital("north", time.time(), healthy)
    for state, said, run in (("running", f'in run <a href="/runs/{id}">', id), ("finished", "waits for a run", "")):
        with service.database.transaction() as t:
            t.execute(runs.update().where(runs.c.id == id).values(state=state))
        assert said in browser.get("/").text and said in browser.get("/fleet").text
        assert browser.get("/api/v1/fleet").json()["hospitals"][0]["run"] == run
        assert browser.get("/api/v1/fleet/north").json()["run"] == run


def test_many_devices_that_cannot_take_part_are_one_thing_that_needs_somebody(browse: Any, service: Any) -> None:
    """It once named six of them, and left the others out."""
    fill(service, devices=450)
    text = browse("viewer").get("/").text
    assert "112 devices of north cannot take part" in text and "112 of them: label &#39;wlak&#39;" in text
    assert "Device w-00002 cannot take part" not in text


def test_a_run_has_its_curves_and_the_same_as_a_table(browse: Any, service: Any) -> None:
    id, browser = fill(service), browse("viewer")
    text = browser.get(f"/runs/{id}").text
    assert text.count("<figure") == 5 and "75.0 %" in text and "50.0 %" in text
    lines = browser.get(f"/runs/{id}/rounds.csv").text.splitlines()
    rows = list(csv.DictReader(lines))
    found = {key: rows[1][key] for key in ("round", "devices", "loss", "global", "personal", "seconds", "bytes_up")}
    assert [*found.values()] == ["2", "2", "0.5", "0.5", "0.75", "5.0", "1000"]
    assert browser.get(f"/runs/{id}/hops.csv").text.splitlines()[1:3] == ["device_up,", "device_down,"]
    assert browser.get("/runs/nothing").status_code == 404
    assert browser.get(f"/compare?run={id}").text.count("<figure") == 2


def test_tables_and_figures_are_there_as_csv_in_which_no_text_is_a_formula(browse: Any, service: Any) -> None:
    id, browser = fill(service), browse("viewer")
    child = {"name": "evil", "state": "refuses", "refusal": '=HYPERLINK("http://x","y")', "heard": 1}
    child |= {"bytes_in": 0, "bytes_out": 0, "late": 0}
    report = {"run": "", "refusal": "", "waiting": "", "counts": {}, "devices": 1, "children": [child]}
    service.monitor.seen["south"] = to_hospital("south", time.time(), report)
    lines = browser.get("/fleet.csv?sort=name").text.splitlines()
    assert len(lines) == 6 and lines[1].startswith("evil,south,refuses,1,0,0,0,") and ",\"'=HYPERLINK" in lines[1]
    assert len(browser.get("/fleet.csv?state=away").text.splitlines()) == 2
    lines = browser.get(f"/compare.csv?run={id}").text.splitlines()
    assert lines[2] == f"{id},2,0.5,0.75,0.5,accuracy,,,,,"
    page = browser.get(f"/compare?run={id}").text
    assert f'href="/compare.csv?run={id}"' in page and browser.get(f"/runs/{id}").text.count(">CSV</a>") == 6


@pytest.mark.parametrize("start", ["=", "\t", "\n", "\uff1d", "\uff20"])
def test_no_cell_begins_as_a_formula(start: str) -> None:
    assert quote_formula(f"{start}1") == f"'{start}1"
    assert quote_formula(-1.5) == -1.5


def test_every_table_is_there_as_csv_with_the_search_of_its_page(browse: Any, service: Any) -> None:
    id, browser = fill(service), browse("viewer")
    with service.database.transaction() as t:
        for name in ("a-run", "=1+1"):
            audit.note(t, name, "test.note", id, why="so")
    page = browser.get("/audit?q=test.note&sort=who").text
    assert 'href="/audit.csv?q=test.note&amp;sort=who"' in page
    lines = browser.get("/audit.csv?q=test.note&sort=who").text.splitlines()
    assert lines[0] == "seq,at,who,action,subject,detail,hash" and len(lines) == 3
    assert [line.split(",")[2] for line in lines[1:]] == ["'=1+1", "a-run"]
    for name, first in CSV_HEADS.items():
        answer = browser.get(f"/{name}.csv")
        assert answer.text.splitlines()[0].startswith(first), name
        assert f'filename="{name}.csv"' in answer.headers["content-disposition"]
        assert f'href="/{name}.csv"' in browser.get(f"/{CSV_PAGES.get(name, name)}").text, name
    assert len(browser.get("/bundles.csv").text.splitlines()) == 2


def test_devices_are_found_sorted_and_paged(browse: Any, service: Any) -> None:
    fill(service, devices=10_000, rounds=1)
    browser = browse("viewer")
    asked: list[str] = []
    sql.event.listen(service.database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    text = browser.get("/fleet").text
    assert len(asked) < 50, "the page asks the database for each device"
    assert "10000 devices" in text and text.count('<td data-name="Device">') == 200
    assert text.index("w-00002") < text.index("w-00006")  # those who need somebody come first
    found = browser.get("/fleet?q=w-01234").text
    assert "1 device<" in found.replace("\n", "") or "1 device" in found
    assert browser.get("/fleet?state=away&page=13").text.count('<td data-name="Device">') == 100
    assert browser.get("/fleet?page=x&sort=nothing").status_code == 200


def test_lists_of_the_api_are_paged(browse: Any, service: Any) -> None:
    browser = browse()
    browser.headers["authorization"] = f"Bearer {service.people.make_key('token', 'robot', 'viewer', 60.0, 'test')}"
    ids = [add_run(service.database, Wanted(), CLASSES, "test") for _ in range(5)]
    found = [browser.get(f"/api/v1/runs?limit=2&offset={at}").json() for at in (0, 2, 4, 6)]
    assert [run["id"] for page in found for run in page["runs"]] == ids[::-1]
    assert {page["total"] for page in found} == {5}
    for path, key in (("runs", "runs"), ("models", "models"), ("rollouts", "rollouts"), ("enrolment", "nodes")):
        answer = browser.get(f"/api/v1/{path}?limit=1").json()
        assert len(answer[key]) == min(1, answer["total"]) and (answer["limit"], answer["offset"]) == (1, 0)
        for wrong in ("limit=5001", "limit=-1", "offset=x", "limit="):
            assert browser.get(f"/api/v1/{path}?{wrong}").status_code == 422, (path, wrong)


ETA = 'name="settings.eta_l" value="0.1"'


def test_a_run_is_queued_by_a_form_and_cloned(browse: Any, service: Any) -> None:
    browser = browse("operator")
    form = {
        "csrf": secret_in(browser.get("/runs/new").text),
        "method": "fedavg",
        "rounds": "7",
        "settings.eta_l": "0.1",
    }
    form |= {"preset": "recommended", "hospitals": "north", "id": "mine"}
    assert browser.post("/runs", data=form).headers["location"] == "/runs/mine"
    again = browser.post("/runs", data=form)
    assert again.status_code == 422 and "there is a run of that name already" in again.text and ETA in again.text
    clone = browser.get("/runs/new?from=mine").text
    assert ETA in clone and 'value="7"' in clone


def test_a_run_that_begins_every_night_is_made_by_the_form_and_removed(browse: Any, service: Any) -> None:
    browser = browse("operator")
    form = {"csrf": secret_in(browser.get("/runs/new").text), "method": "fedavg", "rounds": "7", "begin": "22:00"}
    form["preset"] = "recommended"
    assert "expected a time" in browser.post("/runs", data=form | {"id": "nightly"}).text
    assert browser.post("/runs", data=form | {"end": "06:00"}).status_code == 422  # it has no name
    made = browser.post("/runs", data=form | {"id": "nightly", "end": "06:00"})
    assert made.headers.get("location") == "/runs", made.text
    assert "fedavg, 22:00 to 06:00" in browser.get("/runs").text
    assert browser.post("/schedules/nightly/remove", data={"csrf": form["csrf"]}).status_code == 303
    assert "22:00" not in browser.get("/runs").text


def test_the_api_does_what_the_console_does(browse: Any, service: Any) -> None:
    token = service.people.make_key("token", "robot", "operator", 60.0, "test")
    browser = browse()
    browser.headers["authorization"] = f"Bearer {token}"
    made = browser.post("/api/v1/runs", json={"method": "fedavg", "rounds": 3, "settings": {"eta_l": 0.1}, "id": "a"})
    assert made.status_code == 201 and made.json()["state"] == "queued"
    clone = browser.post("/api/v1/runs/a/clone", json={"rounds": 4, "settings": {"batch": 8}}).json()
    assert clone["wanted"]["settings"] == {"eta_l": 0.1, "batch": 8} and clone["cloned"] == "a"
    assert [run["id"] for run in browser.get("/api/v1/runs").json()["runs"]] == [clone["id"], "a"]
    assert browser.post("/api/v1/runs/a/stop").json()["state"] == "stopped"
    assert browser.post("/api/v1/runs/a/stop").status_code == 409
    for path, body, code in (("/runs", b"{", 422), ("/runs", b"[]", 422), ("/runs", b'{"nope": 1}', 422)):
        assert browser.post(f"/api/v1{path}", content=body).status_code == code
    assert browser.post("/api/v1/runs/nothing/stop").status_code == 404
    assert browser.get("/api/v1/fleet/nothing").status_code == 404
    assert browser.get("/api/v1/status").json()["audit"]["broken"] is None
    fill(service)
    assert browser.get("/api/v1/fleet/w-00002").json()["why"] == "label 'wlak'"
