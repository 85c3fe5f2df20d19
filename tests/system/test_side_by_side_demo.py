"""Two runs side by side in a demonstration whose service is killed, and a hospital that joins, leaves and returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("starlette", reason="the service needs its extra")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.long,
]
CLI = [sys.executable, "-m", "edge_sdk.cli"]
PATIENCE = 300.0


class Served:
    """`auscult serve --demo`, its command line, and nodes beside it."""

    def __init__(self, base: Path):
        self.base, self.nodes = base, list[subprocess.Popen[bytes]]()
        self.environment = {**os.environ, "AUSCULT_SERVICE": str(base / "demo" / "service")}
        self.start()

    def start(self) -> None:
        place = ["--directory", str(self.base / "demo"), "--listen", "127.0.0.1:0"]
        self.process = self.spawn("log", "serve", "--demo", *place)

    def spawn(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.base / log).open("ab") as file:
            return subprocess.Popen([*CLI, *words], stdout=file, stderr=subprocess.STDOUT)

    def ask(self, *words: str) -> Any:
        """What a command says as JSON; None: it was refused, or nobody answers."""
        command = [*CLI, *words, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

    def lines(self, run: str) -> list[Any]:
        """The rounds of a run so far."""
        path = self.base / "demo" / "service" / "runs" / run / "metrics.jsonl"
        found = (
            [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")]
            if path.exists()
            else []
        )
        return [line for line in found if line["kind"] == "round"]

    def goes_on(self, run: str) -> None:
        before = len(self.lines(run))
        eventually(lambda: len(self.lines(run)) >= before + 2, PATIENCE)

    def end(self) -> None:
        for process in (*self.nodes, self.process):
            process.kill()
            process.wait()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    try:
        eventually(lambda: made.ask("runs", "ls"), PATIENCE)
        made.ask("runs", "stop", "fedslr-1", "fedavg-1", "ditto-1")
        yield made
        made.process.terminate()
        assert made.process.wait(60) == 0
    finally:
        made.end()


def start_run(served: Served, id: str, *hospitals: str) -> None:
    about = ["--hospitals", *hospitals] if hospitals else []
    begun = ["runs", "start", "--method", "fedavg", "--rounds", "5000", "--id", id, *about]
    assert eventually(lambda: served.ask(*begun), 60)["id"] == id


def test_two_runs_go_on_beside_each_other_and_after_a_kill(served: Served) -> None:
    start_run(served, "a", "north")
    start_run(served, "b", "south")
    start_run(served, "c", "north", "south")
    for id in "ab":
        served.goes_on(id)
    assert served.ask("runs", "show", "c")["waits"] == ("c waits for run a: north is in both; run b: south is in both")
    served.process.kill()
    served.process.wait()
    served.start()
    for id in "ab":
        served.goes_on(id)
    eventually(lambda: served.ask("runs", "pause", "a"), 60)
    eventually(lambda: served.ask("runs", "show", "a")["state"] == "paused", PATIENCE)
    served.goes_on("b")
    served.ask("runs", "resume", "a")
    served.ask("runs", "stop", "c")  # or it would be first
    served.goes_on("a")
    for id in "ab":
        assert [line["round"] for line in served.lines(id)] == list(range(1, len(served.lines(id)) + 1))
        assert {line["devices"] for line in served.lines(id)} <= {1, 2, 3}


def enrol(served: Served, name: str, *about: str, hospital: str = "") -> Path:
    """Enrol a node with a token that needs no approval, and return its settings file."""
    token = served.ask("fleet", "token", "--approved", *(["--hospital", hospital] if hospital else []))["token"]
    url = json.loads((served.base / "demo" / "service" / "console.json").read_text())["url"]
    folder = served.base / name
    command = [*CLI, "enrol", name, "--token", token, "--at", url, "--folder", str(folder), *about]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.toml"


def test_a_hospital_joins_a_run_is_suspended_and_returns(served: Served) -> None:
    write_traces(served.base / "own", devices=1, seed=5, minutes=4.0, overwrite=True)
    start_run(served, "all")
    served.goes_on("all")
    assert {line["devices"] for line in served.lines("all")} == {6}
    served.nodes.append(served.spawn("west.log", "hospital", str(enrol(served, "west"))))
    watch = enrol(served, "watch", "--trace", str(served.base / "own" / "synth-01.csv"), hospital="west")
    served.nodes.append(served.spawn("watch.log", "device", str(watch)))
    eventually(lambda: served.lines("all")[-1]["devices"] == 7, PATIENCE)
    served.ask("fleet", "suspend", "west")
    eventually(lambda: served.lines("all")[-1]["devices"] == 6, PATIENCE)
    assert "west" not in served.ask("runs", "show", "all")["hospitals"]
    served.ask("fleet", "approve", "west")
    eventually(lambda: served.lines("all")[-1]["devices"] == 7, PATIENCE)
    rounds = [line["round"] for line in served.lines("all")]
    assert rounds == list(range(1, len(rounds) + 1))
