"""Lengths of uploads, as bounds and the look for what has diverged take them."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.algebra.vectors import PIECE, length
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.guard import norm
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.healing import is_sound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-25, 1e-3, 1.0, 1e15, 1e25])
def test_a_norm_is_the_length_to_six_digits(dtype, scale):
    x = (scale * np.random.default_rng(3).standard_normal(3 * PIECE + 5)).astype(dtype)
    assert norm(x) == pytest.approx(length(x), rel=1e-6)
    assert norm(x[:0]) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_length_within_bounds(bad):
    assert not norm(np.array([1.0, bad], np.float32)) <= 1e30


@pytest.mark.parametrize("kind", [Sum, VectorSum])
@pytest.mark.parametrize("weight", [1e-3, 1.0, 50.0])
def test_an_upload_is_sound_if_each_of_its_numbers_may_travel(kind, weight):
    rng = np.random.default_rng(3)
    for value in (np.nan, np.inf, -np.inf, 1.01 * LARGEST, LARGEST, 2.0**21, 0.0):
        x = rng.standard_normal(300).astype(np.float32)
        x[7] = value
        assert is_sound(kind(x, weight)) == bool((np.abs(x) <= LARGEST).all())
