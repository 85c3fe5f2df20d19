"""How float32 errors are compared with torch's: two errors of one kind are told apart only if they differ."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.foreign_rounding import COARSE, DRAWS, MANY, measure_kind, measure_rounding
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.ir.specification.spec import Spec

CASE = Case("tied inputs", 100, 4)
SPREAD = 0.7  # of the common logarithm, as measured on MobileNetV2 and ShuffleNetV2 with statistics of the batch


def draw_errors(middle, times=1.0):
    """Errors that spread as they do behind batch normalisations of few values; the bundle's `times` as large."""

    def measure(case):
        device, torchs = np.random.default_rng(case.seed).normal(np.log10(middle), SPREAD, 2)
        return times * 10**device, 10**torchs

    return measure


def count_larger(middle, times):
    """For how many of 40 kinds of inputs the bundle is said to have more than three times torch's error."""
    kinds = [measure_kind(Case("tied inputs", seed, 4), draw_errors(middle, times)) for seed in range(40)]
    return sum(kind.ratio > 3 for kind in kinds)


def test_equal_errors_are_not_told_apart():
    """Three draws of them are: that is what the comparison had before."""
    assert count_larger(10 * COARSE, 1) <= 1
    assert count_larger(COARSE / 1000, 1) >= 8


def test_errors_ten_times_torchs_are_told():
    assert count_larger(10 * COARSE, 10) == 40


def test_torchs_errors_alone_decide_how_often_is_drawn():
    for times in (1e-6, 1, 1e6):
        assert len(measure_kind(CASE, draw_errors(100 * COARSE, times)).torch) == MANY
        assert len(measure_kind(CASE, draw_errors(COARSE / 100, times)).torch) == DRAWS
    assert len(measure_kind(CASE, draw_errors(100 * COARSE), MANY + 5).torch) == MANY + 5


def test_draws_without_an_error_do_not_count():
    assert measure_kind(CASE, lambda case: None) is None
    kind = measure_kind(CASE, lambda case: (0.5, 0.5) if case.seed % 2000 == 100 else None)
    assert len(kind.device) == MANY / 2 and kind.ratio == 1


@pytest.mark.parametrize("positions", [1, 2])
def test_statistics_of_few_values_lose_no_more_digits_than_torchs(positions):
    """Two to four samples, planes of one and two positions: normalisation after normalisation."""
    torch.manual_seed(3)
    layers = [[nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8), nn.Tanh()] for _ in range(4)]
    net = nn.Sequential(*(v for layer in layers for v in layer), nn.Flatten(), nn.Linear(8 * positions, 3))
    made = compile_module(net.eval(), Spec("m", (8, positions), norm="batch"), search=0)
    kinds = measure_rounding(Model(parse(made.data)), made.truth, 30)
    assert {r.case: r.ratio for r in kinds if r.ratio > 2} == {}
    assert NormalDist.from_samples([np.log10(r.ratio) for r in kinds]).mean < 0.2
