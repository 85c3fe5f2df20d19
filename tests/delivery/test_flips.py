"""Single wrong bits anywhere in what a node keeps: the run goes on rightly, or it is said. See flips.py."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.database import ADDED
from edge_sdk.delivery.storage.log_check import FRAME, HEADER, has_lost_commits
from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.delivery.storage.store import Job, Store
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import flips

PAGE = 4096
TRIALS = 14


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, quick: LocalBroker) -> Path:
    base = tmp_path_factory.mktemp("flips") / "killed"
    flips.killed_run(base, quick, Random(5))
    return base


@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_run_goes_on_rightly_or_says_what_is_damaged(
    tmp_path: Path, killed: Path, quick: LocalBroker, seed: int
) -> None:
    flips.trial(tmp_path / "run", killed, quick, seed)


def used(log: bytes) -> int:
    """Bytes of a log up to the end of its last page; what is behind is of an older log."""
    end = HEADER
    while log[end + 8 : end + 16] == log[16:24]:
        end += FRAME + PAGE
    return end


@pytest.mark.parametrize("name", ["agg", "h", "a"])
def test_a_log_that_lost_its_end_is_asked_for_again(
    tmp_path: Path, killed: Path, quick: LocalBroker, name: str
) -> None:
    """SQLite forgets all commits from the first wrong bit on, and says nothing. The run once stood still for ever."""
    base = tmp_path / "run"
    shutil.copytree(killed, base)
    log = base / name / "count.db-wal"
    content = bytearray(log.read_bytes())
    content[used(content) - 2 * (FRAME + PAGE) - 100] ^= 4
    log.write_bytes(content)
    assert has_lost_commits(log)
    # where what is missing had been brought home already, the log and the file do not fit, and the store is damaged
    assert flips.restart(base, quick) in ("rolled back", "put aside" if name != "agg" else "asks a person")


def test_a_log_is_whole_or_every_wrong_bit_in_it_is_seen(tmp_path: Path, killed: Path) -> None:
    content, dice = (killed / "h" / "count.db-wal").read_bytes(), Random(3)
    copy = tmp_path / "log"
    copy.write_bytes(content)
    assert not has_lost_commits(copy)
    for _ in range(300):
        changed, place = bytearray(content), dice.randrange(used(content))
        changed[place] ^= 1 << dice.randrange(8)
        copy.write_bytes(changed)
        assert has_lost_commits(copy), place


@pytest.mark.parametrize("size", [0, 10, HEADER])
def test_a_log_in_which_nothing_was_written_has_lost_nothing(tmp_path: Path, killed: Path, size: int) -> None:
    copy = tmp_path / "log"
    assert not has_lost_commits(copy)
    copy.write_bytes((killed / "h" / "count.db-wal").read_bytes()[:size])
    assert not has_lost_commits(copy)


def test_a_log_that_was_begun_anew_over_an_older_one_is_whole(tmp_path: Path) -> None:
    """SQLite writes over a log whose pages are all in their places; what is behind is of before."""
    store = Store(tmp_path / "a.db")
    for size in (400_000, 10):
        with store.transaction():
            store.save_record(bytes(size))
        store.force_checkpoint()
    with store.transaction():
        store.save_record(b"the last")
    shutil.copy(tmp_path / "a.db-wal", tmp_path / "log")
    store.close()
    assert (tmp_path / "log").stat().st_size > 400_000 and not has_lost_commits(tmp_path / "log")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A store with a row in each table, closed."""
    store, row = Store(tmp_path / "a.db"), OutboxRow(1, 1, True, ("b",), frozenset(["b"]), size=4)
    with store.transaction():
        store.save_peer("b", 7, 0)
        store.save_received("b", 3)
        store.save_sent(row, b"body")
        store.save_job(Job("b", 1, True, b"body"))
        store.save_told(b"body")
    store.close()
    yield tmp_path / "a.db"


def read_all(path: Path) -> None:
    store = Store(path)
    try:
        store.load_peers()
        store.load_next_seq()
        store.load_jobs()
        store.load_told()
        for row in store.outbox.load_rows():
            store.outbox.load_body(row.seq)
    finally:
        store.drop()


CHANGED = {"integer": "7777777", "text": "'z'", "real": "12.5", "blob": "x'ff'"}
CELLS = [(table, column) for table, (_, columns) in ADDED.items() for column in (*columns.split(", "), "row_crc")]


@pytest.mark.parametrize(("table", "column"), CELLS)
def test_every_value_of_every_row_is_checked(full: Path, table: str, column: str) -> None:
    read_all(full)
    with closing(sqlite3.connect(full)) as db, db:
        kind = db.execute(f"select typeof({column}) from {table}").fetchone()[0]
        value = CHANGED["text" if kind == "null" else kind]
        only = "where k = 'seq'" if table == "kv" else ""
        db.execute(f"update {table} set {column} = {value} {only}")
    with pytest.raises(StoreDamaged, match="checksum"):
        read_all(full)
