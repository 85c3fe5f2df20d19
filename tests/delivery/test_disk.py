"""Disks that fail for a while: nothing that was not saved is believed, and nothing is lost."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.storage.checksums import StoreDamaged, checksum, checksums, make_digest
from edge_sdk.delivery.storage.database import DiskError, Transaction
from edge_sdk.delivery.storage.outbox_table import OutboxTable
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.frames import Chunk, Message
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


class Full:
    """A disk on which one kind of write fails while `full` is set.

    Args:
        when: whether this call is one that fails; None: all.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, write: str, when: Callable[..., bool] | None = None
    ):
        self.full, self.failed, plain = threading.Event(), threading.Event(), getattr(owner, write)

        def written(*arguments: object) -> object:
            if self.full.is_set() and (when is None or when(*arguments)):
                self.failed.set()
                raise DiskError("database or disk is full")
            return plain(*arguments)

        monkeypatch.setattr(owner, write, written)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_sdk.live.membership.membership.DISK", 0.2)


@pytest.mark.usefixtures("soon")
def test_a_full_disk_stops_a_node_until_there_is_room(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch, Store, "save_received")
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a"), net.device("a", "agg")
    with playing(aggregator, device):
        eventually(lambda: net.rounds >= 3)
        disk.full.set()
        eventually(lambda: aggregator.counters["disk_failed"] + device.counters["disk_failed"] >= 2)
        reached = net.rounds
        disk.full.clear()
        eventually(lambda: net.rounds >= reached + 3)
    heard = {number: done.round for number, done in net.told}  # at least once
    assert heard == {i: i for i in range(1, len(heard) + 1)}


WRITES = (
    (Transaction, "commit"),
    (Store, "put_value"),
    (Store, "save_record"),
    (Store, "save_peer"),
    (Store, "save_received"),
    (Store, "save_sent"),
    (OutboxTable, "drop_rows"),
    (Store, "save_job"),
    (Store, "drop_job"),
)


@pytest.mark.parametrize("worker", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_disk_that_fails_now_and_then_anywhere_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, worker: bool
) -> None:
    """One write in forty, of any kind, in all three tiers; each round is whole and its sum is right."""
    monkeypatch.setattr("edge_sdk.live.membership.membership.DISK", 0.02)
    random = Random(7)
    disks = [Full(monkeypatch, *write, lambda *_: random.random() < 1 / 40) for write in WRITES]
    net = Net(tmp_path, quick.url, worker=worker)
    nodes = net.aggregator("h", rounds=40), net.hospital("h", "a", "b"), net.device("a", "h"), net.device("b", "h")
    with playing(*nodes):
        eventually(lambda: net.rounds >= 3)
        for disk in disks:
            disk.full.set()
        eventually(lambda: net.rounds >= 35, 100)
        for disk in disks:
            disk.full.clear()
        eventually(lambda: net.rounds == 40, 60)
    assert sum(node.counters["disk_failed"] for node in nodes) >= 10
    heard = {number: done for number, done in net.told}  # at least once
    assert [done.round for _, done in sorted(heard.items())] == list(range(1, 41))
    assert all((done.devices, done.total) == (2, 4.0 * done.round) for done in heard.values())


@pytest.mark.parametrize("worker", [True, False])
def test_who_is_stopped_after_a_commit_that_failed_has_saved_nothing_of_it(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, worker: bool
) -> None:
    """The answer could not be written. Saved alone, the record would say that it was given, and it would never be."""
    disk = Full(monkeypatch, Store, "save_sent", lambda store, *_: store.path.parent.name == "a")
    net = Net(tmp_path, quick.url, worker=worker)
    with playing(net.aggregator("a")):
        with playing(net.device("a", "agg")):
            eventually(lambda: net.rounds >= 3)
            disk.full.set()
            assert disk.failed.wait(20)
        disk.full.clear()
        reached = net.rounds
        with playing(net.device("a", "agg")):
            eventually(lambda: net.rounds >= reached + 3)
    assert [done.round for _, done in net.told] == list(range(1, net.rounds + 1))


