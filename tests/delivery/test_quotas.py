"""What one peer can make a node keep, open and write is bounded, and freed again."""

from __future__ import annotations

import logging
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.delivery.messages.inbox import SEEN, Inbox
from edge_sdk.delivery.messages.incoming import Incoming
from edge_sdk.delivery.messages.incoming_transfers import BODIES, BYTES, IncomingTransfers
from edge_sdk.delivery.roles.calls import JOBS
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.storage.checksums import checksum, checksums, make_digest
from edge_sdk.delivery.storage.files import Files
from edge_sdk.delivery.storage.store import QUARANTINED, QUARANTINED_BYTES, Job, Store
from edge_sdk.wire.fields import LARGEST_BODY
from edge_sdk.wire.frames import MOST_CHUNKS, Chunk, Message, Offer
from tests.delivery import roles

CHUNK = LARGEST_BODY // MOST_CHUNKS
BODY = bytes(2 * CHUNK)
DIGEST = make_digest(checksums(BODY, CHUNK))


def offer(seq: int, size: int = len(BODY), lo: int = 1, src: str = "a", epoch: int = 5) -> Offer:
    return Offer("run", src, epoch, seq, lo, (), 1, True, size, CHUNK, DIGEST, 99)


def first_chunk(seq: int, size: int = len(BODY), lo: int = 1, src: str = "a", epoch: int = 5) -> Chunk:
    piece = bytes(CHUNK)
    return Chunk("run", src, epoch, seq, lo, (), 1, True, size, CHUNK, DIGEST, 0, checksum(piece), False, piece)


@pytest.fixture
def transfers(tmp_path: Path) -> IncomingTransfers:
    return IncomingTransfers(Files(tmp_path / "bodies"))


def files_of(transfers: IncomingTransfers) -> list[str]:
    directory = transfers.files.directory
    return sorted(os.listdir(directory)) if directory.exists() else []


def test_offers_cost_no_file_and_no_memory(transfers: IncomingTransfers) -> None:
    tracemalloc.start()
    try:
        verdicts = [transfers.take_piece(offer(seq, LARGEST_BODY))[0] for seq in range(1, 5000)]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert set(verdicts) == {"offer", "crowded"} and files_of(transfers) == []


def test_no_file_stays_open(transfers: IncomingTransfers) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for seq in range(1, BODIES + 1):
        assert transfers.take_piece(first_chunk(seq))[0] == "new"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_peer_has_so_many_bodies_under_way_and_no_more(transfers: IncomingTransfers) -> None:
    for seq in range(1, 200):
        transfers.take_piece(first_chunk(seq))
    assert len(files_of(transfers)) == BODIES
    assert transfers.take_piece(first_chunk(1, src="b"))[0] == "new", "another peer has room of its own"


