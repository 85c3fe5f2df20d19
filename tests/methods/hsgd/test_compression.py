"""What a parcel keeps, what it costs, and that no parcel of a peer passes unchecked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.errors import AuscultError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.compression import Coarse, Dense, PackedMatrix, Sparse, pack, unpack
from edge_sdk.wire.codec.codec import Codec
from tests.methods.hsgd.literal_hsgd import top

X = np.random.default_rng(0).normal(size=(5, 37))


@dataclass(frozen=True)
class Letter:
    """Two parcels, for each is of a shape of its own."""

    parcel: PackedMatrix
    other: PackedMatrix = Dense(np.zeros((1, 2)))  # noqa: RUF009


CODEC = Codec([Letter], layout=EMPTY_LAYOUT, dtype=np.float64)


@pytest.mark.parametrize("keep", [0.01, 7 / 32, 0.5, 0.999])
def test_top_k_by_row(keep):
    k = max(1, int(keep * 37))
    assert (unpack(pack(X, keep)) == [top(row, k) for row in X]).all()


def test_whole_columns_by_weight():
    weights = np.arange(37.0)
    found = unpack(pack(X, 0.1, columns=weights))
    assert (found[:, -3:] == X[:, -3:]).all() and (found[:, :-3] == 0).all()


def test_several_tensors_side_by_side():
    found = unpack(pack(X[:1], 0.3, parts=(20, 15, 2)))[0]
    tensors = np.split(X[0], [20, 35])
    assert (found == np.concatenate([top(t, k) for t, k in zip(tensors, (6, 4, 1), strict=True)])).all()


@pytest.mark.parametrize("levels", [2, 7, 128, 256])
def test_levels_are_the_nearest(levels):
    found = unpack(pack(X, levels=levels))
    step = (X.max(1) - X.min(1)) / (levels - 1)
    assert (np.abs(found - X) <= step[:, None] / 2 + 1e-12).all()
    assert all(len({*row}) <= levels for row in found)
    assert (unpack(pack(np.full((2, 3), 1.5), levels=levels)) == 1.5).all()


def test_everything_and_nothing():
    assert pack(X, 1.0).values is X and unpack(pack(X)) is X
    assert isinstance(pack(X[:, :0], 0.5), Dense) and isinstance(pack(X[:0], levels=8), Dense)


def test_costs():
    """8 entries of 37: numbers and a mask; numbers and indices where they are shorter."""
    sparse = pack(X, 7 / 32)
    assert sparse.values.shape == (5, 8) and compression.true_bits(sparse) == 5 * (8 * 32 + 37)
    assert compression.true_bits(pack(X, 0.03)) == 5 * (32 + 6)
    assert compression.true_bits(pack(X)) == 5 * 37 * 32
    assert compression.true_bits(pack(X, levels=128)) == 5 * (37 * 8 + 64)


@pytest.mark.parametrize("parcel", [pack(X), pack(X, 0.3), pack(X, levels=9)], ids=["dense", "sparse", "coarse"])
def test_survives_the_codec(parcel):
    found = CODEC.decode(CODEC.encode(Letter(parcel, pack(X[:2], 0.5)))).parcel
    assert type(found) is type(parcel) and (unpack(found) == unpack(parcel)).all()
    assert compression.shape(found) == X.shape


GOOD = pack(X, 0.3)


@pytest.mark.parametrize(
    "parcel, why",
    [
        (Sparse(GOOD.mask, GOOD.values[:, :-1].copy(), 37), "10 values per row"),
        (Sparse(GOOD.mask[:, :-1].copy(), GOOD.values, 37), "4 bytes for 37"),
        (Sparse(GOOD.mask, GOOD.values, -1), "got -1 at .*columns"),
        (Sparse(GOOD.mask[:-1].copy(), GOOD.values, 37), "4 rows for 5 rows"),
        (Coarse(np.zeros((2, 3), np.uint8), np.zeros(3), np.zeros(2)), "2 rows of codes, 3 of low"),
    ],
)
def test_a_parcel_that_does_not_fit_itself_is_refused(parcel, why):
    with pytest.raises(AuscultError, match=why):
        CODEC.decode(CODEC.encode(Letter(parcel)))
