"""A fleet that lives: nodes that stay up for one run after the other, a device that joins, a service that is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.delivery.fleet import eventually
from tests.system.test_three_terminals import ROUNDS, Terminals, written
from tests.system.test_waiting_services import edit, said

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("starlette", reason="the service needs its extra")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.long,
]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Terminals]:
    """Settings files of an aggregator, a hospital and two devices, and traces for a third one."""
    write_traces(tmp_path / "more", devices=3, seed=4, minutes=2.0, overwrite=True)
    (tmp_path / "traces").mkdir()
    for name in ("synth-01.csv", "synth-02.csv"):
        shutil.copy(tmp_path / "more" / name, tmp_path / "traces")
    with Mosquitto() as running:
        made = written(tmp_path / "run", tmp_path / "traces", running.url, running.url)
        try:
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


def serve_on(made: Terminals, name: str) -> None:
    """Start a node that stays when its run is over."""
    tier = "hospital" if name == "north" else "device"
    with (made.directory / f"{name}.log").open("ab") as log:
        command = [sys.executable, "-m", "edge_sdk.cli", tier, str(made.directory / f"{name}.toml")]
        made.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def test_a_device_joins_between_two_runs_and_nothing_is_started_again(made: Terminals) -> None:
    """It once took two files and two restarts."""
    for name in ("north", "d1", "d2"):
        serve_on(made, name)
    made.start("cloud")
    assert made.running.pop("cloud").wait(240) == 0
    third = (made.directory / "d1.toml").read_text().replace("d1", "d3")
    third = third.replace("traces/synth-01", "more/synth-03")
    (made.directory / "d3.toml").write_text(third)
    serve_on(made, "d3")
    eventually(lambda: "d3 is a stranger" in said(made, "north"), 60)
    north = (made.directory / "north.toml").read_text()
    (made.directory / "north.toml").write_text(north.replace('"d2",', '"d2", "d3",'))
    made.running["north"].send_signal(signal.SIGHUP)
    eventually(lambda: "3 devices from now on (new: d3)" in said(made, "north"), 60)
    edit(made, "cloud", ("north = 2", "north = 3"), ('id = "by-hand"', 'id = "second"'))
    made.start("cloud")
    assert made.running.pop("cloud").wait(240) == 0
    lines = [json.loads(line) for line in (made.directory / "cloud" / "metrics.jsonl").read_text().splitlines()]
    counted = {
        run: [x["devices"] for x in lines if x["kind"] == "round" and x["run"] == run] for run in ("by-hand", "second")
    }
    assert counted == {"by-hand": [2] * ROUNDS, "second": [3] * ROUNDS}
    earlier = made.directory / "cloud" / "earlier" / "by-hand"
    assert json.loads((earlier / "result.json").read_text())["run"] == "by-hand" and (earlier / "model.npz").exists()


def test_a_demonstration_is_killed_and_goes_on(tmp_path: Path) -> None:
    """As somebody would use it who looks at it first, by its commands."""
    environment = {**os.environ, "AUSCULT_SERVICE": str(tmp_path / "demo" / "service")}

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            place = ["--directory", str(tmp_path / "demo"), "--listen", "127.0.0.1:0"]
            command = [sys.executable, "-m", "edge_sdk.cli", "serve", "--demo", *place]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ask(*words: str) -> object:
        command = [sys.executable, "-m", "edge_sdk.cli", *words, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rounds(id: str) -> int:
        run = ask("runs", "show", id)
        return int(run["round"]) if isinstance(run, dict) else 0

    process = start()
    try:
        eventually(lambda: rounds("fedslr-1") >= 2, 240)
        ask("runs", "stop", "ditto-1")
        ask("runs", "start", "--method", "fedavg", "--rounds", "3", "--id", "mine")
        ask("runs", "first", "mine")
        process.kill()
        process.wait()
        process = start()
        reached = rounds("fedslr-1")
        eventually(lambda: rounds("fedslr-1") > max(2, reached), 240)
        ask("runs", "stop", "fedslr-1")
        eventually(lambda: dict(ask("runs", "show", "mine") or {}).get("state") == "finished", 240)  # type: ignore[call-overload]
        models = ask("models", "ls")
        assert isinstance(models, list)
        [mine] = [m for m in models if m["run"] == "mine"]
        assert dict(ask("models", "promote", mine["sha256"]) or {})["promoted"]  # type: ignore[call-overload]
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
