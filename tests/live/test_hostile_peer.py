"""What a peer writes costs that payload and a line in the log: deep nesting, wrong topics, lengths that are none."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from edge_sdk.contract.node import Record
from edge_sdk.delivery.roles.calls import Calls
from edge_sdk.delivery.session import Session
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.membership.older_copies import is_behind_parent
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.fields import LARGEST, LARGEST_BODY, SMALLEST_CHUNK
from edge_sdk.wire.frames import MOST_CHUNKS, Hello
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

DIGEST = b"\1" * 16
HEAD = ["count", "h", 3, 12, 7, [["agg", 3, 9]], 5, True]
HEADERS: list[list[Any]] = [
    ["m", *HEAD],
    ["c", *HEAD, 40_000, SMALLEST_CHUNK, DIGEST, 1, 77, True],
    ["o", *HEAD, 40_000, SMALLEST_CHUNK, DIGEST, 99],
    ["p", "count", "h", [["agg", 3, 12, b"\3", 99]]],
    ["a", "count", "h", [["agg", 3, 9]], 7, 9],
    ["b", "h", 3, 4, "count", True, "", False, 2, 8, ["power", 0.2, 0.3], 2, 3, ["1", "pi", 50], 7],
    ["h", "h", 5, 6, "count", True, 4, 2, 9, True, 3, "", 7, 8],
]
DEEP = 1015  # nearly the deepest that msgpack unpacks; Python's own limit is below


def nest(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def write(fields: list[Any], body: bytes = b"body") -> bytes:
    """A frame with this header. A field that is bytes of a DEEP list stands for that: msgpack does not pack it."""
    header = bytes((0xDC,)) + len(fields).to_bytes(2, "big")
    header += b"".join(b"\x91" * DEEP + b"\xc0" if f is DEEP else msgpack.packb(f) for f in fields)
    return len(header).to_bytes(2, "little") + header + bytes(-(2 + len(header)) % 8) + body


@contextmanager
def opened(node: Runtime) -> Iterator[Runtime]:
    """A node with its run open, and no loop and no broker."""
    with ExitStack() as stack:
        for lane in node.lanes:
            lane.open(stack, node.run_given if lane is node.main else None)
        yield node


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[Runtime]:
    with opened(Net(tmp_path, "mqtt://127.0.0.1:1").aggregator("h")) as node:
        yield node


def give(node: Runtime, topic: str, payload: bytes) -> None:
    node.of_lanes.find_dispatcher(topic).take_payload(topic, payload)


@pytest.mark.parametrize("header", HEADERS, ids=[h[0] for h in HEADERS])
def test_lists_deep_within_each_other_are_refused_wherever_they_stand(aggregator: Runtime, header: list[Any]) -> None:
    channel = "b" if header[0] in "bh" else "m"
    for at in range(len(header)):
        give(
            aggregator,
            topics.upward("h" if at % 2 else "agg", "h", channel),
            write([*header[:at], DEEP, *header[at + 1 :]]),
        )
    refused = {name: count for name, count in aggregator.counters.items() if name.startswith("refused.")}
    assert sum(refused.values()) == len(header), refused


VALUES = [
    None, True, -1, 0, 2**31, 2**32, 2**53, LARGEST, LARGEST + 1, 2**64 - 1, 0.5, float("nan"),
    "", "h", "\0", "x" * 300, b"\xed\xa0\x80", b"", b"\xff" * 40_000, DIGEST, [], {}, [[]], {"a": [1]},
    [["agg", 3, 9, b"\xff", 99]], [["agg", 3, LARGEST + 1]], nest(40), DEEP,
]  # fmt: skip
TOPICS = [
    topics.upward("agg", "h", "m"),
    topics.upward("agg", "h", "b"),
    topics.upward("agg", "h", "m", 2),
    topics.upward("agg", "stranger", "m"),
    topics.upward("other", "h", "b"),
    topics.upward("agg", "s" * 60_000, "b"),
    topics.downward("agg", "h", "m"),
    topics.downward("h", "all", "r"),
    "auscult/v1/agg/h/up/f",
    "auscult/v1/agg//up/m",
    "auscult/v1/////",
    "$SYS/broker",
    "?",
    "",
    "\0\r\n\x1b[2J",
]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_peer_writes_costs_that_payload_only(aggregator: Runtime, seed: int) -> None:
    dice, given = random.Random(seed), 400
    for _ in range(given):
        header = list(dice.choice(HEADERS))
        for _ in range(dice.randrange(3)):
            header[dice.randrange(len(header))] = dice.choice(VALUES)
        payload = bytearray(write(header, dice.randbytes(dice.randrange(40))))
        if dice.random() < 0.3:
            payload[dice.randrange(len(payload))] = dice.randrange(256)
        topic = dice.choice(TOPICS[:2] if dice.random() < 0.6 else TOPICS)
        give(aggregator, topic, bytes(payload[: dice.choice([len(payload), dice.randrange(len(payload))])]))
    assert sum(n for name, n in aggregator.counters.items() if name.startswith("refused.")) > given / 3
    assert not aggregator.membership.is_broken and aggregator.session is not None


@pytest.mark.parametrize("liar", ["h", "a"])
def test_a_child_that_says_that_it_was_asked_more_voids_a_round_once(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch, liar: str
) -> None:
    """Its parent takes itself for an older copy of its disk, as nobody can tell that from a lie, and asks again."""
    net, disks = Net(tmp_path, quick.url), set[int]()
    nodes = {"agg": net.aggregator("h"), "h": net.hospital("h", "a", "b")}
    nodes |= {name: net.device(name, "h") for name in ("a", "b")}
    parent = nodes["agg" if liar == "h" else "h"]

    honest = Calls.find_latest_asked

    def asked(calls: Calls, record: Record) -> int:
        session = nodes[liar].session
        lies = session is not None and session.calls is calls and parent.session is not None
        return parent.session.node.record.below.number + 10**6 if lies and parent.session else honest(calls, record)

    monkeypatch.setattr(Calls, "find_latest_asked", asked)
    with playing(*nodes.values()):
        eventually(lambda: net.rounds >= 2)
        for _ in range(4):
            assert parent.session is not None
            disks.add(parent.session.store.epoch)
            nodes[liar].announcer.announce()
            before = net.rounds
            eventually(lambda before=before: net.rounds >= before + 10, 15)  # type: ignore[misc]
    assert len(disks) <= 2
    assert [(number, done.round, done.devices) for number, done in net.told] == [
        (i + 1, i + 1, 2) for i in range(len(net.told))
    ]


def test_a_child_whose_store_is_renewed_within_a_connection_is_asked_again(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has acknowledged the question and works on it; nothing else that is on its way makes its parent repeat it."""
    net, working, goes_on = Net(tmp_path, quick.url), threading.Event(), threading.Event()

    def work(round: int) -> None:
        if round == 3:
            working.set()
            assert goes_on.wait(20)

    def is_behind(session: Session, hello: Hello) -> bool:
        if session.name == "a" and working.is_set() and not goes_on.is_set():
            goes_on.set()
            return True
        return is_behind_parent(session, hello)

    monkeypatch.setattr("edge_sdk.live.membership.older_copies.is_behind_parent", is_behind)
    hospital, device = net.hospital("h", "a"), net.device("a", "h", work)
    with playing(net.aggregator("h"), hospital, device):
        assert working.wait(20)
        eventually(lambda: hospital.session is not None and not hospital.session.outbox.pending, 20)
        device.announcer.announce()
        eventually(lambda: net.rounds >= 5, 20)


