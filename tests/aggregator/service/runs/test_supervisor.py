"""The processes of runs: started, paused, resumed, stopped, found again after the service was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.service.database import audit
from aggregator.service.models import promotion
from aggregator.service.runs import runs
from aggregator.service.runs.runs import Wanted, add_run, change_run, find_run
from edge_sdk.replay.nodes.processes import NodeProcesses
from tests.aggregator.service.conftest import CLASSES
from tests.delivery.fleet import eventually

AGGREGATOR = """
import json, os, pathlib, signal, sys, time
parent = os.getppid()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
directory = pathlib.Path(sys.argv[1]).parent
metrics = directory / "metrics.jsonl"
done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
while os.getppid() == parent:
    with metrics.open("a") as file:
        done += 1
        round = {"number": done, "kind": "round", "round": done, "devices": 2, "sums": {}, "time": time.time()}
        file.write(json.dumps(round) + "\\n")
        if (directory / "finish").exists():
            (directory / "model.npz").write_bytes((directory / "finish").read_bytes())
            file.write(json.dumps({"number": done + 1, "kind": "finished", "round": done, "time": 0}) + "\\n")
            break
    time.sleep(0.02)
"""
"""Stands for `auscult aggregator`: it makes rounds until it is asked to finish, and goes on where it was."""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(processes: NodeProcesses, name: str, arguments: list[Any]) -> None:
        processes.logs.mkdir(parents=True, exist_ok=True)
        with (processes.logs / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-c", AGGREGATOR, str(arguments[-1])]
            processes.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    monkeypatch.setattr(NodeProcesses, "start", start)


def until(service: Any, id: str, what: Callable[[Any], bool]) -> None:
    """Look after the runs until a run's row is as it should be."""

    def look() -> bool:
        service.supervisor.look()
        return what(find_run(service.database, id))

    eventually(look, 60)


def is_in(state: str) -> Callable[[Any], bool]:
    return lambda row: row["state"] == state


def rounds(service: Any, id: str) -> int:
    lines = service.supervisor.lines_of(id)
    lines.read_on()
    return int(lines.round)


def test_a_run_is_paused_and_goes_on_and_the_next_one_runs_meanwhile(service: Any) -> None:
    first, second = (add_run(service.database, Wanted(), CLASSES, "test") for _ in range(2))
    until(service, first, lambda row: rounds(service, first) >= 2)
    assert find_run(service.database, second)["state"] == runs.QUEUED
    change_run(service.database, first, "pause", "test")
    until(service, first, is_in(runs.PAUSED))
    done = rounds(service, first)
    until(service, second, lambda row: rounds(service, second) >= 2)
    change_run(service.database, second, "stop", "test")
    until(service, second, is_in(runs.STOPPED))
    change_run(service.database, first, "resume", "test")
    until(service, first, lambda row: rounds(service, first) > done)


def test_a_finished_run_leaves_its_model_in_the_registry(service: Any, tmp_path: Path) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    np.savez(tmp_path / "model.npz", weight=np.zeros(3))
    (tmp_path / "service" / "runs" / id / "finish").write_bytes((tmp_path / "model.npz").read_bytes())
    until(service, id, is_in(runs.FINISHED))
    [model] = service.registry.list_all("global")
    assert model["run"] == id and model["facts"]["rounds"] == rounds(service, id)
    assert model["bundle"] == service.registry.find()["sha256"]
    assert service.registry.path_of(model["sha256"]).read_bytes() == (tmp_path / "model.npz").read_bytes()
    promotion.promote(service.registry, model["sha256"][:8], "test")
    assert service.registry.promoted()["sha256"] == model["sha256"]


def test_a_run_whose_process_dies_has_failed_and_says_what_it_said(service: Any) -> None:
    id = add_run(service.database, Wanted(), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    (service.supervisor.processes.logs / f"{id}.log").write_text("the disk is full\n")
    service.supervisor.processes.running[id].kill()
    until(service, id, is_in(runs.FAILED))
    said = "its process was ended by SIGKILL, as when memory runs out; it can be resumed"
    assert find_run(service.database, id)["why"].splitlines()[0] == said  # the line that the overview shows
    assert "the disk is full" in find_run(service.database, id)["why"]


@pytest.mark.parametrize("wish", ["", "pause", "stop"])
def test_a_service_that_was_killed_goes_on_with_what_was_wanted(make_service: Any, wish: str) -> None:
    """A kill at any moment leaves a row of the table, and perhaps a wish that nobody has fulfilled."""
    service = make_service()
    id = add_run(service.database, Wanted(), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 2)
    if wish:
        change_run(service.database, id, wish, "test")
    service.supervisor.processes.running[id].kill()  # a process ends with the service that has started it
    done, service = rounds(service, id), make_service()
    if wish:
        until(service, id, is_in(runs.PAUSED if wish == "pause" else runs.STOPPED))
        assert not service.supervisor.processes.running
    else:
        until(service, id, lambda row: rounds(service, id) > done)
    assert audit.find_break(service.database)[0] is None


def test_a_run_waits_for_a_hospital_of_which_nothing_is_known(service: Any) -> None:
    add_run(service.database, Wanted(hospitals=("north", "east")), CLASSES, "test")
    service.supervisor.look()
    assert service.supervisor.waits == "fedslr-1 waits for east, of which nothing has been heard yet"


def test_a_run_goes_on_with_the_settings_that_it_began_with(make_service: Any, tmp_path: Path) -> None:
    service = make_service()
    id = add_run(service.database, Wanted(settings={"eta_l": 0.05}), CLASSES, "test")
    until(service, id, lambda row: rounds(service, id) >= 1)
    path = tmp_path / "service" / "runs" / id / "settings.toml"
    path.write_text(path.read_text().replace("eta_l = 0.05", "eta_l = 0.04"))  # as another version recommends it
    service.supervisor.processes.running[id].kill()
    service = make_service(broker="mqtt://127.0.0.1:2")
    until(service, id, lambda row: bool(service.supervisor.processes.running))
    assert "eta_l = 0.04" in path.read_text() and "mqtt://127.0.0.1:2" in path.read_text()


def test_lines_that_are_being_written_wait_for_the_next_time(service: Any, tmp_path: Path) -> None:
    lines = service.supervisor.lines_of("fedslr-1")
    path = tmp_path / "service" / "runs" / "fedslr-1" / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    whole = json.dumps({"kind": "round", "round": 1, "devices": 1, "sums": {}, "time": 0.0}) + "\n"
    path.write_text(whole + whole[:20])
    lines.read_on()
    assert lines.round == 1 and len(lines.lines) == 1
    path.write_text(whole + "damaged\n" + whole.replace('"round": 1', '"round": 2'))
    lines.read_on()
    assert lines.round == 2


def test_a_run_whose_settings_are_damaged_has_failed_and_says_so(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut that left an empty file it was tried again every five seconds, for ever, and was "running"."""
    synced, sync = set[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: [sync(number), synced.add(os.fstat(number).st_ino)])
    id = add_run(service.database, Wanted(), CLASSES, "ada")
    until(service, id, is_in(runs.RUNNING))
    service.supervisor.look()
    path = service.file.directory / "runs" / id / "settings.toml"
    assert path.stat().st_ino in synced
    change_run(service.database, id, "pause", "ada")
    until(service, id, is_in(runs.PAUSED))
    path.write_bytes(b"")
    change_run(service.database, id, "resume", "ada")
    until(service, id, is_in(runs.FAILED))
    assert "settings.toml: is damaged ('run'); put it back" in find_run(service.database, id)["why"]
