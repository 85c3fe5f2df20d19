"""The rotation: orthonormal, its inverse, the matrix that it stands for, and even in what it leaves."""

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation.rotation import BLOCK, block_size, draw_signs, rotate, rotate_back

SIZES = (1, 2, 3, 5, 31, 32, 46, 677, 4095, 4096, 5000, 12_345)


@pytest.mark.parametrize("size", SIZES)
def test_it_keeps_lengths_and_has_an_inverse(size):
    x = np.random.default_rng(size).normal(size=size)
    signs = draw_signs(size, 7, 1)
    y = rotate(x, signs)
    assert np.linalg.norm(y) == pytest.approx(np.linalg.norm(x), rel=1e-12)
    assert np.abs(rotate_back(y, signs) - x).max() < 1e-12


@pytest.mark.parametrize("size", [5, 46])
def test_it_is_an_orthonormal_matrix(size):
    signs = draw_signs(size, 7, 1)
    q = np.stack([rotate(e, signs) for e in np.eye(size)], 1)
    assert np.abs(q @ q.T - np.eye(size)).max() < 1e-12
    x = np.random.default_rng(0).normal(size=size)
    assert np.abs(q @ x - rotate(x, signs)).max() < 1e-12


def test_its_input_stays():
    x = np.arange(46.0)
    rotate_back(rotate(x, draw_signs(46, 1)), draw_signs(46, 1))
    assert (x == np.arange(46.0)).all()


def test_equal_seeds_give_equal_bits_and_others_do_not():
    x = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    one, same, other = (rotate(x, draw_signs(5000, *seed)) for seed in ((7, 1), (7, 1), (7, 2)))
    assert one.tobytes() == same.tobytes() != other.tobytes() and one.dtype == np.float32


def test_a_single_large_number_is_spread_over_its_block():
    x = np.zeros(2 * 4096 + 100)
    x[17] = x[-1] = 64.0
    y = rotate(x, draw_signs(x.size, 3))
    assert np.abs(y).max() < 5 and (np.abs(y) > 0.01).mean() > 0.5


def test_blocks_are_powers_of_two():
    assert [block_size(n) for n in (1, 2, 3, 4095, 4096, 10**6)] == [1, 2, 2, 2048, 4096, 4096]


def added_in_pairs(x, block):
    """The transform as it is written down: i and i + half of each block, in the order half = 1, 2, 4, ..."""
    x, half = x.reshape(block, -1), 1
    while half < block:
        upper = (np.arange(block) & half) > 0
        x = np.where(upper[:, None], np.roll(x, half, 0) - x, x + np.roll(x, -half, 0))
        half *= 2
    return (x * x.dtype.type(block**-0.5)).ravel()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 4, 64, 128, BLOCK, 3 * BLOCK, 32 * BLOCK, 33 * BLOCK])
def test_all_machines_add_the_same_numbers_in_the_same_order(size, kind):
    """To the bit, however many blocks are worked on together: nodes compare references by their checksum."""
    x, signs = np.random.default_rng(size).normal(size=size).astype(kind), draw_signs(size, 5)
    expected = added_in_pairs(np.where(signs, -x, x), block_size(size))
    assert rotate(x, signs).tobytes() == expected.tobytes()
    back = np.where(signs, -1, 1).astype(kind) * added_in_pairs(x, block_size(size))
    assert rotate_back(x, signs).tobytes() == back.tobytes()
