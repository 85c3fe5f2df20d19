"""A node that is put back from a backup, over a real broker: nothing counts twice, nothing is waited for in vain."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.delivery.storage.snapshot import copy_store
from edge_sdk.delivery.storage.store import Store
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.tools.backups.backup import back_up
from edge_sdk.tools.backups.restore import restore
from tests.delivery.fleet import Fleet, eventually

TREE = {"agg": ["h", "i"], "h": ["a", "b"], "i": ["c"]}
DEVICES = 3
BODY = 100_000
"""Floats of a message: so large that it goes in chunks, and is a file of its own in the store."""


@pytest.fixture
def fleet(tmp_path: Path, quick: LocalBroker) -> Iterator[Fleet]:
    one = Fleet(tmp_path / "nodes", quick.url, TREE, size=BODY)
    one.start_all()
    yield one
    one.end()


def put_back(fleet: Fleet, name: str, backup: Path) -> None:
    """The node and its disk are lost; a new machine is given the backup."""
    fleet.kill(name)
    shutil.rmtree(fleet.base / name)
    restore(backup, fleet.base / name)
    fleet.start(name)


def check_rounds(fleet: Fleet) -> None:
    """Each round has counted each device once. A restored aggregator tells rounds again, with the same result."""
    told = fleet.told()
    assert [(row[0], row[1]) for row in told] == [(i + 1, i + 1) for i in range(len(told))]
    assert all(row[2:] == [DEVICES, BODY * row[1]] for row in told), [row for row in told if row[2] != DEVICES][:3]
    for name in fleet.names:
        assert fleet.quarantined(name) == [], name
        assert "a copy of the folder" not in fleet.log(name)


@pytest.mark.parametrize("name", ["a", "h", "agg"])
def test_a_node_goes_on_from_a_backup_and_everything_counts_once(fleet: Fleet, name: str, tmp_path: Path) -> None:
    """The backup is made while the node works; then it works on for rounds that the backup knows nothing of."""
    eventually(lambda: fleet.rounds() >= 3)
    back_up(fleet.base / name, tmp_path / "backup")
    made = fleet.rounds()
    eventually(lambda: fleet.rounds() >= made + 5)
    put_back(fleet, name, tmp_path / "backup")
    reached = fleet.rounds()
    eventually(lambda: fleet.rounds() >= reached + 5, 60)
    fleet.stop_all()
    check_rounds(fleet)


@pytest.mark.parametrize("name", ["a", "h", "agg"])
def test_a_node_that_was_moved_at_a_standstill(fleet: Fleet, name: str, tmp_path: Path) -> None:
    """Nothing has happened since the backup: the open round ends, although both sides void what was under way."""
    eventually(lambda: fleet.rounds() >= 2)
    fleet.kill(name)
    back_up(fleet.base / name, tmp_path / "backup")
    shutil.rmtree(fleet.base / name)
    restore(tmp_path / "backup", fleet.base / name)
    reached = fleet.rounds()
    fleet.start(name)
    eventually(lambda: fleet.rounds() >= reached + 3, 60)
    fleet.stop_all()
    check_rounds(fleet)


@pytest.mark.parametrize("rounds", [5, 80])  # 80: numbers of messages are used again that were not reserved then
@pytest.mark.parametrize("name", ["a", "h", "agg"])
def test_an_older_copy_of_a_folder_that_is_put_back_as_it_is(
    tmp_path: Path, quick: LocalBroker, name: str, rounds: int
) -> None:
    fleet = Fleet(tmp_path / "nodes", quick.url, TREE, size=BODY // 100)
    fleet.start_all()
    try:
        eventually(lambda: fleet.rounds() >= 3)
        fleet.kill(name)
        made = fleet.rounds()
        shutil.copytree(fleet.base / name, tmp_path / "copy")
        fleet.start(name)
        eventually(lambda: fleet.rounds() >= made + rounds)
        fleet.kill(name)
        shutil.rmtree(fleet.base / name)
        shutil.copytree(tmp_path / "copy", fleet.base / name)
        reached = fleet.rounds()
        fleet.start(name)
        eventually(lambda: fleet.rounds() >= reached + 3, 20)
        fleet.stop_all()
        told = fleet.told()
        assert all(row[:4] == [i + 1, i + 1, DEVICES, BODY // 100 * (i + 1)] for i, row in enumerate(told))
        said = [node for node in fleet.names if "a copy of the folder was put back" in fleet.log(node)]
        assert said == [name]
    finally:
        fleet.end()


def test_backups_without_end_of_nodes_that_work(fleet: Fleet, tmp_path: Path) -> None:
    """Each is whole: it can be put back, its record is read, and its peers are those that it had."""
    eventually(lambda: fleet.rounds() >= 1)
    for i in range(12):
        name = ("agg", "h", "a")[i % 3]
        back_up(fleet.base / name, tmp_path / f"{i}")
        restore(tmp_path / f"{i}", tmp_path / f"copy-{i}")
        store = Store(tmp_path / f"copy-{i}" / "count.db")
        try:
            store.check_pages()
            assert store.load_record() is not None
            store.load_jobs()
            for row in store.outbox.load_rows():
                store.outbox.load_body(row.seq)
            assert store.is_restored and all(epoch == 0 for epoch, _, _ in store.load_peers().values())
        finally:
            store.close()
    fleet.stop_all()
    check_rounds(fleet)


def test_a_store_that_is_written_all_the_time_is_copied_at_one_moment(tmp_path: Path) -> None:
    """Two values that only ever change together are equal in every copy, also while the log begins anew."""
    store = Store(tmp_path / "run.db")
    store.db.execute("pragma wal_autocheckpoint = 20")
    stopping = threading.Event()

    def change(count: int) -> None:
        with store.transaction():
            store.put_value("one", count)
            store.save_record(bytes([count % 256]) * 40_000)
            store.put_value("other", count)

    def write() -> None:
        count = 1
        while not stopping.is_set():
            count += 1
            change(count)

    change(1)

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    try:
        for i in range(15):
            (tmp_path / f"{i}").mkdir()
            copy_store(store.path, tmp_path / f"{i}" / "run.db")
            copy = Store(tmp_path / f"{i}" / "run.db")
            one, other, record = copy.get_value("one"), copy.get_value("other"), copy.load_record()
            copy.close()
            assert one == other and record == bytes([int(one or 0) % 256]) * 40_000
            seen.append(one)
    finally:
        stopping.set()
        writer.join()
        store.close()
    assert len({*seen}) > 5
