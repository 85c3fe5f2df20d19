"""The number of samples that go through a graph at once where the caller leaves it open."""

import pytest
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.scheduling.steps import (
    CACHED,
    FEWEST,
    FEWEST_IN_TIME,
    FLOAT,
    MOST,
    choose_max_batch,
    find_largest_value,
)


def graph(*sizes: int) -> OnnxGraph:
    """Values of so many numbers per sample, one after the other, and one that does not depend on the batch."""
    g = OnnxGraph()
    v = g.input("x", (BatchDim(), 1))
    for size in sizes:
        v = g.op("Any", v, shape=(BatchDim(), size))
    g.op("Any", v, shape=(10**9,))
    return g


def test_the_largest_value_is_per_sample_and_of_the_batch():
    assert find_largest_value(graph(3, 700, 20)) == 700 * FLOAT
    merged = graph(5)
    merged.op("Other", "x", shape=(BatchDim(40), 30))  # batch and rows on one axis
    assert find_largest_value(merged) == 1200 * FLOAT


@pytest.mark.parametrize("size", [1, 1000, 5000, 16_384, 30_000, 10**7])
def test_a_step_fits_and_twice_as_many_would_not(size):
    most = choose_max_batch(graph(size), parameters=0)
    assert most in (4, 8, 16, 32, 64)
    assert most * size * FLOAT <= CACHED or most == FEWEST
    assert 2 * most * size * FLOAT > CACHED or most == MOST


def test_many_parameters_are_not_read_for_few_samples():
    size, parameters = 65_536, 7_500_000
    most = choose_max_batch(graph(size), parameters)
    assert most * size * FLOAT <= parameters * FLOAT / 2 < 2 * most * size * FLOAT


@pytest.mark.parametrize("layer", ["GRU", "LSTM"])
def test_a_recurrent_layer_is_given_more_samples_than_fit(layer):
    large, small = graph(10**7), graph(1)
    for g in (large, small):
        g.op(layer, "x", shape=(BatchDim(), 1))
    assert choose_max_batch(large, parameters=0) == FEWEST_IN_TIME > FEWEST
    assert choose_max_batch(small, parameters=0) == MOST


def compiled(**options):
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16384, 2)
    )
    return Model(parse(compile_module(net.eval(), Spec("m", (3, 32, 32), **options)).data))


def test_the_compiler_chooses_and_the_caller_may():
    assert compiled().max_batch == 8  # 16 x 32 x 32 numbers
    assert compiled(max_batch=5).max_batch == 5


def test_statistics_of_a_batch_are_of_the_whole_of_it():
    assert compiled(norm="batch").max_batch == MOST
