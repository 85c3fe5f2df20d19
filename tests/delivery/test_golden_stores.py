"""Stores that an earlier version left behind when it was killed: opened, read, and played to the end. See golden/."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.node import Record
from edge_sdk.delivery.storage.store import Store
from edge_sdk.methods.shared.evaluation.reports import Progress, Report
from edge_sdk.nodes.configuration.assembly import method_of, record_codec, settings_of
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import Fleet, eventually
from tests.delivery.live import playing
from tests.delivery.method_nodes import nodes_of, run_of
from tests.methods.fedal.logit_problems import COMPANIONS
from tests.methods.problems import DEVICES, TREE, envs_of

GOLDEN = Path(__file__).parent / "golden"
COUNTED = 6  # rounds of the counting run that its aggregator had closed
ROUNDS, KILLED_AFTER = 12, 7  # of each method's run
WRONG = ("refused.broken", "refused.malformed", "quarantined")  # counters of what an undisturbed run does not know
METHODS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz") if "counting" not in path.name)


def unpack(name: str, to: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as tar:
        tar.extractall(to, filter="data")
    return to


def test_the_counting_run_goes_on_with_everything_counted_once(tmp_path: Path, quick: LocalBroker) -> None:
    tree = {"agg": ["h"], "h": ["a", "b"]}
    fleet = Fleet(unpack("counting", tmp_path), quick.url, tree, size=100_000, largest_chunk=65536)
    assert fleet.rounds() in (COUNTED - 1, COUNTED)
    waiting = {name: messages_to_send(tmp_path / name / "count.db") for name in fleet.names}
    assert waiting == {"agg": 1, "h": 1, "a": 1, "b": 1}
    assert list((tmp_path / "a" / "count.bodies").glob("*.part"))
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= COUNTED + 5)
        fleet.stop_all()
        fleet.check()
    finally:
        fleet.end()


def messages_to_send(path: Path) -> int:
    store = Store(path)
    try:
        for sent in store.outbox.load_rows():
            assert len(store.outbox.load_body(sent.seq)) == sent.size > 0
        return len(store.outbox.load_rows())
    finally:
        store.close()


def test_there_is_a_store_of_every_family_of_methods() -> None:
    assert {"fedslr", "fedavg", "fedbcd", "hsgd", "fedal", "augfl", "fedslr+fedal"} <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_run_goes_on_to_its_end(tmp_path: Path, quick: LocalBroker, name: str) -> None:
    base, run, told = unpack(name, tmp_path), run_of(name, ROUNDS), list[Any]()
    read_records(base, name)
    nodes = nodes_of(run, base, quick.url, lambda number, message: told.append(message))
    with playing(*nodes):
        eventually(lambda: any(isinstance(m, Report) and m.final for m in told), 60)
    progress = [(m.round, m.devices) for m in told if isinstance(m, Progress)]
    first = progress[0][0]
    assert first in (KILLED_AFTER, KILLED_AFTER + 1, KILLED_AFTER + 2), "the last one told may be told again"
    counted = len(DEVICES) - (len(COMPANIONS) if "+" in name else 0)
    assert progress == [(round, counted) for round in range(first, ROUNDS + 1)]
    wrong = [key for node in nodes for key in node.counters if key.startswith(WRONG)]
    assert not wrong


def read_records(base: Path, name: str) -> None:
    """Decode what each node had saved of itself."""
    run = run_of(name, ROUNDS)
    method, envs = method_of(run), envs_of(method_of(run), settings_of(run), ROUNDS)
    for node in ("agg", *TREE, *DEVICES):
        tier = "aggregator" if node == "agg" else "hospital" if node in TREE else "device"
        store = Store(base / node / f"{run.id}.db")
        saved = store.load_record()
        store.close()
        assert saved is not None
        layout = envs["aggregator" if node == "agg" else node].layout
        record = record_codec(getattr(method, tier), method.messages, layout).decode(saved)
        assert isinstance(record, Record) and record.started
