"""Runs side by side where their hospitals differ, and hospitals that come and leave while a run goes on."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.database import audit
from aggregator.service.database.database import runs as table
from aggregator.service.runs import runs
from aggregator.service.runs.device_overlap import PresentFleet
from aggregator.service.runs.queue import line_up
from aggregator.service.runs.runs import Wanted, add_run, change_run, find_run
from edge_sdk.errors import UsageError
from edge_sdk.wire.options import Wire
from tests.aggregator.service.conftest import CLASSES
from tests.aggregator.service.runs.test_supervisor import is_in, rounds, until
from tests.aggregator.service.runs.test_supervisor import stand_in as stand_in

PRESENT = {"north": 2, "south": 3, "west": 1}


def row(id: str, *hospitals: str, begun: dict[str, int] | None = None, method: str = "fedavg") -> Any:
    wanted = {"method": method, "hospitals": hospitals}
    return {"id": id, "wanted": wanted, "hospitals": begun or {}, "beside": 0}


def looked(queue: list[Any], *running: Any, most: int = 4, barred: frozenset[str] = frozenset()) -> Any:
    present = {name: size for name, size in PRESENT.items() if name not in barred}
    return line_up(queue, running, PresentFleet(present, barred), most)


def begun(found: Any) -> dict[str, dict[str, int]]:
    return {run["id"]: sizes for run, sizes in found.begin}


# Who may begin -------------------------------------------------------------------------------------------------------


def test_runs_with_other_hospitals_begin_and_the_others_say_for_whom_they_wait() -> None:
    a = row("a", "north", begun={"north": 2})
    found = looked([row("b", "north", "south"), row("c", "south"), row("d", "west")], a)
    assert begun(found) == {"d": {"west": 1}} and not found.stuck
    assert found.waits == {
        "b": "b waits for run a: north is in both",
        "c": "c waits for run b: south is in both",  # or it would overtake b for ever
    }


def test_a_run_for_all_waits_for_every_run_that_goes_on() -> None:
    found = looked([row("all")], row("a", begun={"north": 2, "west": 1}), row("b", begun={"south": 3}))
    assert found.waits == {"all": "all waits for run a: north, west are in both; run b: south is in both"}


def test_no_more_runs_go_on_than_may() -> None:
    found = looked([row("b", "south"), row("c", "west")], row("a", begun={"north": 2}), most=2)
    assert begun(found) == {"b": {"south": 3}}
    assert found.waits == {"c": "c waits until one of 2 runs has ended: more do not go on at once"}


def test_who_waits_for_a_missing_hospital_holds_up_nobody_else() -> None:
    found = looked([row("a", "north", "east"), row("b", "south")])
    assert begun(found) == {"b": {"south": 3}} and found.stuck == ["a"]
    assert found.waits == {"a": "a waits for east, of which nothing has been heard yet"}
    found = looked([row("a", "north")], barred=frozenset({"north"}))
    assert found.waits == {"a": "a waits for north: approve it again, or stop the run"} and found.stuck == ["a"]


def test_a_run_that_has_begun_goes_on_without_who_was_suspended_if_its_method_can() -> None:
    barred, both = frozenset({"north"}), {"north": 2, "south": 3}
    assert begun(looked([row("a", begun=both)], barred=barred)) == {"a": {"south": 3}}
    assert looked([row("a", begun=both, method="hsgd")], barred=barred).waits


@pytest.mark.parametrize(
    ("broker", "lanes", "most"), [("mqtt://127.0.0.1", 0, 4), ("mqtts://x", 0, 1), ("mqtts://x", 2, 3)]
)
def test_over_tls_there_are_as_many_runs_as_certificates(service: Any, broker: str, lanes: int, most: int) -> None:
    wires = {f"cloud-run-{i}": Wire(keepalive=5 + i) for i in range(lanes)}
    file = FleetFile(**{**vars(service.file), "broker": broker, "lanes": wires})
    assert file.most_runs == most
    names = [file.find_connection(number)[0] for number in range(most)]
    assert len({*names}) == most and names[0] == "cloud"
    with pytest.raises(UsageError, match="at_once = 0"):
        FleetFile(**{**vars(service.file), "at_once": 0})


def rollout(id: str, *hospitals: str, begun: dict[str, int] | None = None, beside: int = 0, **settings: Any) -> Any:
    wanted = {"method": "rollout", "rounds": 1, "hospitals": hospitals, "settings": {"theta": "0", **settings}}
    return {"id": id, "wanted": wanted, "hospitals": begun or {}, "beside": beside}


def looked_beside(queue: list[Any], *running: Any, **evaluations: int) -> tuple[dict[str, int], dict[str, str]]:
    """Run that begins -> its lane; run that waits -> for what."""
    found = line_up(queue, running, PresentFleet(PRESENT, evaluations=evaluations), 9)
    return {run["id"]: run["beside"] for run, _ in found.begin}, found.waits


def test_rollouts_and_evaluations_go_on_beside_a_training_where_hospitals_have_room() -> None:
    training = row("a", "north", begun={"north": 2})
    r, e, f = rollout("r", "north"), rollout("e", "north", only_judge=True), rollout("f", "north", only_judge=True)
    waits = "{} waits for run a: north is in both"
    assert looked_beside([r], training) == ({}, {"r": waits.format("r")})
    assert looked_beside([r, row("b", "north")], training, north=1) == ({"r": 1}, {"b": waits.format("b")})
    assert looked_beside([e, r], training, north=1) == ({"e": 1}, {"r": "r waits for run e: north is in both"})
    assert looked_beside([e, r], training, north=2) == ({"e": 2, "r": 1}, {})
    assert looked_beside([e, f, r], training, north=2)[0] == {"e": 2, "f": 1}
    both = rollout("both", "north", "south")
    assert looked_beside([both], training, north=1) == ({}, {"both": waits.format("both")})  # south has no room beside
    assert looked_beside([both], training, north=1, south=2) == ({"both": 1}, {})


def test_a_rollout_stays_in_the_lane_in_which_it_began() -> None:
    paused, main = (rollout(id, "north", begun={"north": 2}, beside=n) for id, n in (("p", 1), ("m", 0)))
    assert looked_beside([main, paused], north=2) == ({"m": 0, "p": 1}, {})
    other = rollout("o", "north", begun={"north": 2}, beside=1)
    assert looked_beside([paused], other, north=2)[1] == {"p": "p waits for run o: north is in both"}


# Processes -----------------------------------------------------------------------------------------------------------


def settings_of(tmp_path: Path, id: str) -> Any:
    return tomllib.loads((tmp_path / "service" / "runs" / id / "settings.toml").read_text())


def start_two(make_service: Any) -> tuple[Any, str, str]:
    service = make_service(hospitals={"north": 2, "south": 3})
    a, b = (add_run(service.database, Wanted(hospitals=(name,)), CLASSES, "test") for name in ("north", "south"))
    for id in (a, b):
        until(service, id, lambda row, id=id: rounds(service, id) >= 2)
    return service, a, b


def test_each_of_two_runs_is_paused_resumed_and_stopped_by_itself(make_service: Any, tmp_path: Path) -> None:
    service, a, b = start_two(make_service)
    clients = {settings_of(tmp_path, id)["client"] for id in (a, b)}
    assert clients == {"cloud", "cloud:1"}
    change_run(service.database, a, "pause", "test")
    until(service, a, is_in(runs.PAUSED))
    done = rounds(service, b)
    until(service, b, lambda row: rounds(service, b) > done)
    change_run(service.database, a, "resume", "test")
    done = rounds(service, a)
    until(service, a, lambda row: rounds(service, a) > done)
    change_run(service.database, b, "stop", "test")
    until(service, b, is_in(runs.STOPPED))
    assert find_run(service.database, a)["state"] == runs.RUNNING
    waits = add_run(service.database, Wanted(), CLASSES, "test")
    service.supervisor.look()
    assert service.supervisor.queue.waits[waits] == f"{waits} waits for run {a}: north is in both"
    assert not service.supervisor.waits  # nobody has to do anything


def test_two_runs_go_on_after_a_kill(make_service: Any) -> None:
    service, a, b = start_two(make_service)
    done = {id: rounds(service, id) for id in (a, b)}
    for process in service.supervisor.processes.running.values():
        process.kill()
    service = make_service(hospitals={"north": 2, "south": 3})
    for id in (a, b):
        until(service, id, lambda row, id=id: rounds(service, id) > done[id])
    assert {find_run(service.database, id)["state"] for id in (a, b)} == {runs.RUNNING}


def put_side_by_side(service: Any) -> tuple[str, str]:
    """Two runs that go on, as a service finds them that was started again."""
    a, b = (add_run(service.database, Wanted(hospitals=(name,)), CLASSES, "test") for name in ("north", "south"))
    with service.database.transaction() as t:
        for id, hospital in ((a, "north"), (b, "south")):
            t.execute(table.update().where(table.c.id == id).values(state=runs.RUNNING, hospitals={hospital: 2}))
    return a, b


def test_after_a_restart_with_fewer_certificates_a_run_waits_for_one(make_service: Any) -> None:
    """Two runs went on over TLS, and the settings have no further certificate any more."""
    service = make_service(broker="mqtts://127.0.0.1:1", hospitals={"north": 2, "south": 2})
    a, b = put_side_by_side(service)
    service.supervisor.look()
    [began] = service.supervisor.processes.running
    [other] = {a, b} - {began}
    assert find_run(service.database, other)["state"] == runs.RUNNING
    assert service.supervisor.waits.startswith(f"{other} waits for a certificate")
    change_run(service.database, began, "stop", "test")
    until(service, other, lambda row: other in service.supervisor.processes.running)
    assert not service.supervisor.waits


def test_a_run_that_cannot_be_looked_after_stops_no_other(
    service: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = put_side_by_side(service)
    spawn = service.supervisor.spawn

    def fail(run: Any) -> None:
        if run["id"] == b:
            raise IndexError("a mistake of ours")
        spawn(run)

    monkeypatch.setattr(service.supervisor, "spawn", fail)
    for _ in range(2):
        service.supervisor.look()
    assert [*service.supervisor.processes.running] == [a]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        f"run {b} could not be looked after; it is tried again in 5 s"
    ]


# Hospitals -----------------------------------------------------------------------------------------------------------


def bar(service: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(service.enrolment, "list_barred", lambda: frozenset(names))


def hear_of(service: Any, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    monkeypatch.setattr(service.monitor, "sizes", lambda: sizes)


def test_a_hospital_joins_a_run_leaves_it_and_returns(
    service: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    id = add_run(service.database, Wanted(method="fedavg"), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    hear_of(service, monkeypatch, north=2, south=3)
    until(service, id, lambda row: row["hospitals"] == {"north": 2, "south": 3})
    assert {*settings_of(tmp_path, id)["hospitals"]} == {"north", "south"}
    bar(service, monkeypatch, "south")
    until(service, id, lambda row: row["hospitals"] == {"north": 2})
    assert {*settings_of(tmp_path, id)["hospitals"]} == {"north"}
    bar(service, monkeypatch)
    until(service, id, lambda row: {*row["hospitals"]} == {"north", "south"})
    bar(service, monkeypatch, "south", "north")
    until(service, id, is_in(runs.PAUSED))  # nobody is left
    said = [e["detail"] for e in audit.list_latest(service.database, 20) if e["action"] == "run.hospitals"]
    assert len(said) == 3 and audit.find_break(service.database)[0] is None


def test_a_silent_hospital_stays_and_a_foreign_one_does_not_join(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add_run(service.database, Wanted(method="fedavg", hospitals=("north",)), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    hear_of(service, monkeypatch, south=3)
    other = add_run(service.database, Wanted(method="fedavg"), CLASSES, "test")
    until(service, other, lambda row: rounds(service, other) >= 1)
    assert find_run(service.database, id)["hospitals"] == {"north": 2}
    assert find_run(service.database, other)["hospitals"] == {"south": 3}


def test_a_hospital_that_a_queued_run_has_named_joins_no_run_for_all(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once did, and the run that had named it waited until the one for all had ended."""
    everybody = add_run(service.database, Wanted(method="fedavg"), CLASSES, "test")
    until(service, everybody, lambda row: rounds(service, everybody) >= 1)
    named = add_run(service.database, Wanted(method="fedavg", hospitals=("south",)), CLASSES, "test")
    service.supervisor.look()
    hear_of(service, monkeypatch, north=2, south=3, west=1)
    until(service, named, is_in(runs.RUNNING))
    assert find_run(service.database, named)["hospitals"] == {"south": 3}
    until(service, everybody, lambda row: row["hospitals"] == {"north": 2, "west": 1})
    change_run(service.database, named, "stop", "test")
    until(service, everybody, lambda row: {*row["hospitals"]} == {"north", "south", "west"})


