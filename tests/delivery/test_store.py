"""A node's file: what is written over, what is never used twice, and when the log is brought home."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edge_sdk.contract import round as rounds
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.loading import load_node
from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.delivery.storage.store import RESERVED, SOON, Store
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.mqtt import VOUCHED, Connection
from edge_sdk.wire.stream import SMALL
from tests.delivery import roles

pytestmark = pytest.mark.usefixtures("closed_after")


def sent(seq: int, size: int) -> OutboxRow:
    return OutboxRow(seq, seq, False, ("parent",), frozenset(["parent"]), size=size)


def body(seq: int, size: int = 10_000) -> bytes:
    return bytes([seq % 251]) * size


def test_a_message_takes_the_row_of_one_that_is_done_with(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    for seq in range(1, 30):
        with store.transaction():
            store.outbox.drop_rows([seq - 1])
            store.save_sent(sent(seq, 10_000), body(seq))
    assert store.db.execute("select count(*), max(slot) from outbox").fetchone() == (1, 1)
    store.close()
    again = Store(tmp_path / "a.db")
    assert [(s.seq, s.number, s.size) for s in again.outbox.load_rows()] == [(29, 29, 10_000)]
    assert again.outbox.load_body(29) == body(29)


def test_what_is_done_with_does_not_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    with store.transaction():
        for seq in (1, 2, 3):
            store.save_sent(sent(seq, 10_000), body(seq))
    with store.transaction():
        store.outbox.drop_rows([1, 3])
    store.close()
    assert [s.seq for s in Store(tmp_path / "a.db").outbox.load_rows()] == [2]


def test_a_row_that_was_not_written_over_after_all_is_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    with store.transaction():
        store.save_sent(sent(1, 10_000), body(1))
    with pytest.raises(RuntimeError), store.transaction():
        store.outbox.drop_rows([1])
        store.save_sent(sent(2, 10_000), body(2))
        raise RuntimeError
    store.close()
    again = Store(tmp_path / "a.db")
    assert [s.seq for s in again.outbox.load_rows()] == [1] and again.outbox.load_body(1) == body(1)


@pytest.mark.parametrize("count", [1, RESERVED, 3 * RESERVED + 5])
def test_no_number_is_used_twice(tmp_path: Path, count: int) -> None:
    store = Store(tmp_path / "a.db")
    first = store.load_next_seq()
    for seq in range(first, first + count):
        with store.transaction():
            store.save_sent(sent(seq, 10), body(seq, 10))
            store.outbox.drop_rows([seq])
    store.close()
    assert first + count <= Store(tmp_path / "a.db").load_next_seq() <= first + count + RESERVED


def test_an_idle_node_brings_its_log_home(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    with store.transaction():
        store.save_sent(sent(1, SOON), body(1, SOON))
    assert (tmp_path / "a.db").stat().st_size < SOON
    store.checkpoint()
    assert (tmp_path / "a.db").stat().st_size > SOON


def test_one_acknowledged_publish_speaks_for_those_soon_after(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    connection = Connection(broker_at("mqtt://127.0.0.1"), "a", [])
    assert not connection.is_light, "the first tells whether the link works"
    connection.vouched = now
    assert connection.is_light
    connection.stream = connection.client.wrap_socket(ClosedSocket())  # type: ignore[arg-type]
    connection.stream.out += bytes(SMALL)
    assert not connection.is_light, "where the link is full, the broker says what it has room for"
    connection.stream.out.clear()
    now += VOUCHED
    assert not connection.is_light


class ClosedSocket:
    """Nothing can be sent over it."""

    def fileno(self) -> int:
        return -1


def test_a_new_disk_numbers_its_questions_from_elsewhere(tmp_path: Path) -> None:
    """An answer to a question of the lost disk, played again by whoever recorded it, fits none of the new one."""
    role, numbers = roles.assembly(roles.HOSPITAL, Run(id="count", method="count")), []
    for disk in "abc":
        store = Store(tmp_path / f"{disk}.db")
        below = load_node("h", "agg", role, store, ()).record.below
        numbers.append(below.number)
        assert rounds.count_questions(below) == 0
        store.close()
    assert len({*numbers}) == 3 and all(number % rounds.LEAP == 0 for number in numbers)
