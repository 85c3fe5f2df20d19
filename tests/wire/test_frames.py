"""Frames and topics: what is written is read back, and whatever else arrives is a PeerError."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import msgpack
import pytest

from edge_sdk.errors import PeerError
from edge_sdk.wire import topics
from edge_sdk.wire.fields import LARGEST
from edge_sdk.wire.frames import ACKS_PER_FRAME, Acks, Birth, Frame, Hello, Message, pack_frame, unpack_frame

FRAMES: list[Frame] = [
    Message("run", "a", 1, 2, 1, (("h", 3, 4), ("agg", 5, LARGEST)), 7, True, b"body"),
    Acks("run", "a", (("h", 3, 4),)),
    Acks("run", "h", (), 7, 2**32 + 3),
    Birth("a", 9, 10, "run", True, "no such bundle", False, 2, 12),
    Birth("a", 9, 10, "run", True, count=1, asked=2**40 + 3),
    Hello("h", 9, 10, "run", True, 10, 2, 12, True, 3, "", 7, 0, b"the run"),
    Hello("h", 9, 10, "run", True, 10, 2, 12, True, 3, "", body=b"the run"),
]
NAMES = [type(f).__name__ for f in FRAMES]


@pytest.mark.parametrize("frame", FRAMES, ids=NAMES)
def test_round_trip(frame: Frame) -> None:
    back = unpack_frame(pack_frame(frame))
    assert bytes(back.body) == frame.body
    assert pack_frame(back) == pack_frame(frame)


@pytest.mark.parametrize("frame", FRAMES, ids=NAMES)
def test_body_is_aligned(frame: Frame) -> None:
    assert (len(pack_frame(frame)) - len(frame.body)) % 8 == 0


@pytest.mark.parametrize("frame", FRAMES, ids=NAMES)
def test_every_truncation_of_the_header_is_a_peer_error(frame: Frame) -> None:
    payload = pack_frame(frame)
    for end in range(len(payload) - len(frame.body)):
        with pytest.raises(PeerError):
            unpack_frame(payload[:end])


@pytest.mark.parametrize("frame", FRAMES, ids=NAMES)
def test_flipped_bytes_are_a_frame_or_a_peer_error(frame: Frame) -> None:
    dice, payload = random.Random(1), pack_frame(frame)
    for _ in range(2000):
        garbled = bytearray(payload)
        for _ in range(dice.randint(1, 4)):
            garbled[dice.randrange(len(garbled))] = dice.randrange(256)
        is_frame_or_peer_error(bytes(garbled))


def test_noise_is_a_peer_error() -> None:
    dice = random.Random(2)
    for _ in range(2000):
        is_frame_or_peer_error(dice.randbytes(dice.randrange(60)))


def is_frame_or_peer_error(payload: bytes) -> None:
    with suppress(PeerError):
        unpack_frame(payload)


@pytest.mark.parametrize(
    "header",
    [
        ["m", "run", "a", 1, 2**63, 1, [], 1, True],
        ["m", "run", "a", -1, 2, 1, [], 1, True],
        ["m", "run", "a", True, 2, 1, [], 1, True],
        ["m", "run", "a", 1, 2, 1, [["h", 1]], 1, True],
        ["m", "run", "a", 1, 2, 1, [], 1, 1],
        ["m", "run", b"a", 1, 2, 1, [], 1, True],
        ["x", 1],
        [["m"]],
        [],
        {"m": 1},
    ],
)
def test_a_field_of_another_type_is_named(header: object) -> None:
    packed = msgpack.packb(header)
    with pytest.raises(PeerError):
        unpack_frame(len(packed).to_bytes(2, "little") + packed + bytes(8))


def test_a_later_version_may_append_fields() -> None:
    packed = msgpack.packb(["a", "run", "a", [], 0, 0, "new"])
    assert unpack_frame(len(packed).to_bytes(2, "little") + packed + bytes(8)).src == "a"


def test_the_largest_header_fits() -> None:
    acks = tuple(("n" * 64, LARGEST, LARGEST) for _ in range(ACKS_PER_FRAME))
    name = "n" * 64
    assert unpack_frame(pack_frame(Message(name, name, LARGEST, LARGEST, LARGEST, acks, LARGEST, True))).src == name


def test_topics() -> None:
    assert topics.parse_topic(topics.upward("h", "a", "m")) == topics.ParsedTopic("h", "a", True, "m")
    assert topics.parse_topic(topics.downward("h", "all", "b")).sender == "h"
    for topic in ("auscult/v1/h/a/up", "auscult/v2/h/a/up/m", "auscult/v1/h/a/sideways/m", "", "?"):
        with pytest.raises(PeerError):
            topics.parse_topic(topic)


def test_a_header_of_promises_costs_no_memory() -> None:
    """900 lists within each other, each of which says that it has 65,535 items, once took 70 MB."""
    header = (b"\xdc\xff\xff" * 900).ljust(65535, b"\xc0")
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            unpack_frame(len(header).to_bytes(2, "little") + header + bytes(8))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