def test_a_method_that_cannot_keeps_the_hospitals_of_its_start(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    privacy = {"clip": 1.0, "epsilon": 8.0, "cohort": 1}
    id = add_run(service.database, Wanted(method="fedavg", privacy=privacy), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    hear_of(service, monkeypatch, north=2, south=3)
    for _ in range(3):
        service.supervisor.look()
    assert find_run(service.database, id)["hospitals"] == {"north": 2}


def test_console_and_command_line_show_both(
    make_service: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, a, b = start_two(make_service)
    third = add_run(service.database, Wanted(), CLASSES, "test")
    service.supervisor.look()
    why = f"{third} waits for run {a}: north is in both; run {b}: south is in both"
    from starlette.testclient import TestClient

    from aggregator.service.client import client
    from aggregator.service.server.app import make_app

    service.is_open = True
    web = TestClient(make_app(service), base_url="http://127.0.0.1")
    overview, page = web.get("/").text, web.get("/runs").text
    assert all(f'href="/runs/{id}"' in overview for id in (a, b)) and "Beside it, at " in overview
    assert why in overview and why in page and "The next run cannot start" not in overview
    monkeypatch.setattr(client.ServiceClient, "ask", lambda self, path: web.get(f"/api/v1{path}").json())
    monkeypatch.setattr(client, "find_service", lambda options: ("", "", ""))
    client.main(["runs", "ls"])
    said = capsys.readouterr().out
    assert said.count(" running ") == 2 and f"  {why}\n" in said
    client.main(["runs", "show", a])
    assert "hospitals: north (2)\n" in capsys.readouterr().out
    web.close()
