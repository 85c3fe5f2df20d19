"""Devices that label their own windows, over a real broker: who dies meanwhile changes nothing, to the bit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.contract.run import Run
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.models import kept_models
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.replay.traces.synth import write_traces
from tests.system.live_nodes import Nodes
from tests.system.test_replay_of_data import auscult

pytest.importorskip("torch", reason="the aggregator needs torch")
needs_broker = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {"south": ("synth-01", "synth-02"), "west": ("synth-03", "synth-04")}
ROUNDS, LABELLED = 3, 6.0
SETTLE = {
    "batch": 0, "steps": [0, 10], "local_steps": [1], "local_weights": [0.75], "trees": 50, "copies": 0,
    "statistics": True, "label_times": 1, "label_every": 1, "label_thresholds": [0.5], "label_precision": 0.2,
}  # fmt: skip
"""A local network of one step is no match for a forest, so that is chosen."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("traces")
    write_traces(found, devices=4, seed=1, minutes=3.0)
    return found


@pytest.fixture(scope="module")
def bundle(traces: Path) -> Path:
    classes = len(load_folder(traces)[0].classes)
    return compile_network("features", ["--input", "3,64", "--classes", str(classes)], 0, print)


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


def write(nodes: Nodes, traces: Path, url: str) -> None:
    nodes.directory.mkdir()
    for hospital, devices in nodes.tree.items():
        table = {"name": hospital, "aggregator": "cloud", "broker": url, "devices": devices}
        nodes.table(table | {"allow": {"scores_of": 1}})
        for name in devices:
            data = {"trace": traces / f"{name}.csv", "validation": 0.2, "held_out": 0.2, "labelled": LABELLED}
            nodes.table({"name": name, "hospital": hospital, "broker": url, "data": data})


def play(nodes: Nodes, traces: Path, url: str, deaths: Mapping[str, list[str]]) -> tuple[list[Any], dict[str, Any]]:
    """What the fleet chose, and what each device has kept."""
    from aggregator.aggregator import Aggregator
    from aggregator.options import HospitalList

    write(nodes, traces, url)
    told: list[Any] = []
    run = Run(
        id="live", seed=3, method="fedavg", settings={"batch": 0}, rounds=ROUNDS, settle=SETTLE,
        classes=load_folder(traces)[0].classes, bundle=read_bundle(nodes.bundle).sha256,
        augment={"noise": 0.1},
    )  # fmt: skip
    sizes = {name: len(devices) for name, devices in nodes.tree.items()}
    given: dict[str, Any] = {"broker": url, "bundle": nodes.bundle, "directory": nodes.directory / "cloud"}
    cloud = Aggregator("cloud", run=run, hospitals=HospitalList(sizes, deadline=inf), **given)
    cloud.on_event = told.append
    thread, left = threading.Thread(target=cloud.run, daemon=True), {name: list(some) for name, some in deaths.items()}
    thread.start()
    try:
        nodes.start_all(left)
        until = time.monotonic() + 180
        while not (cloud.finished.is_set() and all(nodes.running[d].poll() == 0 for d in nodes.devices)):
            nodes.revive(left)
            assert time.monotonic() < until, nodes.logs()
            time.sleep(0.02)
    finally:
        nodes.end()
        cloud.stop()
        thread.join()
    assert not any(left.values()), left
    chosen = [m for m in told if isinstance(m, (LabelChoice, Choice))]
    return chosen, {d: kept_models.load(nodes.directory / d / "live.npz") for d in nodes.devices}


def content_of(found: Ensemble | None) -> tuple[Any, ...]:
    assert found is not None
    return found.weight, found.classes, found.forest.tobytes()


@needs_broker
@pytest.mark.long
def test_deaths_while_devices_label_and_settle_change_nothing(
    tmp_path: Path, traces: Path, bundle: Path, broker: str
) -> None:
    """Calls of a device: its features, two rounds, what it would label, its labels with the third round, settling, the
    last evaluation."""
    deaths = {
        "synth-01": ["working:5", "worked:1"],
        "synth-02": ["worked:4", "working:2"],
        "synth-03": ["worked:1", "working:5"],
        "synth-04": ["worked:7"],
        "south": ["working:14"],
    }
    choices, quiet = play(Nodes(tmp_path / "quiet", bundle, TREE), traces, broker, {})
    again, disturbed = play(Nodes(tmp_path / "disturbed", bundle, TREE), traces, broker, deaths)
    assert choices == again and [type(m) for m in choices] == [LabelChoice, Choice]
    assert choices[0].threshold and choices[0].devices == choices[1].devices == 4
    for d, kept in quiet.items():
        assert kept.ensemble is not None and kept.ensemble.forest.size and kept.finished
        assert content_of(kept.ensemble) == content_of(disturbed[d].ensemble)
        assert sorted(kept.models) == sorted(disturbed[d].models) == ["global", "local", "personal"]
        for name, theta in kept.models.items():
            assert theta.tobytes() == disturbed[d].models[name].tobytes(), (d, name)
        assert kept.scores == disturbed[d].scores


@pytest.mark.long
def test_a_newcomer_labels_and_has_a_forest_when_the_run_is_over(tmp_path: Path, traces: Path, bundle: Path) -> None:
    pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")
    settle = [word for key, value in SETTLE.items() for word in ("--settle", f"{key}={json.dumps(value)}")]
    run = ("replay", traces, "--bundle", bundle, "--hospitals", 2, "--rounds", ROUNDS, "--method", "fedavg")
    more = ("--labelled", LABELLED, "--no-local-only", "--no-neighbours", "--bits", 4, "--set", "batch=0")
    done = auscult(*run, *more, *settle, "--newcomers", "synth-03", "--out", tmp_path / "out", "--json")
    found = json.loads(done.stdout)
    kinds = [line["kind"] for line in found["curve"]]
    assert kinds.count("self-labels") == kinds.count("settling") == 1
    (device,) = [d for d in found["devices"] if d["newcomer"]]
    assert device["device"] == "synth-03" and device["metrics"]["personalised"]["accuracy"] > 0.5
    (path,) = (tmp_path / "out" / "devices" / "synth-03").glob("replay-*.npz")
    kept = kept_models.load(path)
    assert kept.ensemble is not None and kept.ensemble.forest.size
