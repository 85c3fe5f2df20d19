"""Shamir's shares against their definition: any `threshold` give the secret, and fewer are the same for all secrets."""

import itertools
import random
from collections import Counter

import pytest

from edge_sdk.algebra.secure_aggregation import shamir
from edge_sdk.algebra.secure_aggregation.shamir import PRIME, join, split

DICE = random.Random(7)


def shared(secret, threshold, places):
    return split(secret, [DICE.randrange(PRIME) for _ in range(threshold - 1)], places)


@pytest.mark.parametrize(("threshold", "holders"), [(1, 3), (2, 3), (4, 6), (7, 7)])
def test_any_so_many_shares_give_the_secret_and_fewer_another_number(threshold, holders):
    secret = DICE.randrange(2**256)
    shares = shared(secret, threshold, range(1, holders + 1))
    for chosen in itertools.combinations(shares, threshold):
        assert join({x: shares[x] for x in chosen}) == secret
    assert join(shares) == secret  # more do no harm
    if threshold > 1:
        for chosen in itertools.combinations(shares, threshold - 1):
            assert join({x: shares[x] for x in chosen}) != secret


def test_fewer_shares_say_nothing(monkeypatch):
    """In a small field, over all polynomials: any two shares of three are uniform, and the same for each secret."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    for places in ((1, 2), (3, 6)):
        for secret in range(7):
            found = Counter(
                tuple(split(secret, others, places).values()) for others in itertools.product(range(7), repeat=2)
            )
            assert set(found.values()) == {1} and len(found) == 49


def test_all_values_of_the_field_come_back():
    for secret in (0, 1, PRIME - 1, 2**512 - 1):
        assert join(shared(secret, 3, (1, 9, 500))) == secret


@pytest.mark.parametrize(
    ("secret", "others", "places"),
    [(PRIME, [1], [1]), (-1, [1], [1]), (1, [PRIME], [1]), (1, [1], [0]), (1, [1], [2, 2]), (1, [1], [PRIME])],
)
def test_what_is_outside_the_field_is_refused(secret, others, places):
    with pytest.raises(ValueError, match=r"field|places"):
        split(secret, others, places)


@pytest.mark.parametrize("shares", [{}, {1: PRIME}, {1: -1}, {0: 1}])
def test_what_are_no_shares_is_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        join(shares)
