"""The codec: every kind there and back bit for bit, frozen bytes, and errors that are addresses."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from math import inf, nan
from typing import Annotated, Any

import msgpack
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge_sdk.algebra.arrays import DTYPES, Tensor, Theta, Values
from edge_sdk.contract.node import Envelope, Record
from edge_sdk.contract.round import Policy, Round
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.wire.codec.codec import CONTAINERS, HEADER_LIMIT, Codec, DecodeError, EncodeError
from tests.wire.codec_messages import LAYOUT, Box, Chain, Everything, Global, Packed, Sum, array, same, wire


def floats(*shape: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.float32, shape, elements=st.floats(width=32))


INTS, TEXT = st.integers(-(2**63), 2**64 - 1), st.text(max_size=5)
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)))
PLAIN = st.none() | st.booleans() | INTS | st.floats() | TEXT | st.binary(max_size=5) | st.frozensets(TEXT) | ARRAYS
SUMS = st.builds(Sum, floats(6), INTS, st.dictionaries(TEXT, st.floats(), max_size=2))
PACKED = st.builds(Packed, st.tuples(INTS), floats(3))
ANY = st.recursive(
    PLAIN | SUMS, lambda s: st.lists(s, max_size=3).map(tuple) | st.dictionaries(TEXT, s, max_size=3), max_leaves=6
)
EVERYTHING = st.builds(
    Everything, INTS, st.floats(), st.booleans(), TEXT, st.binary(max_size=9), st.none(), st.none() | INTS,
    st.none() | INTS | st.floats() | TEXT, st.none() | PACKED | SUMS, st.none() | st.floats(),
    st.lists(INTS, max_size=3).map(tuple), st.tuples(TEXT, st.floats()), st.just(()),
    st.dictionaries(TEXT, st.lists(st.floats(), max_size=2).map(tuple), max_size=2), st.frozensets(TEXT, max_size=3),
    floats(6), st.dictionaries(TEXT, st.none() | floats(6), max_size=2), hnp.arrays(np.int64, (2, 2)),
    hnp.arrays(np.bool_, (3, 2)), floats(), ANY,
)  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=150)
@given(EVERYTHING)
def test_every_kind_survives_bit_for_bit(value: Everything) -> None:
    codec = Codec([Everything, Sum], layout=LAYOUT, finite=False)
    data = codec.encode(value)
    back = codec.decode(data, Everything)
    assert same(value, back)
    assert codec.encode(back) == data


@settings(derandomize=True, deadline=None, max_examples=100)
@given(ANY)
def test_plain_data_survives_behind_any(value: Any) -> None:
    codec = Codec([Box, Sum], finite=False)
    assert same(codec.decode(codec.encode(Box(value)), Box).content, value)


def test_zeros_of_either_sign_and_every_nan_survive_in_a_state() -> None:
    w = np.array([0x80000000, 0x7FC00001, 0xFFC00000, 0x7F800000, 0x00000001, 0], np.uint32).view(np.float32)
    codec = Codec([Sum], layout=LAYOUT, finite=False)
    back = codec.decode(codec.encode(Sum(w, scores={"z": -0.0, "n": nan, "i": inf})), Sum)
    assert same(back, Sum(w, scores={"z": -0.0, "n": nan, "i": inf}))


def test_the_record_of_a_node_survives_and_an_array_in_two_places_is_written_once() -> None:
    w = np.arange(1000, dtype=np.float32)
    last = {c: Envelope("h", c, 3, Sum(w, 2), True) for c in ("a", "b")}
    below = Round(Policy(need=1), 3, {"a": 3, "b": 2}, frozenset({"c", "b"}), True, inf, 2)
    record = Record(below, 7, True, Sum(w, 1), last)
    codec = Codec([Record, Sum], finite=False)
    data = codec.encode(record)
    back = codec.decode(data, Record)
    assert same(back, record)
    assert back.state.total is back.last["a"].message.total is back.last["b"].message.total
    assert len(data) < 2 * w.nbytes


def test_equal_sets_are_equal_bytes() -> None:
    codec = Codec([Round])
    a, b = (Round(Policy(), heard=frozenset(names)) for names in (["x", "yy", "z"], ["z", "x", "yy"]))
    assert codec.encode(a) == codec.encode(b)


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    codec = Codec([Sum, Box, Policy])
    back = codec.decode(codec.encode(Sum(np.zeros(2, np.float32), np.int16(3), {"a": np.float32(0.5), "b": 2})), Sum)
    assert (type(back.count), back.count) == (int, 3)
    assert {k: (type(v), v) for k, v in back.scores.items()} == {"a": (float, 0.5), "b": (float, 2.0)}
    assert codec.decode(codec.encode(Box((np.int8(1), np.float64(2), np.bool_(True)))), Box) == Box((1, 2.0, True))
    assert codec.decode(codec.encode(Policy(need=np.int64(2))), Policy) == Policy(need=2)  # type: ignore[arg-type]


def test_arrays_are_read_only_views_where_the_bytes_are_aligned_and_copies_elsewhere() -> None:
    codec = Codec([Sum])
    value = Sum(np.arange(5, dtype=np.float32))
    data = codec.encode(value)
    for shift in range(9):
        moved = memoryview(bytearray(shift) + data)[shift:]
        total = codec.decode(moved, Sum).total
        assert np.array_equal(total, value.total)
        assert total.flags.aligned and not total.flags.writeable
        assert np.shares_memory(total, np.frombuffer(moved, np.uint8)) == (shift % 4 == 0)


@pytest.mark.parametrize("w", [np.arange(12, dtype=np.float32)[::2], np.asfortranarray(np.ones((2, 3), np.float32))])
def test_memory_order_does_not_show(w: Any) -> None:
    back = Codec([Box]).decode(Codec([Box]).encode(Box(w)), Box).content
    assert np.array_equal(back, w) and back.flags.c_contiguous


def test_the_float_type_is_that_of_the_run() -> None:
    codec = Codec([Sum], dtype=np.float64)
    assert codec.decode(codec.encode(Sum(np.ones(3))), Sum).total.dtype == np.float64
    with pytest.raises(EncodeError, match=r"expected float64 \(n,\), got float32 \(3,\) at \$\.total"):
        codec.encode(Sum(np.ones(3, np.float32)))
    with pytest.raises(UsageError, match="float16"):
        Codec([Sum], dtype=np.float16)


GOLDEN_SUM = bytes.fromhex(
    "1d000000 94a353756d c70501 93009103 00 03 81a46c6f7373cb3fe0000000000000 00000000000000"
    "0000803f 00000080 00002040 00000000"
)
GOLDEN_BOX = bytes.fromhex(
    "24000000 92a3426f78 9900c0c3ffa2c3a9c40100 9301a161a162 81a16b9100 c70601 9307920102000102000000000000"
)


def test_golden_bytes() -> None:
    """What has been written once is readable for ever: these bytes never change."""
    codec = Codec([Sum, Box])
    w = np.array([1, -0.0, 2.5], np.float32)
    plain = (None, True, -1, "\u00e9", b"\0", frozenset({"b", "a"}), {"k": ()}, np.array([[1, 2]], np.uint8))
    assert codec.encode(Sum(w, 3, {"loss": 0.5})) == GOLDEN_SUM
    assert codec.encode(Box(plain)) == GOLDEN_BOX
    assert same(codec.decode(GOLDEN_SUM), Sum(w, 3, {"loss": 0.5}))
    assert same(codec.decode(GOLDEN_BOX), Box(plain))


def later(*names: str, **defaults: Any) -> type:
    """A class named Note, of one version of a method."""
    rows: list[Any] = [(n, int) for n in names] + [(n, int, field(default=d)) for n, d in defaults.items()]
    return make_dataclass("Note", rows, frozen=True)


def test_fields_that_an_older_peer_lacks_have_their_defaults() -> None:
    old, new = later("a"), later("a", b=7)
    assert Codec([new]).decode(Codec([old]).encode(old(1))) == new(1, 7)


def test_fields_that_a_newer_peer_has_are_refused() -> None:
    old, new = later("a"), later("a", b=7)
    refuse(Codec([old]), Codec([new]).encode(new(1, 2)), "expected 1 fields of Note, got 2 at $")


def test_a_missing_field_without_default_is_refused() -> None:
    old, new = later("a"), later("a", "b")
    refuse(Codec([new]), Codec([old]).encode(old(1)), "missing field 'b' of Note at $")


def refuse(codec: Codec, data: bytes, text: str, expect: type | None = None) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode(data, expect)
    assert isinstance(caught.value, PeerError)
    assert str(caught.value) == text


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
