"""The end of a run over a real broker: a device that has answered the last evaluation, and has another disk since."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from math import inf
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.datasets import prepare
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.tools.backups.backup import back_up
from edge_sdk.tools.backups.restore import restore
from tests.system.live_nodes import CLASSES, Cloud, Nodes

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {"north": ("north-1", "north-2")}
LOST, LATE = TREE["north"]
ROUNDS, EACH = 3, 12


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


def write(nodes: Nodes, url: str) -> None:
    nodes.directory.mkdir()
    data = prepare("breast-cancer")[0]
    x = np.concatenate([data.x1, data.x2], 1)
    for i, name in enumerate(nodes.devices):
        rows = slice(2 * i * EACH, (2 * i + 1) * EACH), slice((2 * i + 1) * EACH, (2 * i + 2) * EACH)
        path = store_samples(nodes.directory / f"{name}.npz", *(label_samples(x[r], data.y[r], CLASSES) for r in rows))
        nodes.table({"name": name, "hospital": "north", "broker": url, "data": {"samples": path}})
    allow = {"scores_of": 1}
    nodes.table({"name": "north", "aggregator": "cloud", "broker": url, "devices": nodes.devices, "allow": allow})


@pytest.mark.parametrize("has_backup", [True, False])
def test_a_device_that_was_heard_and_lost_its_disk_ends_with_the_models_of_the_run(
    tmp_path: Path, broker: str, has_backup: bool
) -> None:
    """It dies when its hospital has acknowledged its last scores. The backup is of its second round, in which the other
    device is waited for."""
    nodes = Nodes(tmp_path / "nodes", compile_network("mlp", ["--input", "30", "--classes", "2"], 0, print), TREE)
    write(nodes, broker)
    cloud = Cloud(nodes, broker, inf, lambda *_: None, method="ditto", rounds=ROUNDS, settings={"batch": 0})
    folder = nodes.directory / LOST

    def are_dead(*names: str) -> bool:
        return all(nodes.running[name].poll() == -signal.SIGKILL for name in names)

    try:
        nodes.start_all({LOST: [f"heard:{ROUNDS + 1}"], LATE: ["heard:1"]})
        cloud.wait(lambda: are_dead(LATE))
        back_up(folder, tmp_path / "backup")
        nodes.start(LATE)
        cloud.wait(lambda: are_dead(LOST))
        shutil.rmtree(folder)
        if has_backup:
            restore(tmp_path / "backup", folder)
        nodes.start(LOST)
        cloud.wait(lambda: cloud.finished and all(nodes.running[d].poll() == 0 for d in nodes.devices))
    finally:
        nodes.end()
        cloud.end()
    assert cloud.counts == [2] * ROUNDS and cloud.report is not None and cloud.report.sums["devices"] == 2
    lost, late = (kept_models.load(nodes.directory / d / "live.npz") for d in nodes.devices)
    assert lost.finished and sorted(lost.models) == sorted(late.models) == ["global", "personal"]
    assert lost.models["global"].tobytes() == late.models["global"].tobytes()
