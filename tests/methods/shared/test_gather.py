"""Sums that are exact, so that no order of arrival leaves a trace; and what a peer may send."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation import exact, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum


def summed(parts, dtype=np.float32):
    tally = None
    for name, part in parts:
        tally = gather.add(tally, name, part)
    return tally, gather.total(tally, np.zeros(0, dtype))


def bits(s):
    return s.total.tobytes(), s.weight, s.count, sorted(s.scores.items())


def wild(rng, n=200):
    """Numbers of all sizes, which floating point adds differently in every order."""
    return (rng.normal(size=n) * 10.0 ** rng.integers(-9, 4, n)).astype(np.float32)


def test_every_order_gives_the_same_bits():
    rng = np.random.default_rng(0)
    parts = [(f"d{i}", Sum(wild(rng), float(rng.random()), 1, {"loss": float(rng.random())})) for i in range(5)]
    tallies, sums = zip(*(summed(order) for order in permutations(parts)), strict=True)
    assert len({repr(bits(s)) for s in sums}) == 1
    assert {t.heard for t in tallies} == {("d0", "d1", "d2", "d3", "d4")}
    floats = {sum((p.total for _, p in order), np.float32(0)).tobytes() for order in permutations(parts)}
    assert len(floats) > 1  # which is why


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_is_right_to_the_last_bit_of_float32(dtype):
    rng = np.random.default_rng(1)
    parts = [wild(rng).astype(dtype) for _ in range(40)]
    _, s = summed([(str(i), Sum(p, 1.0)) for i, p in enumerate(parts)], dtype)
    exact = np.array([float(sum(map(int, np.rint(np.ldexp(np.array(c, np.float64), 70))))) for c in zip(*parts)])  # noqa: B905
    assert s.total.dtype == dtype and s.count == 40 and s.weight == 40.0
    assert np.allclose(s.total, np.ldexp(exact, -70), rtol=1e-7 if dtype == np.float32 else 1e-15, atol=1e-20)


def test_what_one_device_sends_comes_through_unchanged():
    x = wild(np.random.default_rng(2))
    x = x[np.abs(x) > 2.0**-46]
    _, s = summed([("d", Sum(x, 0.1, 1, {"loss": 0.3}))])
    assert s.total.tobytes() == x.tobytes() and s.weight == 0.1 and s.scores == {"loss": 0.3}


def test_the_largest_numbers_that_are_let_in_do_not_overflow():
    x = np.full(3, exact.LARGEST)
    _, s = summed([(str(i), Sum(-x, 1.0)) for i in range(1000)], np.float64)
    assert (s.total == -1000 * x).all()


def test_scores_that_only_some_have():
    parts = [("a", Sum(np.zeros(1), 1.0, 1, {"x": 1.0})), ("b", Sum(np.zeros(1), 1.0, 2, {"y": 2.0}))]
    tally, s = summed(parts)
    assert s.scores == gather.scores(tally) == {"x": 1.0, "y": 2.0} and s.count == 3


def test_nobody_answers_for_an_empty_hospital():
    assert gather.answer(None, np.zeros(1)) == Nobody()


@pytest.mark.parametrize(
    "bad, says",
    [
        ({"total": np.array([1.0, np.nan])}, "diverged"),
        ({"total": np.array([np.inf])}, "diverged"),
        ({"total": np.array([-1e12])}, "diverged"),
        ({"weight": 0.0}, "weight 0"),
        ({"weight": float("nan")}, "weight nan"),
        ({"count": 0}, "0 devices"),
        ({"scores": {"loss": float("nan")}}, "loss"),
    ],
)
def test_a_sum_is_checked(bad, says):
    good = Sum(np.zeros(2), 1.0)
    good.check(EMPTY_LAYOUT)
    with pytest.raises(ValueError, match=says):
        replace(good, **bad).check(EMPTY_LAYOUT)


def test_only_answers_from_children_and_no_more_devices_than_they_have():
    env = NodeEnv(sizes={"h": 3})
    assert gather.gathered(env, None, "h", Nobody()) is None
    assert gather.gathered(env, None, "h", Sum(np.zeros(1), 3.0, 3)).count == 3
    with pytest.raises(PeerError, match="h sent a sum of 4 devices, it has 3"):
        gather.gathered(env, None, "h", Sum(np.zeros(1), 4.0, 4))
    with pytest.raises(PeerError, match="h sent str, expected Sum or Nobody"):
        gather.gathered(env, None, "h", "something")


def crowd(count: int, low: int) -> gather.Tally:
    """What so many children may have added up to: `low` and -low are the sums of their remainders."""
    names = tuple(f"d{k:05}" for k in range(count))
    return gather.Tally(np.array([7, 7]), np.array([low, -low], np.int64), (count, 0), count, {}, names)


def test_remainders_of_very_many_children_do_not_wrap():
    """From 16,384 children on they did: what was a sum of small numbers became its opposite."""
    each = int(0.499 * 2**50)
    tally, one = crowd(16_300, 16_300 * each), Sum(np.array([each, -each]) * 2.0**-70, 1.0)
    for k in range(200):
        tally = gather.add(tally, f"x{k}", one)
    found = [int(high) * 2**50 + int(low) for high, low in zip(tally.high, tally.low, strict=True)]
    assert found == [7 * 2**50 + 16_500 * each, 7 * 2**50 - 16_500 * each]
    assert (np.abs(tally.low) <= 2**49).all()


def test_a_carried_sum_is_the_same_in_any_order():
    rng = np.random.default_rng(3)
    parts = {f"c{k}": Sum(rng.normal(size=2), float(k + 1), 1, {"loss": float(rng.random())}) for k in range(4)}
    found = []
    for names in (sorted(parts), sorted(parts, reverse=True)):
        tally = crowd(5_000, 3 * 2**60)
        for name in names:
            tally = gather.add(tally, name, parts[name])
        found.append((tally.high.tolist(), tally.low.tolist(), tally.weight, dict(tally.scores), tally.heard))
    assert found[0] == found[1]


def test_a_sum_that_does_not_fit_is_refused():
    tally = crowd(5_000, 0)
    with pytest.raises(PeerError, match="x: with it, the sum of 5001 children is too large to be exact"):
        gather.add(replace(tally, high=np.array([2**62 + 1, 0])), "x", Sum(np.zeros(2), 1.0))


def awkward_numbers(dtype):
    """Numbers of every size, halves of the last places, and both zeros."""
    random = np.random.default_rng(3)
    sizes = random.standard_normal(9_000) * 2.0 ** random.integers(-80, 30, 9_000)
    halves = (np.arange(-40, 40) + 0.5) * 2.0**-exact.HIGH
    least = (np.arange(-40, 40) + 0.5) * 2.0**-exact.LOW
    ends = np.array([0.0, -0.0, exact.NEAR, -exact.NEAR, 2.0**-140, np.nextafter(dtype(1), dtype(2))])
    return np.concatenate([sizes, halves, least, 1 + halves, ends]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adding_in_few_passes_gives_the_integers_of_split(dtype):
    x = awkward_numbers(dtype)
    sums = np.random.default_rng(4).integers(-(2**62), 2**62, (2, len(x)))
    high, low = exact.split(x)
    assert all(np.array_equal(*pair) for pair in zip(exact.add_split(x, None, None), (high, low), strict=True))
    before = sums.copy()
    found = exact.add_split(x, *sums)
    assert np.array_equal(found[0], sums[0] + high) and np.array_equal(found[1], sums[1] + low)
    assert np.array_equal(sums, before)


def test_a_number_beyond_the_fast_way_is_added_too():
    x = np.array([1.25, 1.5 * exact.NEAR, -exact.LARGEST], np.float32)
    high, low = exact.split(x)
    found = exact.add_split(x, high, low)
    assert np.array_equal(found[0], 2 * high) and np.array_equal(found[1], 2 * low)


def test_a_vector_of_another_length_is_not_added():
    with pytest.raises(ValueError, match="a vector of 3 numbers, the sum is of vectors of 2"):
        exact.add_split(np.ones(3, np.float32), np.zeros(2, np.int64), np.zeros(2, np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (301,), (7, 43)])
def test_a_number_that_may_not_travel_is_found_wherever_it_is(dtype, shape):
    """The quick look at a vector's length says nothing else than a look at each number."""
    rng = np.random.default_rng(3)
    bad = [np.nan, np.inf, -np.inf, *(dtype(s * f * exact.LARGEST) for s in (-1, 1) for f in (1.001, 2.0**60))]
    good = [0.0, *(dtype(s * exact.LARGEST) for s in (-1, 1)), 2.0**21, -(2.0**30)]
    for value in map(dtype, bad + good):
        for scale in (1e-30, 1.0, 1e4):
            x = (scale * rng.normal(size=shape)).astype(dtype)
            if not x.size:
                assert not exact.has_diverged(x)
                continue
            x.flat[rng.integers(x.size)] = value
            assert exact.has_diverged(x) == (not (np.abs(x) <= exact.LARGEST).all())
