"""Whatever bytes arrive: a value that can be written again, or DecodeError, and never much memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from edge_sdk.contract.node import Envelope, Record
from edge_sdk.contract.round import Policy, Round
from edge_sdk.wire.codec.codec import CONTAINERS, HEADER_LIMIT, Codec, DecodeError
from tests.wire.codec_messages import LAYOUT, Box, Chain, Everything, Global, Packed, Sum, array, wire

CODEC = Codec([Everything, Global, Sum, Chain, Box, Envelope, Record, Round], layout=LAYOUT)

W = np.linspace(-1, 1, 6, dtype=np.float32)
SUM = Sum(W, 3, {"loss": 0.5, "correct": 2.0})
GLOBAL = Global(Packed((2,), W[:3]), 5)
POLICY = Policy(need=2, deadline=9.0, idle=9.0)
ROUND = Round(POLICY, 4, {"a": 4, "b": 3}, frozenset({"c", "d"}), True, 9.0, asked_at=2.0)
OLDER = {"a": Envelope("h", "a", 4, SUM, lasts=9.0), "b": Envelope("h", "b", 3, GLOBAL, lasts=9.0)}
MESSAGES = [
    SUM,
    GLOBAL,
    Chain(Chain(Chain())),
    Box((1, -0.5, None, {"k": (True, "text", b"raw")}, frozenset({"x", "y"}), np.eye(3, dtype=np.int16), SUM)),
    Envelope("hospital-1", "up", 7, GLOBAL, True, 9.0),
    Record(ROUND, 2, True, SUM, OLDER),
    Everything(
        1, 0.5, True, "text", b"raw", None, None, "either", GLOBAL.model, 2.5, (1, 2**40), ("p", 0.25), (),
        {"t": (1.0,)}, frozenset({"n"}), W, {"w": W, "none": None}, np.eye(2, dtype=np.int64), np.ones((3, 2), bool),
        np.array(0.5, np.float32), {"sum": SUM, "w": W},
    ),
]  # fmt: skip
WRITTEN = [CODEC.encode(m) for m in MESSAGES]

by_message = pytest.mark.parametrize("data", WRITTEN, ids=[type(m).__name__ for m in MESSAGES])


def survives(data: bytes) -> bool:
    """True if it was a message; anything but a value or DecodeError is a failure of the test that asked."""
    try:
        value = CODEC.decode(data)
    except DecodeError as error:
        assert " at $" in str(error)
        return False
    CODEC.encode(value)
    return True


@by_message
def test_every_truncation_is_refused(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            CODEC.decode(data[:size])


@by_message
def test_every_single_bit(data: bytes) -> None:
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        survives(bytes(flipped))


@by_message
def test_random_bytes_in_random_places(data: bytes) -> None:
    draw = random.Random(len(data))
    read = 0
    for _ in range(4000):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(data))] = draw.choice((draw.randrange(256), 0, 0xFF, 0x7F, 0x80))
        read += survives(bytes(changed))
    assert 0 < read < 4000


@by_message
def test_pieces_cut_out_put_in_and_swapped(data: bytes) -> None:
    draw = random.Random(len(data))
    for _ in range(1000):
        i, j = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        survives(data[:i] + data[j:])
        survives(data[:i] + draw.randbytes(draw.randint(1, 9)) + data[i:])
        survives(data[:i] + draw.choice(WRITTEN)[i:])


def test_garbage() -> None:
    draw = random.Random(1)
    for size in range(2000):
        noise = draw.randbytes(size % 100)
        assert not survives(noise)
        assert not survives(wire(noise))


def tree(draw: random.Random, depth: int) -> Any:
    """Something that msgpack can write, often nearly a message."""
    leaves = [None, True, 0, 1, 5, -1, 2**63, 0.5, float("nan"), "", "Sum", "Box", b"x", msgpack.Timestamp(1)]
    leaves += [array(draw.randrange(14), [draw.choice((0, 1, 6, 2**32))] * draw.randrange(4), draw.randrange(3))]
    leaves += [msgpack.ExtType(draw.randrange(3), draw.randbytes(4))]
    shape = draw.randrange(5) if depth else 0
    if shape < 2:
        return draw.choice(leaves)
    items = [tree(draw, depth - 1) for _ in range(draw.randrange(5))]
    if shape == 2:
        return {draw.choice(("a", "b", 1)): i for i in items}
    return [draw.choice((0, 1, "Sum", "Box", "Global", "Packed", "Envelope", "Chain", "Round")), *items]


def test_random_headers() -> None:
    draw = random.Random(2)
    headers = ([draw.choice(("Box", "Sum", "Chain")), tree(draw, 4)] for _ in range(10000))
    read = sum(survives(wire(header, *draw.choice(([], [W.tobytes()])))) for header in headers)
    assert read > 100


def peak(data: bytes) -> int:
    """Bytes that Python has at most held at once while refusing the data."""
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            CODEC.decode(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def claim(code: int, items: int) -> bytes:
    """The head of a msgpack list, map, text, ... with a length of 32 bits."""
    return bytes([code]) + struct.pack(">I", items)


BOX = b"\x92\xa3Box"
FEW = 96 * 2**10  # bytes: frames and messages of an exception from some thirty calls deep
HOSTILE = {
    "an array of petabytes": wire(["Box", array(0, [2**50], 0)]),
    "an array beyond all numbers": wire(["Box", array(0, [2**63] * 32, 0)]),
    "an array of many axes": wire(["Box", array(0, [1] * 1000, 0)]),
    "an array of nothing, beyond all numbers": wire(["Box", array(0, [0] + [2**63] * 31, 0)]),
    "a shape that is a list of lists": wire(["Box", msgpack.ExtType(1, claim(0xDD, 2**32 - 1) * 99)]),
    "a shape in a large extension": wire(["Box", msgpack.ExtType(1, b"\x91" * 10**5)]),
    "a list of billions": wire(BOX + claim(0xDD, 2**32 - 1)),
    "a list as long as the header": wire(BOX + claim(0xDD, 10**5) + bytes(10**5 - 1)),
    "lists of many inside each other": wire(BOX + claim(0xDD, 5000) * 1000),
    "maps of many inside each other": wire(BOX + claim(0xDF, 5000) * 1000),
    "a map of billions": wire(BOX + claim(0xDF, 2**32 - 1)),
    "a text of gigabytes": wire(BOX + claim(0xDB, 2**32 - 1)),
    "bytes of gigabytes": wire(BOX + claim(0xC6, 2**32 - 1)),
    "an extension of gigabytes": wire(BOX + claim(0xC9, 2**32 - 1)),
    "many extensions": wire(BOX + claim(0xDD, 10**5) + b"\xd4\x01\x00" * 10**4),
    "lists in lists": wire(BOX + b"\x91" * 10**5 + b"\0"),
    "tuples in tuples": wire(BOX + b"\x92\0" * 500 + b"\0"),
    "messages in messages": wire(BOX * 300 + b"\0"),
    "a header of gigabytes": struct.pack("<I", 2**32 - 1) + bytes(1000),
    "a long unknown name": wire(["x" * 10**5]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_promises_cost_no_memory(data: bytes) -> None:
    assert peak(data) < 4 * len(data) + FEW


BOMBS = {
    "empty tuples": b"\x90",
    "empty maps": b"\x80",
    "tuples": b"\x91\0",
    "maps": b"\x81\xa0\0",
    "tuples in tuples": b"\x91" * 99 + b"\0",
    "extensions": b"\xd4\1\0",
    "short texts": b"\xa2ab",
    "floats": b"\xcb" + bytes(8),
    "times": b"\xd6\xff" + bytes(4),
}


@pytest.mark.parametrize("item", BOMBS.values(), ids=BOMBS)
def test_what_is_there_costs_a_bounded_multiple(item: bytes) -> None:
    """Many tiny objects are the worst that a header can hold. Texts of two letters are the worst of them."""
    count = (HEADER_LIMIT - 64) // len(item)
    bomb = wire(BOX + claim(0xDD, count + 1) + b"\0" + item * count, b"one byte too many")
    assert peak(bomb) < 300 * CONTAINERS + 24 * HEADER_LIMIT


def test_bodies_are_not_copied() -> None:
    data = CODEC.encode(Box((np.zeros(10**6, np.uint8), 1)))
    assert peak(data + b"\0") < 10**5
