"""A rollout goes on, whoever is killed in the middle of it: the service, a hospital, a device that is receiving."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.delivery.fleet import eventually

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("starlette", reason="the service needs its extra")
pytest.importorskip("tomli_w", reason="settings files are written with tomli-w")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.long,
]
BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
DEVICES = ("d1", "d2", "d3")
SMALL = {"largest_chunk": 65536}
PATIENCE = 240.0


class Fleet:
    """A service with a hospital and three devices, each a process.

    Args:
        evaluations: lanes beside the main one, at the hospital and its devices.
    """

    def __init__(self, directory: Path, url: str, evaluations: int = 0):
        from edge_sdk.data.traces.folder import load_folder
        from edge_sdk.replay.planning.toml_files import write_toml

        self.directory, self.running = directory, dict[str, subprocess.Popen[bytes]]()
        write_traces(directory / "traces", devices=3, seed=4, minutes=2.0, overwrite=True)
        classes = load_folder(directory / "traces")[0].classes
        common = {"broker": url, "wire": SMALL}
        service = {"name": "cloud", "directory": "service", "bundles": [BUNDLE], "classes": list(classes)}
        write_toml(
            directory / "service.toml", {**common, **service, "hospitals": {"north": 3}, "listen": "127.0.0.1:0"}
        )
        key = {"trusted_key": "service/trusted.pem", "bundle": BUNDLE, "evaluations": evaluations}
        north = {"name": "north", "aggregator": "cloud", "devices": list(DEVICES), "directory": "north"}
        north["reports"] = "counts"
        write_toml(directory / "north.toml", {**common, **north, **key})
        for name, trace in zip(DEVICES, sorted((directory / "traces").glob("*.csv")), strict=True):
            device = {"name": name, "hospital": "north", "directory": name, "data": {"trace": trace, "held_out": 0.3}}
            write_toml(directory / f"{name}.toml", {**common, **device, **key})

    def start(self, name: str, fail: str = "") -> None:
        tier = {"service": "serve", "north": "hospital"}.get(name, "device")
        environment = {**os.environ, "AUSCULT_FAIL": fail, "OMP_NUM_THREADS": "1"}
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", tier, str(self.directory / f"{name}.toml")]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def start_service(self) -> None:
        (self.directory / "service" / "console.json").unlink(missing_ok=True)
        self.start("service")
        eventually((self.directory / "service" / "console.json").exists, PATIENCE)

    def ask(self, path: str, body: Any = None) -> Any:
        from aggregator.service.application.service import read_connection
        from aggregator.service.client.client import ServiceClient

        return ServiceClient(*read_connection(self.directory / "service")).ask(path, body)

    def roll_out(self) -> str:
        [bundle] = self.ask("/models")["models"]
        return str(self.ask(f"/models/{bundle['sha256']}/rollout", {"to": 1.0, "judged": 1})["id"])

    def train(self) -> str:
        """A training that goes on as long as somebody looks."""
        wanted = {"method": "fedavg", "rounds": 100_000, "settings": {"local_epochs": 1}, "id": "train"}
        id = str(self.ask("/runs", wanted)["id"])
        eventually(lambda: self.rounds(id) >= 2, PATIENCE)
        return id

    def rounds(self, id: str) -> int:
        return len(self.played(id))

    def played(self, id: str) -> list[int]:
        """Rounds that the aggregator of a run was told of."""
        path = self.directory / "service" / "runs" / id / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["round"] for line in lines if line["kind"] == "round"]

    def check_training(self, id: str) -> None:
        """It goes on, and no round was lost or played twice."""
        done = self.rounds(id)
        eventually(lambda: self.rounds(id) > done + 2, PATIENCE)
        assert self.ask(f"/runs/{id}")["state"] == "running"
        played = self.played(id)
        assert played == [*range(1, len(played) + 1)], self.logs()

    def has_begun(self, id: str) -> bool:
        """A hospital has taken the rollout up."""
        folder = self.directory / "north" / "lane-1"
        return (folder / f"{id}.db").exists()

    def dies(self, name: str) -> None:
        assert self.running[name].wait(PATIENCE) == -signal.SIGKILL, self.logs()

    def stands_still(self, name: str) -> bool:
        return os.waitid(os.P_PID, self.running[name].pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def is_over(self, id: str) -> bool:
        return bool(self.ask(f"/rollouts/{id}")["state"] not in ("queued", "running"))

    def check_kept(self, id: str) -> None:
        """Each device has the version, once, and knows that it stays."""
        eventually(lambda: self.is_over(id), PATIENCE)
        found = self.ask(f"/rollouts/{id}")
        assert found["outcome"] == "kept" and found["having"] == 3 and found["failed"] == 0, (found, self.logs())
        for name in DEVICES:
            eventually(lambda name=name: self.note(name)["confirmed"], PATIENCE)  # type: ignore[misc]
            assert (self.directory / name / "working").read_text() == f"{id}\n"

    def note(self, name: str) -> dict[str, Any]:
        [note] = json.loads((self.directory / name / "rollout.json").read_text())
        return dict(note)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.rglob("*.log")))


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Mosquitto() as broker:
        fleet = Fleet(tmp_path, broker.url, getattr(request, "param", 0))
        try:
            fleet.start_service()
            yield fleet
        finally:
            for process in fleet.running.values():
                process.kill()
                process.wait()


def test_the_service_is_killed_in_the_middle_of_a_rollout(fleet: Fleet) -> None:
    fleet.start("north")
    for name in DEVICES:
        fleet.start(name, "working:2:stop" if name == "d2" else "")
    id = fleet.roll_out()
    eventually(lambda: fleet.stands_still("d2"), PATIENCE)  # it has the offer, and has not answered
    fleet.running["service"].kill()
    fleet.running["service"].wait()
    fleet.start_service()
    fleet.running["d2"].send_signal(signal.SIGCONT)
    fleet.check_kept(id)


@pytest.mark.parametrize("point", ["chunk:3", "assembled:1", "working:2", "worked:2", "told:1"])
def test_a_device_is_killed_while_it_receives_tries_and_takes_a_version(fleet: Fleet, point: str) -> None:
    fleet.start("north")
    for name in DEVICES:
        fleet.start(name, point if name == "d2" else "")
    id = fleet.roll_out()
    fleet.dies("d2")
    fleet.start("d2")
    fleet.check_kept(id)


@pytest.mark.parametrize("point", ["chunk:3", "working:2", "saved:4"])
def test_a_hospital_is_killed_while_it_passes_a_version_on(fleet: Fleet, point: str) -> None:
    fleet.start("north", point)
    for name in DEVICES:
        fleet.start(name)
    id = fleet.roll_out()
    fleet.dies("north")
    fleet.start("north")
    fleet.check_kept(id)


@pytest.mark.parametrize("fleet", [1], indirect=True)
@pytest.mark.parametrize("victim", ["service", "north", "d2"])
def test_whoever_is_killed_while_a_rollout_goes_on_beside_a_training_both_go_on(fleet: Fleet, victim: str) -> None:
    fleet.start("north")
    for name in DEVICES:
        fleet.start(name)
    training = fleet.train()
    fleet.running["d1"].send_signal(signal.SIGSTOP)  # so that the rollout cannot end before the kill
    id = fleet.roll_out()
    eventually(lambda: fleet.ask(f"/rollouts/{id}")["beside"] and fleet.has_begun(id), PATIENCE)
    fleet.running[victim].kill()
    fleet.running[victim].wait()
    fleet.start_service() if victim == "service" else fleet.start(victim)
    fleet.running["d1"].send_signal(signal.SIGCONT)
    fleet.check_kept(id)
    fleet.check_training(training)


@pytest.mark.parametrize("fleet", [1], indirect=True)
@pytest.mark.parametrize("point", ["working:6", "worked:6", "saved:8"])
def test_a_device_dies_at_a_step_while_it_takes_part_in_both(fleet: Fleet, point: str) -> None:
    """Steps are counted over both lanes, so it may be the training's or the rollout's: both have to go on."""
    fleet.start("north")
    for name in DEVICES:
        fleet.start(name)
    training = fleet.train()
    fleet.running["d2"].terminate()
    fleet.running["d2"].wait(PATIENCE)
    id = fleet.roll_out()
    fleet.start("d2", point)
    fleet.dies("d2")
    fleet.start("d2")
    fleet.check_kept(id)
    fleet.check_training(training)
