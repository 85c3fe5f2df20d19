"""What every env has."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.contract.method import NodeEnv, as_words

SEEDS = [[0], [0, 0], [7, 3, 2**32 - 1, 1], [2**32], [2**70 + 5, 0, 9], [np.int64(4), True]]


@pytest.mark.parametrize("numbers", SEEDS)
def test_words_seed_the_generator_that_their_numbers_seed(numbers):
    found, wanted = (np.random.default_rng(seed).bit_generator.state for seed in (as_words(numbers), numbers))
    assert found == wanted


def test_a_seed_below_zero_is_refused_as_numpy_does_it():
    with pytest.raises(ValueError, match="negative"):
        NodeEnv(me="d", seed=-1).random(0)
