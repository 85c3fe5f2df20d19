"""Singular value thresholding without full decompositions: as exact, or not done."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from aggregator import kernels, singular
from aggregator.singular import FastSvt
from edge_sdk.algebra import prox
from edge_sdk.errors import UsageError
from tests.processors import PROCESSORS

RNG = np.random.default_rng(4)


def low_rank(rows, columns, rank, noise, largest=10.0):
    """A model of some rank, and it with noise of that norm."""
    u, v = (np.linalg.qr(RNG.normal(size=(n, rank)))[0] for n in (rows, columns))
    model = (u * np.linspace(largest, 1, rank)) @ v.T
    off = RNG.normal(size=(rows, columns))
    return model.astype(np.float32), (model + noise * off / np.linalg.norm(off, 2)).astype(np.float32)


def exact(x, threshold):
    a, s, b = prox.svt(x.astype(np.float64), threshold)
    return (a * s) @ b.T, len(s)


def check(svt, x, near, threshold, tolerance=2e-6):
    a, s, b = svt.layers({"l": x}, threshold, {"l": near})["l"]
    z, rank = exact(x, threshold)
    assert len(s) == rank and (s > 0).all() and {part.dtype for part in (a, s, b)} == {np.dtype(np.float32)}
    assert np.linalg.norm((a * s) @ b.T - z) <= tolerance * np.linalg.norm(x, 2) * max(1, rank) ** 0.5


@pytest.mark.parametrize("shape", [(96, 96), (120, 100), (100, 130)])
@pytest.mark.parametrize("device", PROCESSORS)
def test_a_layer_near_a_model_of_low_rank_is_done_in_its_subspace(device, shape):
    svt = FastSvt(device)
    near, x = low_rank(*shape, 6, 0.3)
    check(svt, x, near, 0.5)
    assert svt.counts == {"subspace": 1, "gram": 0, "full": 0, "given up": 0}


@pytest.mark.parametrize("shape", [(200, 20), (20, 200), (60, 1)])
@pytest.mark.parametrize("device", PROCESSORS)
def test_a_tall_layer_is_done_by_its_gram_matrix(device, shape):
    svt = FastSvt(device)
    x = RNG.normal(size=shape).astype(np.float32)
    for threshold in (0.5, 8.0, 1e3):
        check(svt, x, x, threshold)
    assert svt.counts["gram"] == 3


def test_what_cannot_be_shown_is_decomposed_in_full_and_counted():
    """A value above the threshold in a direction that the subspace of before has nothing of; too many such values;
    values on both sides of the threshold that lie near to each other."""
    svt = FastSvt()
    near, x = low_rank(96, 96, 6, 0.3)
    check(svt, x, near, 0.2)
    many = RNG.normal(size=(96, 96)).astype(np.float32)
    check(svt, many, near, 5.0)
    assert svt.counts["subspace"] == 0 and svt.counts["full"] == 2 == svt.counts["given up"]


def test_a_value_that_is_hidden_from_the_iterations_is_found_out(monkeypatch):
    """Iterations that return triplets of a matrix with one value less: what they leave out is above the threshold."""
    near, x = low_rank(96, 96, 6, 0.3)
    iterate = singular.converge

    def forgetful(x, base, threshold):
        (a, s, b), cut = iterate(x, base, threshold)
        return (a[:, 1:], s[1:], b[:, 1:]), cut

    monkeypatch.setattr(singular, "converge", forgetful)
    svt = FastSvt()
    check(svt, x, near, 0.5)
    assert svt.counts["given up"] == 1 == svt.counts["full"]


def test_a_rest_too_near_for_float32_is_shown_in_float64_and_not_tried_before(monkeypatch):
    x, kinds = 0.1 * torch.eye(1500), []
    x[7, 7] = 0.4999
    factorise = torch.linalg.cholesky_ex

    def noting(matrix):
        kinds.append(matrix.dtype)
        return factorise(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", noting)
    left = torch.zeros(1500, 0)
    assert singular.rest_vanishes(x, left, 0.55) and kinds == [torch.float32]
    assert singular.rest_vanishes(x, left, 0.51, 0.4999) and kinds[1:] == [torch.float64]
    assert not singular.rest_vanishes(x, left, 0.4998) and not singular.rest_vanishes(x, left, 0.4998, 0.4999)


def test_the_certificate_holds_to_the_threshold_and_not_beyond():
    left = torch.zeros(80, 0)
    for value, holds in ((0.49, True), (0.5 - 1e-7, False), (0.51, False)):
        x = torch.diag(torch.full((80,), 0.1))
        x[3, 3] = value
        assert singular.rest_vanishes(x, left, 0.5) is holds


def test_double_precision_and_no_threshold_are_decomposed_in_full():
    svt = FastSvt()
    x = RNG.normal(size=(100, 20))
    for some, threshold in ((x, 1.0), (x.astype(np.float32), 0.0)):
        mine, theirs = svt(some, threshold), kernels.svt(some, threshold, "cpu")
        assert all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))
    assert svt.counts["full"] == 2


def test_the_result_is_a_function_of_its_arguments():
    near, x = low_rank(96, 96, 6, 0.3)
    one, two = FastSvt(), FastSvt()
    two.layers({"l": near}, 0.1, {"l": x})
    found = [svt.layers({"l": x}, 0.5, {"l": near})["l"] for svt in (one, two, one)]
    assert all(np.array_equal(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))


def test_a_way_that_there_is_not():
    with pytest.raises(UsageError, match="svt = 'quick': one of full, fast"):
        kernels.kernels_on("cpu", "quick")
