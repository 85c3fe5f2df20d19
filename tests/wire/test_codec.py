"""What a codec writes and reads back: every kind of value, bit for bit."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge_sdk.algebra.arrays import DTYPES
from edge_sdk.contract.node import Envelope, Record
from edge_sdk.contract.round import Policy, Round
from edge_sdk.errors import EncodeError, UsageError
from edge_sdk.wire.codec.codec import Codec
from tests.wire.codec_messages import LAYOUT, Box, Everything, Packed, Sum, refuse, same


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
    """Bytes that were written once can be read for ever: these never change."""
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
