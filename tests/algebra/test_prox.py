"""Proximal operators by definition (no better point nearby) and by certificate (the optimality condition)."""

import numpy as np
import pytest

from edge_sdk.algebra import prox

RNG = np.random.default_rng(0)
SHAPES = [(1, 1), (6, 4), (4, 9), (30, 2), (7, 7)]


def nuclear_norm(z):
    return np.linalg.svd(z, compute_uv=False).sum()


@pytest.mark.parametrize("operator, norm", [(prox.l1, lambda z: np.abs(z).sum()), (prox.nuclear, nuclear_norm)])
def test_no_point_nearby_is_better(operator, norm):
    x, t = RNG.normal(size=(5, 4)), 0.7

    def objective(z):
        return 0.5 * ((z - x) ** 2).sum() + t * norm(z)

    z = operator(x, t)
    best = objective(z)
    for scale in (1e-4, 1e-2, 1.0):
        assert all(objective(z + scale * RNG.normal(size=z.shape)) > best for _ in range(1000))


def test_soft_threshold_is_zero_on_the_closed_interval():
    x = np.array([-2.0, -1.0, -0.5, 0.0, 1.0, 1.5])
    assert prox.l1(x, 1.0).tolist() == [-1.0, 0.0, 0.0, 0.0, 0.0, 0.5]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 100.0])
def test_l1_certificate(threshold):
    x = RNG.normal(size=500)
    z = prox.l1(x, threshold)
    assert np.abs(x - z).max() <= threshold + 1e-15
    assert np.allclose((x - z)[z != 0], threshold * np.sign(z[z != 0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_place_is_the_same(dtype):
    x = RNG.normal(size=300).astype(dtype)
    y = x.copy()
    prox.shrink(y, 0.4, np.empty_like(y))
    assert y.dtype == dtype and y.tobytes() == prox.l1(x, 0.4).tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.5])
def test_nuclear_certificate(shape, threshold):
    """FedSLR eq. (27): (x - z) / threshold has norm at most 1 and lies against z."""
    x = RNG.normal(size=shape)
    z = prox.nuclear(x, threshold)
    if threshold == 0:
        assert np.allclose(z, x, atol=1e-12)
        return
    g = (x - z) / threshold
    assert np.linalg.norm(g, 2) <= 1 + 1e-10
    assert np.isclose((g * z).sum(), nuclear_norm(z), atol=1e-10)


def test_R7_of_the_paper():
    assert np.allclose(prox.nuclear(np.diag([3.0, 1.0]), 1.5), np.diag([1.5, 0.0]))
    x, y = RNG.normal(size=(2, 5, 4))
    for operator in (prox.l1, prox.nuclear):
        assert np.linalg.norm(operator(x, 0.5) - operator(y, 0.5)) <= np.linalg.norm(x - y)
        assert not np.allclose(operator(operator(x, 0.1), 0.1), operator(x, 0.1))
    ranks = [prox.svt(x, t)[1].size for t in (0.0, 0.5, 1.0, 2.0, 4.0, 9.0)]
    assert ranks == sorted(ranks, reverse=True) and ranks[0] == 4 and ranks[-1] == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_svt_leaves_out_what_vanishes(shape):
    x = RNG.normal(size=shape).astype(np.float32)
    a, s, b = prox.svt(x, 1.0)
    assert a.shape == (shape[0], s.size) and b.shape == (shape[1], s.size) and (s > 0).all()
    assert a.dtype == s.dtype == b.dtype == np.float32
    empty = prox.svt(np.zeros(shape), 0.0)
    assert [part.shape for part in empty] == [(shape[0], 0), (0,), (shape[1], 0)]
