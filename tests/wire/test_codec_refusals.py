"""What a codec refuses: bytes that are not as declared, values that were not declared, and what is too large."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from math import inf, nan
from typing import Annotated, Any, TypeVar

import msgpack
import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType

from edge_sdk.algebra.arrays import Tensor, Theta, Values
from edge_sdk.contract.node import Envelope
from edge_sdk.contract.round import Policy
from edge_sdk.errors import EncodeError, UsageError
from edge_sdk.wire.codec.codec import CONTAINERS, HEADER_LIMIT, Codec, DecodeError
from tests.wire.codec_messages import LAYOUT, Box, Chain, Global, Packed, Sum, array, refuse, same, wire

W = array(0, [6], 0)


SIX = np.ones(6, np.float32).tobytes()


HEADERS = [
    (["Foo", 1], "unknown type 'Foo' at $; known: Sum, Global, Envelope, Chain, Box"),
    ([], "expected Sum | Global | Envelope | Chain | Box, got tuple at $"),
    (5, "expected Sum | Global | Envelope | Chain | Box, got int 5 at $"),
    (["Sum", array(0, [10], 0), 1, {}], "expected float32 (6,), got float32 (10,) at $.total"),
    (["Sum", array(1, [6], 0), 1, {}], "expected float32 (6,), got float64 (6,) at $.total"),
    (["Sum", array(0, [2**62], 0), 1, {}], "expected float32 (6,), got float32 (4611686018427387904,) at $.total"),
    (["Sum", [1.0] * 6, 1, {}], "expected float32 (6,), got tuple at $.total"),
    (["Sum", msgpack.ExtType(2, b""), 1, {}], "expected float32 (6,), got an unknown extension at $.total"),
    (["Sum", array(99, [6], 0), 1, {}], "expected float32 (6,), got an unknown extension at $.total"),
    (["Sum", array(0, [-6], 0), 1, {}], "expected float32 (6,), got an unknown extension at $.total"),
    (["Sum", array(0, [6], 1), 1, {}], "expected array 0 or an earlier one, got 1 at $.total"),
    (["Sum", W, True, {}], "expected int, got bool True at $.count"),
    (["Sum", W, 1, {"a": 1.0, "loss": "x" * 99}], f"expected float, got str '{'x' * 56}... at $.scores['loss']"),
    (["Sum", W, 1, {b"loss": 1.0}], "expected str, got bytes b'loss' at $.scores[b'loss']"),
    (["Global", ["Packed", [1, None], W]], "expected int, got None at $.model.ranks[1]"),
    (["Global", ["Packed", [1, 2], W]], "Packed: 2 ranks for 1 layers at $.model"),
    (["Global", ["Sum", W]], "expected Packed, got tuple of 'Sum', ... at $.model"),
    (["Envelope", "a", "b", 1, ["Foo"]], "unknown type 'Foo' at $.message; known: Sum, Global, Envelope, Chain, Box"),
    (
        ["Envelope", "a", "b", 1, ["Sum", array(0, [1], 0)]],
        "expected float32 (6,), got float32 (1,) at $.message.total",
    ),
    (["Box", [0, [1, ["Sum", 1]]]], "expected str, got tuple of 'Sum', ... at $.content[0][0]"),
    (["Box", [1, "b", "a"]], "expected frozenset[str] in ascending order, each name once at $.content"),
    (["Box", [0, W, array(0, [3], 0)]], "expected float32 (6,) of array 0, got float32 (3,) at $.content[1]"),
    (["Box", msgpack.Timestamp(5)], "expected Sum | Global | Envelope | Chain | Box, got Timestamp at $.content"),
    (["Box", array(0, [0, 2**62, 2**62], 0)], None),
]


@pytest.mark.parametrize(("header", "text"), HEADERS)
def test_errors_are_addresses(header: Any, text: str | None) -> None:
    codec = Codec([Sum, Global, Envelope, Chain, Box], layout=LAYOUT)
    if text:
        refuse(codec, wire(header, SIX), text)
    else:
        with pytest.raises(DecodeError, match=r"at \$.content"):
            codec.decode(wire(header, SIX))


def test_frames_that_are_cut_padded_or_prolonged() -> None:
    codec = Codec([Sum, Box], layout=LAYOUT)
    good = wire(["Sum", W], SIX)
    assert codec.decode(good, Sum).count == 1
    refuse(codec, b"", "truncated: 0 of 4 bytes of the header's length at $")
    refuse(codec, good[:9], f"truncated: 5 of {good[0]} bytes of the header at $")
    refuse(codec, good[:-12], "truncated: 12 of 24 bytes of the array at $.total")
    refuse(codec, good + b"\0", "1 bytes after the last array at $")
    refuse(codec, good, "unknown type 'Sum' at $; known: Box", Box)
    refuse(
        codec,
        wire(["Box", array(7, [3], 0)], b"\1\2\3\4"),
        r"expected 5 zeros as padding, got b'\x04\x00\x00\x00\x00' at $.content",
    )
    refuse(
        codec,
        wire(["Box", array(11, [3], 0)], b"\1\0\2"),
        "expected 0 or 1 in every byte of an array of bool, got 2 at $.content[2]",
    )
    refuse(
        codec,
        struct.pack("<I", HEADER_LIMIT + 1) + bytes(8),
        f"a header of {HEADER_LIMIT + 1} bytes, at most {HEADER_LIMIT} at $",
    )
    refuse(codec, wire(b"\xc1"), "the header is no msgpack: FormatError at $")


def test_a_symbol_is_one_size_in_a_message_and_anew_behind_any() -> None:
    pair = make_dataclass("Pair", [("a", Theta), ("b", Theta), ("c", Any, field(default=None))], frozen=True)
    free, fixed = Codec([pair]), Codec([pair], layout=LAYOUT)
    two, three = np.zeros(2, np.float32), np.zeros(3, np.float32)
    assert same(free.decode(free.encode(pair(two, two, pair(three, three)))), pair(two, two, pair(three, three)))
    with pytest.raises(EncodeError, match=r"expected float32 \(2,\), got float32 \(3,\) at \$\.b"):
        free.encode(pair(two, three))
    with pytest.raises(EncodeError, match=r"expected float32 \(6,\), got float32 \(2,\) at \$\.a"):
        fixed.encode(pair(two, two))


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_numbers_that_are_not_finite_are_refused_in_arrays_of_messages(bad: float) -> None:
    w = np.zeros((3, 2), np.float32)
    w[2, 1] = bad
    with pytest.raises(EncodeError, match=rf"expected finite numbers, got {bad} at \$\.content\[2, 1\]"):
        Codec([Box]).encode(Box(w))
    data = Codec([Box], finite=False).encode(Box(w))
    refuse(Codec([Box]), data, f"expected finite numbers, got {bad} at $.content[2, 1]")


def test_the_limit_holds_both_ways() -> None:
    value = Box(np.zeros(100, np.uint8))
    data = Codec([Box]).encode(value)
    assert same(Codec([Box], limit=len(data)).decode(data), value)
    refuse(Codec([Box], limit=len(data) - 1), data, f"a message of {len(data)} bytes, at most {len(data) - 1} at $")
    with pytest.raises(EncodeError, match=f"a message of {len(data)} bytes"):
        Codec([Box], limit=len(data) - 1).encode(value)
    with pytest.raises(EncodeError, match="a header of"):
        Codec([Box]).encode(Box(bytes(HEADER_LIMIT)))


def test_depth_has_a_bound() -> None:
    codec, chain = Codec([Chain]), Chain()
    for _ in range(31):
        chain = Chain(chain)
    assert codec.decode(codec.encode(chain)) == chain
    with pytest.raises(EncodeError, match="nested more than 32 deep"):
        codec.encode(Chain(chain))
    with pytest.raises(DecodeError, match="nested more than 32 deep"):
        codec.decode(wire(b"\x92\xa5Chain" * 33 + b"\xc0"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Packed((1,), np.zeros(1, np.float32)), "type Packed is not declared at $; declared: Sum, Box"),
        (Box(Chain()), "type Chain is not declared at $.content; declared: Sum, Box"),
        (Box([1]), "type list is not declared at $.content; declared: Sum, Box"),
        (Box({1: 2}), "expected str, got int 1 at $.content[1]"),
        (Box(2**64), "expected an int of 64 bits, got 65 bits at $.content"),
        (Box("\ud800"), "expected text that UTF-8 can write, got str '\\ud800' at $.content"),
        (Sum(np.zeros(6, np.float32), 1.5), "expected int, got float 1.5 at $.count"),  # type: ignore[arg-type]
        (Sum(np.zeros(6, np.float32), True), "expected int, got bool True at $.count"),
        (Sum(np.zeros(6, np.float32), 1, {"a": 2**53 + 1}), None),
        (Sum(np.zeros(6, ">f4")), None),
        (Sum(np.ma.zeros(6, np.float32)), None),
        (Sum([0.0] * 6), "expected float32 (6,), got list at $.total"),  # type: ignore[arg-type]
        (Box(np.array(["a"])), None),
        (Box(np.array([None])), None),
    ],
)
def test_what_is_not_declared_is_not_written(value: Any, text: str | None) -> None:
    with pytest.raises(EncodeError, match=r"at \$") as caught:
        Codec([Sum, Box], layout=LAYOUT).encode(value)
    assert isinstance(caught.value, UsageError)
    assert text is None or str(caught.value) == text


def having(annotation: Any, name: str = "Odd") -> type:
    return make_dataclass(name, [("x", annotation)], frozen=True)


@pytest.mark.parametrize(
    ("roots", "text"),
    [
        ([having(list[int])], r"Odd\.x: list\[int\] cannot be written; what can: int, float"),
        ([having(npt.NDArray[np.float32])], r"Odd\.x: .*ndarray.* cannot be written"),
        ([having(Mapping[int, str])], r"Odd\.x: .* cannot be written"),
        ([having(frozenset[int])], r"Odd\.x: .* cannot be written"),
        ([having(complex)], r"Odd\.x: complex cannot be written"),
        ([having(Annotated[float, Tensor(())])], r"Odd\.x: one Tensor annotates one numpy array"),
        ([having(tuple[int, ...] | frozenset[str])], r"Odd\.x: .* cannot be told apart"),
        ([having(Sum | tuple[int, ...])], r"Odd\.x: .* cannot be told apart"),
        ([having(Theta | Values)], r"Odd\.x: .* cannot be told apart"),
        ([having(Any | None)], r"Odd\.x: Any takes in the rest"),
        ([having("Nowhere")], r"Odd: its annotations cannot be read: name 'Nowhere' is not defined"),
        ([Box, having(int, "Box")], "roots: two classes are named Box"),
        ([having(having(int, "Sum")), Sum], "roots: two classes are named Sum"),
        ([int], "roots: <class 'int'> is no frozen dataclass"),
        ([make_dataclass("Loose", ["x"])], "Loose'> is no frozen dataclass"),
        ([make_dataclass("Late", [("x", int, field(init=False))], frozen=True)], r"Late\.x: a field with init=False"),
    ],
)
def test_what_cannot_be_written_is_found_at_construction(roots: list[type], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Codec(roots)


def test_a_class_that_is_not_a_root_cannot_be_expected() -> None:
    with pytest.raises(UsageError, match="expect = Chain, which is none of Box"):
        Codec([Box, Box]).decode(b"", Chain)


def test_a_constructor_that_refuses_is_the_peers_fault() -> None:
    refuse(
        Codec([Policy]),
        wire(["Policy", 0]),
        "Policy: policy: need = 0, at least 1 answer ends a round (leave it out for all) at $",
    )


@pytest.mark.parametrize("count", [CONTAINERS - 2, CONTAINERS])
def test_what_is_written_can_be_read(count: int) -> None:
    """A node once saved a record that it could not read again."""
    codec, value = Codec([Box]), Box(tuple((i,) for i in range(count)))
    try:
        data = codec.encode(value)
    except EncodeError as e:
        assert count == CONTAINERS and f"more than {CONTAINERS}" in str(e)
    else:
        assert same(codec.decode(data), value)


def test_many_containers_are_refused_before_they_cost_memory() -> None:
    refuse(
        Codec([Box]),
        wire(["Box", [0, *[[0]] * CONTAINERS]]),
        f"the header is no msgpack: more than {CONTAINERS} tuples, maps and arrays at $",
    )


@pytest.mark.parametrize("bad", [["n"], ("",), (-1,), (1.0,), (True,)])
def test_a_tensor_checks_its_dims(bad: Any) -> None:
    with pytest.raises(UsageError, match="Tensor"):
        Tensor(bad)


def test_a_tensor_checks_its_dtype() -> None:
    with pytest.raises(UsageError, match="'complex64' is none of float, float32"):
        Tensor((), "complex64")


def test_an_array_whose_type_is_an_alias_of_its_own():
    """numpy's NDArray from version 2.5 on."""
    kind = TypeVar("kind", bound=np.generic)
    alias = TypeAliasType("alias", npt.NDArray[kind], type_params=(kind,))
    message = having(Annotated[alias[np.uint8], Tensor(("?",), "uint8")])
    codec = Codec([message])
    found = codec.decode(codec.encode(message(np.arange(3, dtype=np.uint8))))
    assert found.x.tobytes() == bytes(range(3))
