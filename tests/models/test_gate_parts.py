"""Parts of the gate by their definitions: what counts as lost digits, as alike calls, and as weights of a search."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edge_sdk.models.gate.graphs.search import ORDINARY, choose_weights
from edge_sdk.models.gate.operators.digits import LIMIT, TORCH_FACTOR, measure_digits
from edge_sdk.models.gate.operators.isolate import describe_shapes


def test_digits_that_torch_loses_too_are_not_counted_and_what_is_no_number_is():
    exact, single = np.array([1.0, -2.0, 0.0, np.inf]), np.array([1.0, -2.0 - 1e-3, 0.0, np.inf])
    borne = 1e-3 * TORCH_FACTOR
    assert measure_digits(np.array([1.0, -2.0 - borne, 9.0, 0.0]), exact, single) == pytest.approx(0, abs=1e-12)
    assert measure_digits(np.array([1.5, -2.0, 9.0, 0.0]), exact, single) == pytest.approx(0.5)
    assert measure_digits(np.array([1.0, -2.0 - 3 * borne, 9.0, 0.0]), exact, single) == pytest.approx(borne)
    assert not measure_digits(np.array([np.nan, -2.0, 9.0, 0.0]), exact, single) <= LIMIT


def test_shapes_of_a_function_of_elements_say_only_which_sizes_are_equal():
    each = SimpleNamespace(target=SimpleNamespace(tags=(torch.Tag.pointwise,)))
    other = SimpleNamespace(target=SimpleNamespace())
    shapes = [("s0", 3, 4), (1, 4), (3,)]
    assert describe_shapes(each, shapes) == [("s0", "n0", "n1"), ("1", "n1"), ("n0",)]
    assert describe_shapes(each, shapes) == describe_shapes(each, [("s0", 7, 9), (1, 9), (7,)])
    assert describe_shapes(each, shapes) != describe_shapes(each, [("s0", 7, 9), (9, 9), (7,)])
    assert describe_shapes(other, shapes) == [("s0", "3", "4"), ("1", "4"), ("3",)]


def test_weights_of_a_search():
    weights = torch.tensor([0.25, 2.0, 3.0], dtype=torch.float64)
    found = {name: choose_weights(weights, replace(ORDINARY, weights=name)).tolist() for name in
             ("one alone", "times 1e6", "uneven")}  # fmt: skip
    assert found == {"one alone": [0, 0, 1], "times 1e6": [0.25e6, 2e6, 3e6], "uneven": [0.25, 2, 3]}
