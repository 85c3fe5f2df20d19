"""Training over several nights: a device stops in the middle of a round, dies, goes on, and comes to the same bits."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.run import Run
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.nodes.device.pace import PROGRESS
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.delivery.live import QUICK, Live
from tests.delivery.nodes import make_runtime
from tests.nodes.device.test_pace import lay_battery
from tests.system.night_device import BUNDLE, CLASSES, make_device

ROUNDS, STEPS = 2, 2 * 2 * 4  # rounds of two epochs of four mini-batches
SETTINGS = {"batch": 6, "local_epochs": 2}
Start = Callable[[int], subprocess.Popen[bytes]]


class Cloud:
    """An aggregator and a hospital in this process.

    Attributes:
        models: as the aggregator has them after each round.
    """

    def __init__(self, directory: Path, broker: str) -> None:
        self.model, self.directory = Model(BUNDLE), directory
        run = Run(
            id="r", method="fedavg", rounds=ROUNDS, seed=3, settings=SETTINGS, classes=CLASSES, bundle=self.model.sha256
        )
        given: dict[str, Any] = {"directory": directory / "cloud", "broker": broker, "run": run} | QUICK
        self.top = make_runtime("cloud", children=("north",), assemble=self.assemble, **given)
        self.hospital = Hospital(
            "north", aggregator="cloud", broker=broker, bundle=BUNDLE, directory=directory / "north", devices=("watch",)
        )

    def assemble(self, run: Run) -> Any:
        env = make_env(run, self.model.layout, self.model.theta0, sizes={"north": 1})
        return make_assembly(run, "aggregator", env)

    def theta(self) -> Any:
        assert self.top.node is not None
        return lowrank.unpack(self.model.layout, self.top.node.record.state.inner.model)

    def __enter__(self) -> Cloud:
        self.stack = ExitStack()
        for node in (self.top, self.hospital.runtime):
            self.stack.enter_context(Live(node))
        return self

    def __exit__(self, *_: Any) -> None:
        self.stack.close()


@pytest.fixture
def start(tmp_path: Path, quick: LocalBroker) -> Iterator[Start]:
    """Starts the device's process, whose battery is empty after so many steps; ends what is left at the end."""
    made: list[subprocess.Popen[bytes]] = []

    def start(steps: int) -> subprocess.Popen[bytes]:
        words = [tmp_path, quick.url, lay_battery(tmp_path / "root", 90), steps]
        with (tmp_path / "watch.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.system.night_device", *map(str, words)]
            made.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


def test_a_round_over_several_nights_with_a_kill_in_each(
    tmp_path: Path,
    quick: LocalBroker,
    start: Callable[[int], subprocess.Popen[bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log, stops = tmp_path / "watch.log", 0
    with Cloud(tmp_path, quick.url) as cloud:
        for night in (3, 6):
            process, stops = start(night), stops + 1
            eventually(lambda stops=stops: log.exists() and log.read_text().count("training stops") == stops, 60)  # type: ignore[misc]
            eventually(lambda: cloud.hospital.runtime.presence.willingness.get("watch") is not None, 60)
            process.kill()
            process.wait()
        process = start(0)
        eventually(lambda: process.poll() == 0, 60)
        nights = cloud.theta()
    assert "watch is not willing to train now: battery 18 % < 3" in caplog.text
    assert "training stops after 3 steps" in log.read_text()
    assert (tmp_path / "steps").stat().st_size == STEPS  # none was made twice
    assert not (tmp_path / "watch" / PROGRESS).exists()  # the run is over
    with Cloud(tmp_path / "plain", quick.url) as cloud:
        device = make_device(tmp_path / "plain", quick.url)
        with Live(device.runtime):
            eventually(device.finished.is_set, 60)
            np.testing.assert_array_equal(nights, cloud.theta())
