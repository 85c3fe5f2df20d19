"""Stores that are not as they were written: noticed, put aside, said; the node goes on as one whose disk is new."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.delivery.storage.store import Job, Store
from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

BODY = bytes(range(256)) * 10


def flip(path: Path, table: str, column: str) -> None:
    """Change one byte of each value, as a bad memory or disk would."""
    with closing(sqlite3.connect(path)) as db, db:
        for row, value in db.execute(f"select rowid, {column} from {table}").fetchall():
            changed = bytearray(value)
            changed[len(changed) // 2] ^= 1
            db.execute(f"update {table} set {column} = ? where rowid = ?", (bytes(changed), row))


def read_record(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as db:
        return bytes(db.execute("select v from record").fetchone()[0])


def played(net: Net, rounds: int) -> None:
    """Three nodes play some rounds and stop."""
    with playing(net.aggregator("h"), net.hospital("h", "a"), net.device("a", "h")):
        eventually(lambda: net.rounds >= rounds)


@pytest.mark.parametrize("victim", ["h", "a"])
def test_a_damaged_record_is_put_aside_and_the_run_goes_on(tmp_path: Path, quick: LocalBroker, victim: str) -> None:
    net = Net(tmp_path, quick.url)
    played(net, 3)
    flip(tmp_path / victim / "count.db", "record", "v")
    reached, nodes = net.rounds, {"h": net.hospital("h", "a"), "a": net.device("a", "h")}
    with playing(net.aggregator("h"), *nodes.values()):
        eventually(lambda: net.rounds >= reached + 3)
    assert {name: node.counters["store_damaged"] for name, node in nodes.items()} == {"h": 0, "a": 0} | {victim: 1}
    assert (tmp_path / victim / "count.damaged" / "count.db").exists()
    heard = {number: done for number, done in net.told}
    assert [(done.round, done.devices, done.total) for _, done in sorted(heard.items())] == [
        (r, 1, 4.0 * r) for r in range(1, len(heard) + 1)
    ]


def test_a_root_whose_record_is_damaged_asks_a_person(tmp_path: Path, quick: LocalBroker) -> None:
    """Nobody could tell it how far the run was, and to begin anew without a word would throw the run away."""
    net = Net(tmp_path, quick.url)
    played(net, 3)
    path = tmp_path / "agg" / "count.db"
    flip(path, "record", "v")
    damaged = read_record(path)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"count\.db is damaged .*move count\.db.* away"):
            net.aggregator("h").run()
    assert read_record(path) == damaged
    for part in path.parent.glob("count.*"):
        part.rename(part.with_name(f"kept-{part.name}"))
    net.told.clear()
    with playing(net.aggregator("h"), net.hospital("h", "a"), net.device("a", "h")):
        eventually(lambda: net.rounds >= 2)
    assert net.told[0] == (1, roles.Done(1, 1, 4.0))


@pytest.mark.parametrize("worker", [True, False])
def test_a_database_that_falls_apart_while_it_is_used(tmp_path: Path, quick: LocalBroker, worker: bool) -> None:
    """Its pages are overwritten one after the other. The node never stops, and never believes what it finds."""
    net, dice = Net(tmp_path, quick.url, worker=worker), Random(3)
    played(net, 2)
    for _ in range(5):
        path = tmp_path / "h" / "count.db"
        content = bytearray(path.read_bytes())
        for _ in range(3):
            start = dice.randrange(0, len(content) - 64)
            content[start : start + 64] = dice.randbytes(64)
        path.write_bytes(content)
        reached = net.rounds
        with playing(net.aggregator("h"), net.hospital("h", "a"), net.device("a", "h")):
            eventually(lambda reached=reached: net.rounds >= reached + 2)  # type: ignore[misc]
    heard = {number: done for number, done in net.told}
    assert all((done.devices, done.total) == (1, 4.0 * done.round) for done in heard.values())


def test_a_page_that_is_found_damaged_by_a_commit(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says so for ever, so waiting for the disk to recover would never end."""
    net = Net(tmp_path, quick.url)
    device, plain = net.device("a", "agg"), Store.save_received

    def malformed(store: Store, src: str, seq: int) -> None:
        if store.path == tmp_path / "a" / "count.db" and not (tmp_path / "a" / "count.damaged").exists():
            broken.append(store)
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        plain(store, src, seq)

    broken: list[Store] = []
    monkeypatch.setattr("edge_sdk.live.membership.membership.DISK", 0.05)
    with playing(net.aggregator("a"), device):
        eventually(lambda: net.rounds >= 2)
        monkeypatch.setattr(Store, "save_received", malformed)
        eventually(lambda: broken)
        monkeypatch.setattr(Store, "check_pages", lambda store: fail_once(store, tmp_path / "a"))
        reached = net.rounds
        eventually(lambda: net.rounds >= reached + 3)
    assert device.counters["store_damaged"] == 1


def fail_once(store: Store, directory: Path) -> None:
    if store.path.parent == directory and not (directory / "count.damaged").exists():
        raise StoreDamaged("malformed")


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"../../etc/passwd\n", b"count\0"])
def test_a_damaged_note_of_the_current_run_is_no_run(tmp_path: Path, quick: LocalBroker, garbage: bytes) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator("a"), net.device("a", "agg")):
        eventually(lambda: net.rounds >= 1)
    (tmp_path / "a" / "current").write_bytes(garbage)
    reached = net.rounds
    with playing(net.aggregator("a"), net.device("a", "agg")):
        eventually(lambda: net.rounds >= reached + 2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a record, a message to be sent, a job, an event, and a large message in a file."""
    made = Store(tmp_path / "a.db")
    row = OutboxRow(1, 1, True, ("b",), frozenset(["b"]), chunk=16384, size=len(BODY))
    with made.transaction():
        made.save_record(BODY)
        made.save_sent(row, BODY)
        made.save_sent(OutboxRow(2, 2, True, ("b",), frozenset(["b"]), file="2.out", size=len(BODY)), BODY)
        made.save_job(Job("b", 1, True, BODY))
        made.save_told(BODY)
    return made


READS = {
    "record": lambda store: store.load_record(),
    "outbox": lambda store: [store.outbox.load_body(row.seq) for row in store.outbox.load_rows()],
    "jobs": lambda store: store.load_jobs(),
    "told": lambda store: store.load_told(),
}


@pytest.mark.parametrize(("table", "column"), [("record", "v"), ("outbox", "body"), ("jobs", "body"), ("told", "body")])
def test_whatever_is_saved_is_checked_when_it_is_read(tmp_path: Path, store: Store, table: str, column: str) -> None:
    READS[table](store)
    store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        changed = bytes([BODY[0] ^ 1]) + BODY[1:]
        db.execute(f"update {table} set {column} = ? where {column} is not null", (changed,))
    again = Store(tmp_path / "a.db")
    with pytest.raises(StoreDamaged, match=f"{len(BODY)} bytes whose checksum is not the one"):
        READS[table](again)
    assert [READS[other](again) is not None for other in READS if other != table] == [True] * 3


@pytest.mark.parametrize("harm", ["flip", "empty", "remove"])
def test_a_body_in_a_file_is_checked_too(store: Store, harm: str) -> None:
    path = store.files.directory / "2.out"
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(b"" if harm == "empty" else b"\xff" + BODY[1:])
    store.outbox.load_rows()
    with pytest.raises(StoreDamaged):
        store.outbox.load_body(2)
