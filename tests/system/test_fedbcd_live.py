"""FedBCD over a real broker. Synchronous: deaths in the middle change nothing. First-B, with links that are cut, a dead
device and a hospital that is away: it lives, and its invariants hold.

MQTT runs over TCP, which loses no packets; what loss is on a datagram link is here a connection that is reset after
every few messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from edge_sdk.algebra.lowrank import unpack
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.replay.datasets import prepare
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from tests.system.live_nodes import CLASSES, Cloud, Nodes

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {h: (f"{h}-1", f"{h}-2") for h in ("north", "south", "east", "west")}
DEAD, LOST, CUT = "north-2", "east", "south"
EACH, ROUNDS, BOUND = 12, 50, 0.2
SETTINGS = {"bound": BOUND, "eta_x": 0.02, "batch": 0, "local_steps": 3}


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


@pytest.fixture(scope="module")
def bundle() -> Path:
    return compile_network("mlp", ["--input", "30", "--classes", "2"], 0, print)


def write(nodes: Nodes, ways: Mapping[str, str]) -> None:
    """`ways`: hospital -> URL by which it and its devices reach the broker."""
    nodes.directory.mkdir(exist_ok=True)
    data = prepare("breast-cancer")[0]
    x = np.concatenate([data.x1, data.x2], 1)
    for i, name in enumerate(nodes.devices):
        rows = slice(2 * i * EACH, (2 * i + 1) * EACH), slice((2 * i + 1) * EACH, (2 * i + 2) * EACH)
        path = store_samples(nodes.directory / f"{name}.npz", *(label_samples(x[r], data.y[r], CLASSES) for r in rows))
        hospital = name.partition("-")[0]
        nodes.table({"name": name, "hospital": hospital, "broker": ways[hospital], "data": {"samples": path}})
    for hospital, devices in nodes.tree.items():
        wait = {"wait_for": 1} if DEAD in devices else {}
        table = {"name": hospital, "aggregator": "cloud", "broker": ways[hospital], "devices": devices, **wait}
        nodes.table(table | {"allow": {"scores_of": 1}})


def cloud_of(nodes: Nodes, broker: str, rounds: int, deadline: float, **settings: Any) -> Cloud:
    def note(before: Any, after: Any, env: Any) -> Any:
        """Who was ready, with which model, and what came of it."""
        return before.ready, unpack(env.layout, after.model)

    told = {"rounds": rounds, "deadline": deadline / 1.5, "settings": {**SETTINGS, **settings}}
    return Cloud(nodes, broker, deadline, note, method="fedbcd", **told)


def models_of(nodes: Nodes, url: str, deaths: Mapping[str, list[str]]) -> list[Any]:
    write(nodes, dict.fromkeys(nodes.tree, url))
    cloud = cloud_of(nodes, url, 8, float("inf"))
    path = [model for _, model in cloud.play(deaths)]
    assert cloud.counts == [sum(map(len, nodes.tree.values()))] * 8
    return path


def test_deaths_in_the_middle_of_a_synchronous_run_change_nothing(tmp_path: Path, broker: str, bundle: Path) -> None:
    """To the bit. Each death is within a round, of which a hospital makes three calls and a device one, or at a message
    that was read: so somebody waits for an answer. (Between two rounds a hospital would go on without who is gone, and
    a commit may be there too, so none of the deaths is at one; tests/wire/matrix.py has those.)
    """
    tree = {"south": TREE["south"], "west": TREE["west"]}
    deaths = {"south": ["working:6", "read:5"], "west": ["worked:8"], "south-1": ["working:4"], "west-2": ["read:5"]}
    quiet = models_of(Nodes(tmp_path / "quiet", bundle, tree), broker, {})
    disturbed = models_of(Nodes(tmp_path / "disturbed", bundle, tree), broker, deaths)
    assert len(quiet) == 8 and not np.array_equal(quiet[0], quiet[-1])
    assert [model.tobytes() for model in disturbed] == [model.tobytes() for model in quiet]


@pytest.mark.long
def test_first_b_over_links_that_are_cut(tmp_path: Path, broker: str, bundle: Path) -> None:
    nodes, port = Nodes(tmp_path, bundle, TREE), urlsplit(broker).port
    assert port is not None
    slow = {"latency": 0.02, "jitter": 0.03}
    with Proxy("127.0.0.1", port, seed=1, **slow) as calm, Proxy("127.0.0.1", port, seed=2, cut=60_000, **slow) as cut:
        write(nodes, {h: f"mqtt://127.0.0.1:{(cut if h == CUT else calm).port}" for h in TREE})
        cloud = cloud_of(nodes, broker, ROUNDS, 30.0, cloud="first-b", ready=2)
        try:
            nodes.start_all({}, but=DEAD)
            cloud.wait(lambda: len(cloud.rounds) >= 5)
            nodes.kill(LOST)
            gone = max(cloud.rounds)
            cloud.wait(lambda: len(cloud.rounds) >= gone + 6)
            nodes.start(LOST)
            cloud.wait(lambda: cloud.finished)
        finally:
            nodes.end()
            cloud.end()
        assert cut.passed.cuts >= 2
    check_first_b(cloud, gone)


def check_first_b(cloud: Cloud, gone: int) -> None:
    """`gone`: round after which LOST was away for at least 6."""
    assert sorted(cloud.rounds) == list(range(1, ROUNDS + 1))
    members = {round: set(ready) for round, (ready, _) in cloud.rounds.items()}
    assert all(len(names) == 2 for names in members.values()), members  # B, no more and no fewer
    assert set.union(*members.values()) == set(TREE)  # the one behind the bad link, and the one that was away, too
    away = [LOST not in members[round] for round in range(gone + 2, gone + 6)]
    assert all(away) and any(LOST in members[round] for round in range(gone + 6, ROUNDS + 1)), members
    for ready, model in cloud.path:
        z = np.stack([ready[name].model for name in sorted(ready)])
        np.testing.assert_allclose(model, z.mean(0), atol=1e-7)
        assert np.abs(z).max() <= BOUND + 1e-6  # z_n is a mean of feasible points
    assert cloud.report is not None and cloud.report.final
    assert cloud.report.sums["devices"] >= 5  # of all hospitals but the one whose link may be cut just then
