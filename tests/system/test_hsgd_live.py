"""HSGD over a real broker: nodes that die in the middle of a round, links that are cut, who is away for a while.

MQTT runs over TCP, which loses no packets; what 15 % loss is on a datagram link is here a connection that is reset
after every few kilobytes, again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from edge_sdk.data.patients import Patients, store_patients
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.kernels import split as parties
from edge_sdk.replay.datasets import prepare
from edge_sdk.replay.datasets.table import Vertical
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from tests.system.live_nodes import CLASSES, Cloud, Nodes

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "split-breast-cancer.bundle"
TREE = {"north": ("a", "b"), "south": ("c", "d")}
HERE = {"north": ("a",), "south": ("c", "d")}
EACH = 10


def held(train: Vertical) -> dict[str, Vertical]:
    """Device -> its samples, of which its hospital has the other half."""
    names = [device for devices in TREE.values() for device in devices]
    return {name: train.rows(np.arange(i * EACH, (i + 1) * EACH)) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def data() -> dict[str, Vertical]:
    return held(prepare("breast-cancer")[0])


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


def write(nodes: Nodes, data: Mapping[str, Vertical], brokers: Mapping[str, str], **more: Any) -> None:
    """`brokers`: node -> its way to the broker. `more`: hospital -> other settings."""
    nodes.directory.mkdir(exist_ok=True)
    for hospital, devices in TREE.items():
        for name in devices:
            mine = data[name]
            nobody = label_samples(mine.x2[:0], mine.y[:0], CLASSES)
            path = store_samples(nodes.directory / f"{name}.npz", label_samples(mine.x2, mine.y, CLASSES), nobody)
            nodes.table({"name": name, "hospital": hospital, "broker": brokers[name], "data": {"samples": path}})
        x1, y = (np.concatenate([getattr(data[d], key) for d in devices]) for key in ("x1", "y"))
        whose = tuple(d for d in devices for _ in range(EACH))
        path = store_patients(
            nodes.directory / f"{hospital}.npz", Patients(label_samples(x1, y, CLASSES), whose, x1[:0], ())
        )
        table = {"name": hospital, "aggregator": "cloud", "broker": brokers[hospital], "devices": devices}
        nodes.table(table | {"data": {"samples": path}, **more.get(hospital, {})})


def cloud_of(nodes: Nodes, broker: str, rounds: int, deadline: float, **settings: Any) -> Cloud:
    told = {"rounds": rounds, "deadline": deadline / 1.2, "settings": settings}
    return Cloud(nodes, broker, deadline, lambda before, after, env: after.theta, method="hsgd", **told)


def models_of(directory: Path, url: str, data: Mapping[str, Vertical], deaths: Mapping[str, list[str]]) -> list[Any]:
    nodes = Nodes(directory, BUNDLE, TREE)
    write(nodes, data, dict.fromkeys([*TREE, *data], url))
    cloud = cloud_of(nodes, url, 8, float("inf"), eta=0.3, P=4, Q=2)
    path = cloud.play(deaths)
    assert cloud.counts == [4] * 8
    return path


def test_a_hospital_that_dies_in_the_middle_changes_nothing(
    tmp_path: Path, broker: str, data: Mapping[str, Vertical]
) -> None:
    """Before a call, after it, and when a message was read: the same models to the bit as of a run without deaths.

    Each is within a global round, of which eleven calls of a hospital are made: so the aggregator waits.
    """
    deaths = {"north": ["working:7", "worked:6", "read:5"], "south": ["read:9"], "a": ["working:4"]}
    quiet = models_of(tmp_path / "quiet", broker, data, {})
    disturbed = models_of(tmp_path / "disturbed", broker, data, deaths)
    assert [theta.tobytes() for theta in disturbed] == [theta.tobytes() for theta in quiet]
    assert not np.array_equal(quiet[0], quiet[-1])


# Bad links ------------------------------------------------------------------------------------------------------
ETA, STEPS = 0.3, 2


Part = tuple[tuple[str, ...], tuple[str, ...]]
"""Devices of a group whose zeta_2 has come, and those of them whose theta_2 has come back."""


def group(model: SplitModel, data: Mapping[str, Vertical], part: Part, theta: Any) -> Any:
    """Algorithm 1 within a group, for one global round of one interval of STEPS iterations."""
    devices, back = part
    w, a, b = (model.group(theta, g) for g in parties.GROUPS)
    xi = {d: data[d] for d in devices}
    z1 = {d: model.embed("hospital", a, s.x1) for d, s in xi.items()}
    z2 = np.concatenate([model.embed("device", b, s.x2) for s in xi.values()])
    w0, own = w, dict.fromkeys(xi, b)
    x1, y = (np.concatenate([getattr(s, key) for s in xi.values()]) for key in ("x1", "y"))
    for _ in range(STEPS):
        _, g = model.party_grad("hospital", {"head": w, "hospital": a}, {"hospital": x1}, {"device": z2}, y)
        w, a = w - ETA * g["head"], a - ETA * g["hospital"]
        for d, s in xi.items():
            thetas, given = {"head": w0, "device": own[d]}, {"hospital": z1[d]}
            _, g = model.party_grad("device", thetas, {"device": s.x2}, given, s.y)
            own[d] = own[d] - ETA * g["device"]
    return np.concatenate([w, a, np.mean([own[d] for d in back], 0) if back else b])


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [some for count in range(len(names) + 1) for some in combinations(names, count)]


def possible(count: int) -> Iterator[list[Part]]:
    """Who may have taken part in a round of so many devices."""
    of = {h: [(some, back) for some in subsets(devices) for back in subsets(some)] for h, devices in HERE.items()}
    for parts in product(*of.values()):
        if sum(len(some) for some, _ in parts) == count:
            yield [part for part in parts if part[0]]


def is_a_round(model: SplitModel, data: Mapping[str, Vertical], before: Any, after: Any, count: int) -> bool:
    """Whether `after` is the mean of the groups that took part, each with the samples of all its patients; nobody: the
    same model again."""
    for taking_part in possible(count):
        mean = np.mean([group(model, data, part, before) for part in taking_part], 0) if taking_part else before
        if np.allclose(mean, after, atol=2e-6):
            return True
    return False


@pytest.mark.long
def test_cut_links_a_dead_device_and_a_hospital_that_is_away(
    tmp_path: Path, broker: str, data: Mapping[str, Vertical]
) -> None:
    """Every global round is that of the mathematics for those who took part in it, and the run comes to its end."""
    port = urlsplit(broker).port
    assert port is not None
    bad = {"cut": 9000, "latency": 0.02, "jitter": 0.03}
    rounds, nodes = 20, Nodes(tmp_path, BUNDLE, TREE)
    with Proxy("127.0.0.1", port, seed=1, **bad) as device, Proxy("127.0.0.1", port, seed=2, **bad) as hospital:
        ways = dict.fromkeys([*TREE, *data], broker)
        ways |= {"c": f"mqtt://127.0.0.1:{device.port}", "north": f"mqtt://127.0.0.1:{hospital.port}"}
        write(nodes, data, ways, north={"wait_for": 1})
        cloud = cloud_of(nodes, broker, rounds, 3.0, eta=ETA, P=STEPS, Q=STEPS)
        try:
            nodes.start_all({}, but="b")  # which is dead
            cloud.wait(lambda: len(cloud.counts) >= 4)
            nodes.kill("south")
            cloud.wait(lambda: len(cloud.counts) >= 9)
            nodes.start("south")
            cloud.wait(lambda: cloud.finished)
        finally:
            nodes.end()
            cloud.end()
        assert device.passed.cuts + hospital.passed.cuts >= 3
    model = SplitModel(BUNDLE)
    path = [model.theta0, *cloud.path]
    assert len(cloud.counts) == rounds
    for before, after, count in zip(path[:-1], path[1:], cloud.counts, strict=True):
        assert is_a_round(model, data, before, after, count), cloud.counts
    assert max(cloud.counts) == 3 and sum(count <= 1 for count in cloud.counts) >= 3, cloud.counts