def test_bytes_are_bounded_but_one_body_always_has_room(transfers: IncomingTransfers) -> None:
    assert transfers.take_piece(first_chunk(1, LARGEST_BODY))[0] == "new"
    assert transfers.take_piece(first_chunk(2, CHUNK))[0] == "crowded"
    assert transfers.take_piece(first_chunk(1, BYTES // 2))[0] == "new", "begun anew in another size"
    assert transfers.take_piece(first_chunk(2, BYTES // 2))[0] == "new"
    assert transfers.take_piece(first_chunk(3, CHUNK))[0] == "crowded"


def test_one_message_in_five_thousand_sizes_is_one_file(transfers: IncomingTransfers) -> None:
    for size in range(CHUNK, CHUNK + 500):
        transfers.take_piece(first_chunk(7, size))
        if size == CHUNK:
            transfers.files.remove(files_of(transfers))  # a body of one chunk is whole at once
    assert len(files_of(transfers)) <= 1


def test_what_its_sender_has_given_up_is_deleted(transfers: IncomingTransfers) -> None:
    for seq in range(1, BODIES + 1):
        transfers.take_piece(first_chunk(seq))
    assert transfers.take_piece(first_chunk(100, lo=100))[0] == "new"
    assert [name.split(".")[2] for name in files_of(transfers)] == ["100"]


def test_what_an_earlier_process_has_left_is_swept(tmp_path: Path) -> None:
    """Only what may still come is kept, and of that not too much."""
    store = Store(tmp_path / "count.db")
    with store.transaction():
        store.save_peer("a", 5, 10)
    transfers = IncomingTransfers(store.files)
    for seq in (3, 12):
        transfers.take_piece(first_chunk(seq))
    transfers.take_piece(first_chunk(12, epoch=4))
    for number in range(4):
        for seq in range(1, BODIES + 1):
            IncomingTransfers(store.files).take_piece(first_chunk(seq + 100 * number, src="b.c"))
    Incoming(store)
    names = files_of(transfers)
    assert [name for name in names if name.startswith("a.")] == [f"a.5.12.{len(BODY)}.{CHUNK}.part"]
    assert len([name for name in names if name.startswith("b.c.")]) == BODIES
    store.close()


def message(seq: int, src: str = "a", lo: int = 1) -> Message:
    return Message("count", src, 5, seq, lo, (), seq, False, bytes(10))


def test_what_is_never_done_with_is_not_remembered_for_ever(tmp_path: Path) -> None:
    """A peer that numbers on and never says what it is done with fills no table."""
    store = Store(tmp_path / "count.db")
    inbox = Inbox(store)
    with store.transaction():
        verdicts = [judge_and_note(inbox, message(seq)) for seq in range(1, 40_000)]
    assert verdicts.count("new") == SEEN and set(verdicts[SEEN:]) == {"crowded"}
    assert judge_and_note(inbox, message(50_000, src="b")) == "new"
    with store.transaction():
        assert judge_and_note(inbox, message(50_000, lo=50_000)) == "new", "it has said what it is done with"
        assert [judge_and_note(inbox, message(seq, lo=50_000)) for seq in range(50_001, 50_100)] == ["new"] * 99
    assert store.db.execute("select count(*) from inbox where src = 'a'").fetchone()[0] <= 100
    store.close()


def judge_and_note(inbox: Inbox, m: Message) -> str:
    verdict = inbox.judge(m)
    if verdict == "new":
        inbox.note_message(m)
    return verdict


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A root that waits for its children, so that nothing is worked on."""
    run = Run(id="count", method="count")
    assembly, log = roles.assembly(roles.AGGREGATOR, run), logging.getLogger("test")
    habits, store = Habits(worker=True, wait_for=9), Store(tmp_path / "count.db")
    found = Session("root", None, run, assembly, store, habits, Counters(), lambda *_: None, lambda: None, log)
    yield found
    found.close(1.0)


def test_what_comes_before_a_run_has_begun_is_bounded(session: Session) -> None:
    """400 messages of 1 MB before a run were all kept, and read again at every start."""
    verdicts = list[str]()
    for seq in range(1, 400):
        verdicts.append(session.take_message(message(seq)))
        if seq % 10 == 0:
            session.commit(0.0)
    assert verdicts.count("new") == JOBS and verdicts[JOBS:] == ["crowded"] * (399 - JOBS)
    assert session.take_message(message(1, src="b")) == "new", "another peer has room of its own"
    session.commit(0.0)
    assert len(session.store.load_jobs()) == JOBS + 1


def test_what_is_set_aside_is_the_latest(tmp_path: Path) -> None:
    store = Store(tmp_path / "count.db")
    with store.transaction():
        for number in range(300):
            store.quarantine(Job("a", number, False, b"bad"), "it raised")
    assert [number for _, number, _ in store.load_quarantine()] == list(range(300 - QUARANTINED, 300))
    with store.transaction():
        for number in range(300, 303):
            store.quarantine(Job("a", number, False, bytes(QUARANTINED_BYTES // 2 + 1)), "it raised")
    assert [number for _, number, _ in store.load_quarantine()] == [302]
    with store.transaction():
        store.quarantine(Job("a", 303, False, bytes(QUARANTINED_BYTES + 1)), "it raised")
    assert [number for _, number, _ in store.load_quarantine()] == [303], "one is always kept"
    store.close()


def test_large_messages_wait_in_small_numbers(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_sdk.delivery.roles.calls.JOB_BYTES", 2000)
    large = [replace(message(seq), body=bytes(900)) for seq in range(1, 5)]
    assert [session.take_message(m) for m in large] == ["new", "new", "crowded", "crowded"]
    session.commit(0.0)
    assert session.take_message(large[3]) == "crowded"
    assert session.take_message(replace(message(9, src="b"), body=bytes(5000))) == "new", "one always may wait"