def test_a_node_that_waits_for_its_disk_sleeps(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, turns, turn = Full(monkeypatch, Store, "save_received"), list[Runtime](), Runtime.take_turn

    def counted(node: Runtime, patience: float) -> None:
        turns.append(node)
        turn(node, patience)

    monkeypatch.setattr(Runtime, "take_turn", counted)
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a"), net.device("a", "agg")
    with playing(aggregator, device):
        eventually(lambda: net.rounds >= 3)
        disk.full.set()
        eventually(lambda: aggregator.counters["disk_failed"] + device.counters["disk_failed"] >= 1)
        before, failures = len(turns), aggregator.counters["disk_failed"] + device.counters["disk_failed"]
        eventually(lambda: aggregator.counters["disk_failed"] + device.counters["disk_failed"] >= failures + 1)
        assert len(turns) - before < 200  # a second or more has passed; a loop that spins makes thousands
        disk.full.clear()


@pytest.mark.usefixtures("soon")
def test_a_run_that_comes_while_the_disk_is_full_is_taken_up_later(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch, NodeDirectory, "open_store", lambda files, run: files.directory.name == "a")
    disk.full.set()
    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg")
    with playing(net.aggregator("a", rounds=3), device):
        eventually(lambda: device.counters["disk_failed"] >= 2)
        assert not device.refusal and device.session is None
        disk.full.clear()
        eventually(lambda: net.rounds == 3)


@pytest.mark.usefixtures("soon")
def test_nodes_that_are_started_on_a_full_disk_begin_when_there_is_room(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart while the disk is full once ended the aggregator, and any node that could not open its store."""
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator("a"), net.device("a", "agg")):
        eventually(lambda: net.rounds >= 2)
    for owner, step in ((NodeDirectory, "open_store"), (NodeDirectory, "make_store")):
        disk, reached = Full(monkeypatch, owner, step), net.rounds
        disk.full.set()
        nodes = net.aggregator("a"), net.device("a", "agg")
        with playing(*nodes):
            eventually(lambda nodes=nodes: all(node.counters["disk_failed"] >= 2 for node in nodes))  # type: ignore[misc]
            disk.full.clear()
            eventually(lambda reached=reached: net.rounds >= reached + 2)  # type: ignore[misc]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_an_event_that_the_application_cannot_save_is_told_again(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The application writes a model or a line of metrics. It is not lost, and nothing overtakes it."""
    monkeypatch.setattr("edge_sdk.delivery.roles.events.RETRY", 0.05)
    net, full = Net(tmp_path, quick.url), threading.Event()
    heard = list[int]()

    def save(number: int, done: roles.Done) -> None:
        if full.is_set():
            raise OSError(code, "no room")
        heard.append(done.round)

    aggregator = net.aggregator("a")
    aggregator.main.work = replace(aggregator.main.work, told=save)
    with playing(aggregator, net.device("a", "agg")):
        eventually(lambda: len(heard) >= 3)
        full.set()
        eventually(lambda: aggregator.counters["told_failed"] >= 3)
        reached = aggregator.node.record.state.round
        eventually(lambda: aggregator.node.record.state.round >= reached + 3)  # the run goes on meanwhile
        full.clear()
        eventually(lambda: heard[-1] >= reached + 3)
    assert heard == list(range(1, len(heard) + 1))


def test_a_store_that_cannot_be_written_is_not_called_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, expected in ((sqlite3.SQLITE_FULL, DiskError), (sqlite3.SQLITE_NOTADB, StoreDamaged)):
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = code

        def prepare(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("edge_sdk.delivery.storage.database.choose_settings", prepare)
        with pytest.raises(expected):
            Store(tmp_path / "count.db")


def test_who_finds_at_the_end_that_the_run_is_unfit_still_says_goodbye(tmp_path: Path, quick: LocalBroker) -> None:
    net, begun = Net(tmp_path, quick.url), threading.Event()

    def work(round: int) -> None:
        begun.set()
        eventually(device.cancelled)
        raise UsageError("unfit")

    device = net.device("a", "agg", work)
    aggregator = net.aggregator("a")
    with playing(aggregator):
        with playing(device):
            assert begun.wait(20)
        eventually(lambda: not aggregator.here)
    assert device.refusal == "run count: unfit"


RUN = Run(id="count", method="count", rounds=2)
AGGREGATOR = roles.assembly(roles.AGGREGATOR, RUN, sizes={"a": 1})


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    store, log = Store(tmp_path / "count.db"), logging.getLogger("test")
    habits = Habits(worker=True, wait_for=99)
    found = Session("root", None, RUN, AGGREGATOR, store, habits, Counters(), lambda *_: None, lambda: None, log)
    found.meet_peer("a", 7)
    yield found
    found.close(1.0)


def in_pieces(body: bytes, epoch: int) -> list[Chunk]:
    size = len(body) // 2
    whole, pieces = make_digest(checksums(body, size)), (body[:size], body[size:])
    return [
        Chunk(RUN.id, "a", epoch, 1, 1, (), 1, False, len(body), size, whole, i, checksum(piece), False, piece)
        for i, piece in enumerate(pieces)
    ]


def test_a_message_of_a_new_disk_does_not_get_the_file_of_one_of_the_old_disk(session: Session) -> None:
    """Same sender, same number; the old one was complete, but not taken in yet."""
    for piece in in_pieces(b"x" * 1000, epoch=7):
        session.take_piece(piece)
    files = session.store.files.directory
    assert len(list(files.iterdir())) == 1
    session.meet_peer("a", 8)
    assert not list(files.iterdir())
    assert session.take_message(Message(RUN.id, "a", 8, 1, 1, (), 1, False, b"small")) == "new"
    session.commit(1000.0)
    (job,) = session.store.load_jobs()
    assert bytes(job.body) == b"small" and job.file is None
