"""Bodies in pieces: what is verified is not sent again, whoever was interrupted, and nobody waits for a slow member."""

from __future__ import annotations

import random
import time
from collections import deque
from pathlib import Path

import pytest

from edge_sdk.delivery.messages.incoming_transfers import IncomingTransfers
from edge_sdk.delivery.messages.outbox import OutboxMessage
from edge_sdk.delivery.messages.outgoing_transfers import STALL, OutgoingTransfers
from edge_sdk.delivery.storage.checksums import checksum, checksums, make_digest
from edge_sdk.delivery.storage.files import Files
from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.frames import Chunk, ChunkReport, Offer
from edge_sdk.wire.topics import ALL
from tests.delivery.fleet import Fleet, eventually
from tests.delivery.live import Net, playing

CHUNK = 16384
BODY = random.Random(3).randbytes(10 * CHUNK + 77)
COUNT = 11
DIGEST = make_digest(checksums(BODY, CHUNK))


def big(members: tuple[str, ...]) -> OutboxMessage:
    return OutboxMessage(1, 1, True, members, BODY, set(members), CHUNK, DIGEST)


def chunk_of(i: int, body: bytes = BODY, report: bool = True) -> Chunk:
    piece = body[i * CHUNK : (i + 1) * CHUNK]
    about = ("run", "a", 5, 1, 1, (), 1, True, len(body), CHUNK, DIGEST)
    return Chunk(*about, i, checksum(piece), report, piece)


def offer() -> Offer:
    return Offer("run", "a", 5, 1, 1, (), 1, True, len(BODY), CHUNK, DIGEST, 99)


def test_chunks_in_any_order_and_twice_are_the_body(tmp_path: Path) -> None:
    files = Files(tmp_path / "bodies")
    receiver = IncomingTransfers(files)
    order = [*range(COUNT), *range(COUNT)]
    random.Random(1).shuffle(order)
    names = []
    for i in order:
        _, name = receiver.take_piece(chunk_of(i))
        if name:
            names.append(name)
            break
    assert bytes(files.read(names[0])) == BODY


def test_chunks_that_a_body_does_not_have_are_nothing_new() -> None:
    """Whoever reports another one each time would seem to move, and hold up its group for ever."""
    sender = OutgoingTransfers()
    sender.begin_body(big(("a", "b")), ALL, ("a", "b"), 0.0)
    assert sender.note_report("a", ChunkReport("h", 5, 1, b"\1"), 1.0)
    for i in range(COUNT, COUNT + 30):
        assert not sender.note_report("a", ChunkReport("h", 5, 1, (1 << i).to_bytes(8, "little")), 2.0)


def test_a_receiver_that_died_knows_what_it_has(tmp_path: Path) -> None:
    files = Files(tmp_path / "bodies")
    first = IncomingTransfers(files)
    for i in (0, 3, 10):
        first.take_piece(chunk_of(i))
    (path,) = (tmp_path / "bodies").iterdir()
    torn = bytearray(path.read_bytes())
    torn[3 * CHUNK + 5] ^= 1  # chunk 3 did not reach the disk
    path.write_bytes(torn)
    second = IncomingTransfers(files)
    assert second.take_piece(offer()) == ("offer", None)
    ((to, held),) = second.take_reports()
    assert (to, int.from_bytes(held.bitmap, "little"), held.nonce) == ("a", 1 << 0 | 1 << 10, 99)


def test_an_offer_alone_completes_a_body_whose_chunks_are_all_there(tmp_path: Path) -> None:
    """The receiver was killed between the last chunk and the commit."""
    files = Files(tmp_path / "bodies")
    part = files.open_partial("a.5.1", len(BODY), CHUNK)
    for i in range(COUNT):
        piece = chunk_of(i)
        assert part.put_chunk(i, piece.body, piece.crc) == "new"
    verdict, name = IncomingTransfers(files).take_piece(offer())
    assert verdict == "offer" and name and bytes(files.read(name)) == BODY


def test_a_wrong_chunk_is_refused_and_a_wrong_whole_is_thrown_away(tmp_path: Path) -> None:
    files = Files(tmp_path / "bodies")
    receiver = IncomingTransfers(files)
    f = chunk_of(0)
    wrong = Chunk(*[getattr(f, n) for n in list(f.__dataclass_fields__)[:-1]], body=b"x" * CHUNK)
    assert receiver.take_piece(wrong) == ("broken", None)
    garbled = bytes(CHUNK) + BODY[CHUNK:]
    verdicts = [receiver.take_piece(chunk_of(i, garbled)) for i in range(COUNT)]
    assert verdicts[-1] == ("broken", None) and not list((tmp_path / "bodies").iterdir())
    ((_, held),) = receiver.take_reports()
    assert int.from_bytes(held.bitmap, "little") == 0


