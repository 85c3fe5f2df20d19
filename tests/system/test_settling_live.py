"""Settling over a real broker: processes that die while they settle change nothing, to the bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.methods.settling.method import Choice
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.datasets import prepare
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from tests.system.live_nodes import CLASSES, Nodes

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {"south": ("south-1", "south-2"), "west": ("west-1", "west-2")}
ROUNDS, EACH = 3, 15
SETTLE = {"rate": 0.01, "batch": 4, "steps": [0, 10, 20], "local_steps": [20, 40], "local_weights": [0.0, 0.5, 1.0]}


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


def write(nodes: Nodes, url: str) -> None:
    nodes.directory.mkdir()
    data = prepare("breast-cancer")[0]
    x = np.concatenate([data.x1, data.x2], 1)
    for i, name in enumerate(nodes.devices):
        thirds = [slice((3 * i + k) * EACH, (3 * i + k + 1) * EACH) for k in range(3)]
        parts = [label_samples(x[rows], data.y[rows], CLASSES) for rows in thirds]
        path = store_samples(nodes.directory / f"{name}.npz", *parts)
        hospital = name.partition("-")[0]
        nodes.table({"name": name, "hospital": hospital, "broker": url, "data": {"samples": path}})
    for hospital, devices in nodes.tree.items():
        table = {"name": hospital, "aggregator": "cloud", "broker": url, "devices": devices}
        nodes.table(table | {"allow": {"scores_of": 1}})


def play(nodes: Nodes, url: str, deaths: Mapping[str, list[str]]) -> tuple[Choice, dict[str, kept_models.KeptModels]]:
    """What the fleet chose, and what each device has kept."""
    from aggregator.aggregator import Aggregator
    from aggregator.options import HospitalList

    write(nodes, url)
    told: list[Any] = []
    bundle = read_bundle(nodes.bundle).sha256
    run = Run(id="live", seed=3, method="fedslr", rounds=ROUNDS, classes=CLASSES, bundle=bundle, settle=SETTLE)
    sizes = {name: len(devices) for name, devices in nodes.tree.items()}
    given: dict[str, Any] = {"broker": url, "bundle": nodes.bundle, "directory": nodes.directory / "cloud"}
    cloud = Aggregator("cloud", run=run, hospitals=HospitalList(sizes, deadline=inf), **given)
    cloud.on_event = told.append
    thread, left = threading.Thread(target=cloud.run, daemon=True), {name: list(some) for name, some in deaths.items()}
    thread.start()
    try:
        nodes.start_all(left)
        until = time.monotonic() + 120
        while not (cloud.finished.is_set() and all(nodes.running[d].poll() == 0 for d in nodes.devices)):
            nodes.revive(left)
            assert time.monotonic() < until, nodes.logs()
            time.sleep(0.02)
    finally:
        nodes.end()
        cloud.stop()
        thread.join()
    assert not any(left.values()), left
    (choice,) = [m for m in told if isinstance(m, Choice)]
    return choice, {d: kept_models.load(nodes.directory / d / "live.npz") for d in nodes.devices}


@pytest.mark.long
def test_deaths_while_devices_settle_change_nothing(tmp_path: Path, broker: str) -> None:
    """A device makes a call for each round, then one to settle and one for the last evaluation; a hospital three each
    in a round of two devices. So all of these die after the last round, in the middle of something."""
    bundle = compile_network("mlp", ["--input", "30", "--classes", "2"], 0, print)
    calls = ROUNDS
    deaths = {
        "south-1": [f"working:{calls + 1}", "worked:1"],
        "west-2": [f"worked:{calls + 2}"],
        "south": [f"working:{3 * calls + 2}"],
    }
    choice, quiet = play(Nodes(tmp_path / "quiet", bundle, TREE), broker, {})
    again, disturbed = play(Nodes(tmp_path / "disturbed", bundle, TREE), broker, deaths)
    assert choice == again and choice.devices == 4 and choice.samples == 4 * EACH
    for d, kept in quiet.items():
        assert kept.ensemble is not None and kept.ensemble == disturbed[d].ensemble and kept.finished
        assert sorted(kept.models) == ["global", "local", "personal"]
        for name, theta in kept.models.items():
            assert theta.tobytes() == disturbed[d].models[name].tobytes(), (d, name)
        assert kept.scores == disturbed[d].scores