# Lengths --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (10, LARGEST, "have 4096 to"),
        (9, LARGEST_BODY + 1, "bytes, it has 1 to"),
        (12, MOST_CHUNKS, f"at most {MOST_CHUNKS}"),
        (13, 2**32, "32 bits"),
    ],
)
def test_lengths_of_a_chunk_have_bounds(
    aggregator: Runtime, caplog: pytest.LogCaptureFixture, at: int, value: int, says: str
) -> None:
    header = list(HEADERS[1])
    header[at] = value
    give(aggregator, TOPICS[0], write(header))
    assert says in caplog.text and "frame 'c'" in caplog.text
    assert aggregator.counters["refused.malformed.h"] == 1


def test_a_report_has_no_more_chunks_than_a_body_may_have(
    aggregator: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    give(aggregator, TOPICS[0], write(["p", "count", "h", [["agg", 3, 12, b"\xff" * (MOST_CHUNKS // 8 + 1), 99]]]))
    assert f"a bitmap of {MOST_CHUNKS // 8 + 1} bytes" in caplog.text


def test_a_topic_has_a_bound_before_it_is_kept(aggregator: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    topics.parse_topic.cache_clear()
    for i in range(20):
        give(aggregator, topics.upward("agg", f"{i}" + "s" * 60_000, "m"), write(HEADERS[0]))
    assert topics.parse_topic.cache_info().currsize == 0
    assert aggregator.counters["refused.malformed.?"] == 20
    assert "has 60" in caplog.text and len(caplog.text) < 20_000
