"""Devices that enrol when a run is over, over a real broker: they predict as the fleet does, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.replay.traces.synth import write_traces
from tests import warm
from tests.delivery.fleet import eventually
from tests.system.live_nodes import Nodes
from tests.system.ward import running

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {"north": ("synth-01", "synth-02")}
FIRST, LATE = TREE["north"], "synth-03"
ROUNDS, LABELLED, BEGAN = 2, 6.0, 1_700_000_000.0
SETTLE = {
    "batch": 0, "steps": [0, 10], "local_steps": [1], "local_weights": [0.75], "trees": 50, "copies": 0,
    "statistics": True, "label_times": 1, "label_every": 1, "label_thresholds": [0.5], "label_precision": 0.2,
}  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("traces")
    write_traces(found, devices=3, seed=1, minutes=3.0)
    return found


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


class Ward(Nodes):
    """A hospital that stays when the run is over, and devices that end then."""

    def __init__(self, directory: Path, traces: Path, url: str) -> None:
        self.classes = load_folder(traces)[0].classes
        signal = ["--rate", "32", "--stride", "32", "--channels", "ax,ay,az"]
        words = ["--input", "3,64", "--classes", str(len(self.classes)), *signal]
        super().__init__(directory, compile_network("features", words, 0, print), TREE)
        directory.mkdir()
        self.traces, self.url = traces, url
        self.write_hospital(FIRST)
        for name in (*FIRST, LATE):
            data = {"trace": traces / f"{name}.csv", "validation": 0.2, "held_out": 0.2, "labelled": LABELLED}
            self.table({"name": name, "hospital": "north", "broker": url, "data": data})

    def write_hospital(self, devices: tuple[str, ...]) -> None:
        table: dict[str, Any] = {"name": "north", "aggregator": "cloud", "broker": self.url, "devices": devices}
        self.table(table | {"enrolled": True, "reports": "names", "allow": {"scores_of": 1}})

    def start(self, name: str, fail: str = "") -> None:
        if name != "north":
            return super().start(name, fail)
        words, log = ["hospital", str(self.directory / "north.toml")], self.directory / "north.log"
        environment = {**os.environ, "AUSCULT_FAIL": fail}
        self.running[name] = warm.server().begin(words, Path.cwd(), (log, log), environment)

    def enrol(self, *names: str) -> None:
        self.write_hospital((*FIRST, *names))
        os.kill(self.running["north"].pid, signal.SIGHUP)

    def wait(self, what: Callable[[], bool]) -> None:
        try:
            eventually(what, 60)
        except AssertionError:
            raise AssertionError(self.logs()) from None

    def kept(self, name: str) -> kept_models.KeptModels:
        return kept_models.load(self.directory / name / "live.npz")


@contextmanager
def whose_run_is_over(ward: Ward, **run: Any) -> Iterator[None]:
    """A fleet that has ended a run in which it labels its own windows and settles; its aggregator is still there."""
    from aggregator.aggregator import Aggregator
    from aggregator.options import HospitalList

    job: dict[str, Any] = {"method": "fedavg", "rounds": ROUNDS, "settings": {"batch": 0}, "settle": SETTLE} | run
    made = Run(id="live", seed=3, classes=ward.classes, bundle=read_bundle(ward.bundle).sha256, **job)
    given: dict[str, Any] = {"broker": ward.url, "bundle": ward.bundle, "directory": ward.directory / "cloud"}
    hospitals = HospitalList({"north": len(FIRST)}, deadline=float("inf"), enrolled=True)
    try:
        with running(Aggregator("cloud", run=made, hospitals=hospitals, **given)) as cloud:
            ward.start_all({})
            ward.wait(lambda: cloud.finished.is_set() and all(ward.running[d].poll() == 0 for d in FIRST))
            yield
    finally:
        ward.end()


def test_a_device_that_enrols_after_the_end_predicts_as_the_fleet_does(
    tmp_path: Path, traces: Path, broker: str
) -> None:
    ward = Ward(tmp_path / "nodes", traces, broker)
    with whose_run_is_over(ward):
        ward.start(LATE)
        ward.enrol(LATE)
        ward.wait(lambda: ward.running[LATE].poll() == 0)
    late, first = ward.kept(LATE), ward.kept(FIRST[0])
    assert late.finished and sorted(late.models) == sorted(first.models) == ["global", "local", "personal"]
    assert late.models["global"].tobytes() == first.models["global"].tobytes()
    assert late.ensemble is not None and first.ensemble is not None and late.ensemble.forest.size


def test_so_it_does_whoever_is_killed_and_hears_it_once(tmp_path: Path, traces: Path, broker: str) -> None:
    """The hospital is started again with the longer list, and dies as it tells the end; so does the device."""
    ward = Ward(tmp_path / "nodes", traces, broker)
    left = {"north": ["worked:1", "committed:1", "published:1"], LATE: ["working:1", "worked:1", "told:1"]}
    with whose_run_is_over(ward):
        ward.kill("north")
        ward.write_hospital((*FIRST, LATE))
        ward.start("north", "working:1")
        ward.start(LATE, "read:1")

        def over() -> bool:
            ward.revive(left)
            return ward.running[LATE].poll() == 0

        ward.wait(over)
    assert left["north"] == left[LATE] == []
    assert ward.kept(LATE).models["global"].tobytes() == ward.kept(FIRST[0]).models["global"].tobytes()
    assert {*ward.kept(LATE).models} == {"global", "local", "personal"}


def test_who_is_removed_hears_nothing_and_is_told_when_it_is_enrolled_again(
    tmp_path: Path, traces: Path, broker: str
) -> None:
    ward = Ward(tmp_path / "nodes", traces, broker)
    with whose_run_is_over(ward):
        ward.start(LATE, "working:2")  # it has joined, and dies as it hears the end
        ward.enrol(LATE)
        ward.wait(lambda: ward.running[LATE].poll() is not None)
        ward.enrol()
        ward.wait(lambda: "removed: synth-03" in ward.logs())
        ward.start(LATE)
        ward.wait(lambda: "synth-03 is a stranger" in ward.logs())
        assert ward.running[LATE].poll() is None and not ward.kept(LATE).models
        ward.enrol(LATE)
        ward.wait(lambda: ward.running[LATE].poll() == 0)
    assert {*ward.kept(LATE).models} == {"global", "local", "personal"}


def test_a_device_without_labels_predicts_with_the_fleets_model_and_has_its_own_once_it_has_some(
    tmp_path: Path, traces: Path, broker: str
) -> None:
    """It looks on at the run: it cannot take part, for want of samples."""
    ward = Ward(tmp_path / "nodes", traces, broker)
    given: dict[str, Any] = {"broker": broker, "bundle": ward.bundle, "directory": ward.directory / LATE}
    training = LocalTraining(recording=Recording(least=1))
    device = Device(LATE, hospital="north", training=training, **given)
    with whose_run_is_over(ward), running(device):
        ward.enrol(LATE)
        ward.wait(device.finished.is_set)
        first = ward.kept(FIRST[0]).models
        assert device.part.working.run == "live" and {*device.part.kept.models} == {"global"}
        assert device.part.kept.models["global"].tobytes() == first["global"].tobytes()
        assert "too few" in device.refusal or "labelled" in device.refusal
        for at, name in enumerate(ward.classes[:3]):
            t = BEGAN + 300 * at + np.arange(200 * 32) / 32
            device.observe(np.stack([np.sin((at + k) * t) for k in (1, 2, 3)], 1), time=float(t[0]))
            device.flush()
            device.label(name, float(t[0]), float(t[-1]))
        ward.wait(lambda: "personal" in device.part.kept.models and device.part.kept.finished)
        assert device.part.kept.models["global"].tobytes() == first["global"].tobytes() and not device.refusal
    device.close()
