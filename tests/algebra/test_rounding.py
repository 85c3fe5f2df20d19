"""Rounding: unbiased, within a step, exact sums, and bytes that are what they say."""

from itertools import product

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.rounding import (
    largest,
    pack,
    packed_size,
    round_up_or_down,
    to_numbers,
    unpack,
    width,
)

BITS = (2, 3, 4, 7, 8, 12, 16)


@pytest.mark.parametrize("bits", BITS)
def test_its_expectation_is_the_number(bits):
    """40,000 roundings of each number: their mean is within five standard errors of it, and all are within a step."""
    random, half = np.random.default_rng(bits), 3.0
    numbers = np.array([-3.0, -2.9, -1.234, -0.5, -1e-3, 0.0, 1e-4, 0.77, 2.2, 3.0])
    x = np.repeat(numbers, 40_000)
    found = to_numbers(round_up_or_down(x, half, bits, random), half, bits, 1, x)
    step = half / largest(bits)
    assert np.abs(found - x).max() < step * (1 + 1e-6)
    up = np.mod(numbers / step, 1.0)  # probability of being rounded up
    bound = step * (5 * np.sqrt(up * (1 - up)) / 200 + 1e-6)
    assert (np.abs((found - x).reshape(10, -1).mean(1)) <= bound).all()


@pytest.mark.parametrize("bits", BITS)
def test_steps_are_exact_and_what_is_outside_is_clipped(bits):
    top, x = largest(bits), np.array([-9.0, *np.linspace(-1, 1, 2 * largest(bits) + 1), 9.0])
    steps = round_up_or_down(x, 1.0, bits, np.random.default_rng(0))
    assert (steps[1:-1].astype(int) - np.arange(2 * top + 1) <= 1).all()  # linspace errs by less than a rounding
    exact = np.arange(-top, top + 1) * 1.0
    assert (round_up_or_down(exact, float(top), bits, np.random.default_rng(0)) == np.arange(2 * top + 1)).all()
    assert steps[0] == 0 and steps[-1] == 2 * top


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("bits", BITS)
def test_on_the_finest_range_integers_stay_in_their_bits(bits, kind):
    x = np.array([0.0, 1e-45, 1e-35, -1e-35, 1.0, -1.0], kind)
    steps = round_up_or_down(x, rounding.FINEST, bits, np.random.default_rng(0))
    assert (steps <= 2 * largest(bits)).all() and steps[0] == largest(bits)


@pytest.mark.parametrize(("bits", "terms"), [*product((2, 4, 8, 16), (1, 2, 3, 100, 10_000))])
def test_sums_are_those_of_pythons_integers(bits, terms):
    """In whatever order: the ring is wide enough for the largest sum that there can be."""
    random = np.random.default_rng([bits, terms])
    uploads = random.integers(0, 2 * largest(bits) + 1, (min(terms, 50), 33), dtype=np.uint32)
    uploads[:, 0], uploads[:, 1] = 0, 2 * largest(bits)
    total = np.zeros(33, np.uint32)
    for row in uploads[random.permutation(len(uploads))]:
        total = total + row
    assert total.tolist() == [sum(int(v) for v in column) for column in uploads.T]
    assert 2 * largest(bits) * terms < 2 ** width(bits, terms) <= 2 * (2 * largest(bits) * terms + 1)
    there = unpack(pack(total, width(bits, terms)), 33, width(bits, terms))
    assert (there == total).all()
    numbers = to_numbers(total, 1.0, bits, len(uploads), np.zeros(0))
    exact = [(int(t) - len(uploads) * largest(bits)) / largest(bits) for t in total]
    assert np.abs(numbers - exact).max() < 1e-9


@pytest.mark.parametrize("bits", range(1, 33))
def test_packed_integers_are_read_back(bits):
    for count in (1, 7, 8, 9, 100):
        steps = np.random.default_rng([bits, count]).integers(0, 2**bits, count, dtype=np.uint64).astype(np.uint32)
        octets = pack(steps, bits)
        assert octets.size == packed_size(count, bits) and (unpack(octets, count, bits) == steps).all()
        assert octets.size <= -(-count // 8) * bits + count // 8 * 8  # no more than whole groups of eight


def test_eight_integers_of_three_bits_are_three_bytes():
    assert pack(np.arange(8, dtype=np.uint32), 3).tobytes() == bytes([0b10001000, 0b11000110, 0b11111010])


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_the_usual_range_is_near_the_best(bits):
    """Mean squared error of rounded normal numbers: no range has less than half of it; and little is clipped."""
    random, x = np.random.default_rng(bits), np.random.default_rng(0).normal(size=200_000)

    def error(half):
        return float(np.mean((to_numbers(round_up_or_down(x, half, bits, random), half, bits, 1, x) - x) ** 2))

    best = min(error(half) for half in np.arange(1.0, 7.0, 0.25))
    assert error(rounding.usual_half(bits)) < 2 * best
    assert (np.abs(x) > rounding.usual_half(bits)).mean() < {2: 0.12, 3: 0.04}.get(bits, 0.01)


@pytest.mark.parametrize("bits", range(1, 8))
def test_eight_integers_are_one_run_of_bits(bits):
    """The lowest bits of the first byte are the first integer's, whatever the processor's own order of bytes."""
    steps = np.random.default_rng(bits).integers(0, 1 << bits, 29).astype(np.uint32)
    expected = b""
    for first in range(0, 29, 8):
        run = sum(int(step) << (bits * i) for i, step in enumerate(steps[first : first + 8]))
        expected += run.to_bytes(bits, "little")
    assert pack(steps, bits).tobytes() == expected
    assert (unpack(np.frombuffer(expected, np.uint8), 29, bits) == steps).all()
    assert pack(steps.astype(np.uint8), bits).tobytes() == expected, "of a narrower ring, too"