def test_an_old_answer_to_an_offer_starts_nothing() -> None:
    sender, out = OutgoingTransfers(), big(("b",))
    out.fresh = False
    sender.begin_body(out, "b", ["b"], 0.0)
    sender.begin_body(out, "b", ["b"], 1.0)
    (_, _, old), (_, _, new) = sender.questions
    sender.note_report("b", ChunkReport("a", 5, 1, b"", old), 1.0)
    assert list(sender.next_pieces(1.0)) == []
    sender.note_report("b", ChunkReport("a", 5, 1, b"\xff", new), 1.0)
    assert [i for _, _, i, _ in sender.next_pieces(1.0)] == [8, 9, 10]


def test_who_is_slow_leaves_the_group() -> None:
    sender, out = OutgoingTransfers(), big(("b", "c"))
    sender.begin_body(out, ALL, ["b", "c"], 0.0)
    sent = [i for _, _, i, _ in sender.next_pieces(0.0)]
    assert sent == list(range(8))
    sender.note_report("b", ChunkReport("a", 5, 1, b"\xff", 0), STALL)
    assert list(sender.next_pieces(STALL)) == []  # c has nothing, and the window is full
    sender.evict_slow(STALL + 0.5)
    assert [(dst, nonce > 0) for _, dst, nonce in sender.questions] == [("c", True)]
    sender.note_report("b", ChunkReport("a", 5, 1, b"\xff", 0), STALL + 0.5)
    assert [(dst, i) for _, dst, i, _ in sender.next_pieces(STALL + 0.5)] == [(ALL, 8), (ALL, 9), (ALL, 10)]
    nonce = sender.questions[0][2]
    sender.note_report("c", ChunkReport("a", 5, 1, b"\x01", nonce), STALL + 1)
    assert [(dst, i) for _, dst, i, _ in sender.next_pieces(STALL + 1)] == [("c", i) for i in range(1, 9)]


def test_the_window_follows_the_link() -> None:
    lane_of = {}
    for took in (0.01, 2.0):
        sender, out = OutgoingTransfers(), big(("b",))
        sender.begin_body(out, "b", ["b"], 0.0)
        assert deque(sender.next_pieces(0.0))
        sender.note_report("b", ChunkReport("a", 5, 1, b"\x0f", 0), took)
        lane_of[took] = sender.bodies[1].lanes["b"].window
    assert lane_of[0.01] > 8 > lane_of[2.0] >= 2


LARGE = 500_000  # floats: 2 MB, far more than a chunk and than what stays in the database


@pytest.mark.parametrize("worker", [True, False])
def test_large_bodies_over_three_tiers(tmp_path: Path, broker: LocalBroker, worker: bool) -> None:
    net = Net(tmp_path, broker.url, worker=worker)
    devices = [net.device(n, "h") for n in ("a", "b")]
    with playing(net.aggregator("h", rounds=3, size=LARGE), net.hospital("h", "a", "b"), *devices):
        eventually(lambda: net.rounds == 3)
        assert devices[0].counters["chunks_out.h"] > 3
    assert [done.total for _, done in net.told] == [LARGE * r for r in (1, 2, 3)]
    assert not [p for n in ("agg", "h", "a") for p in (tmp_path / n / "count.bodies").glob("*.part")]


def test_no_verified_chunk_is_sent_again_over_a_link_that_is_cut(tmp_path: Path, quick: LocalBroker) -> None:
    size = 1_500_000  # floats: 6 MB each way
    net = Net(tmp_path, quick.url, rto=2.0)
    with Proxy("127.0.0.1", quick.port, rate=4_000_000, latency=0.005, cut=2_000_000, seed=3) as link:
        device = net.device("a", "agg", broker=f"mqtt://127.0.0.1:{link.port}")
        aggregator = net.aggregator("a", rounds=1, size=size)
        with playing(aggregator, device):
            eventually(lambda: net.rounds == 1, 60)
            assert link.passed.cuts >= 3
            for node, peer in ((aggregator, "a"), (device, "agg")):
                assert node.counters[f"duplicate_chunk.{peer}"] == 0
    assert net.told[0][1].total == size


def test_a_receiver_that_is_killed_goes_on_where_it_was(tmp_path: Path, quick: LocalBroker) -> None:
    fleet = Fleet(tmp_path, quick.url, {"agg": ["h"], "h": ["a", "b"]}, size=LARGE)
    dice = random.Random(5)
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 1)
        for victim in ("a", "h", "agg", "b", "h"):
            eventually(lambda: any((tmp_path / n / "count.bodies").glob("*.part") for n in ("a", "b", "h", "agg")))
            fleet.kill(victim)
            fleet.start(victim)
            time.sleep(dice.uniform(0.1, 0.6))  # the moment is what is varied
        reached = fleet.rounds()
        eventually(lambda: fleet.rounds() >= reached + 2)
        fleet.stop_all()
        fleet.check()
    finally:
        fleet.end()
