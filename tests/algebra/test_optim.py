"""Optimisers against their formulas, written out plainly in float64."""

import numpy as np
import pytest

from edge_sdk.algebra import prox
from edge_sdk.algebra.optim import OPTIMISERS, PIECE, SGD, Adam, Momentum
from edge_sdk.errors import UsageError


def grads(n=7, steps=6):
    return np.random.default_rng(1).standard_normal((steps, n))


def test_sgd_is_its_formula():
    theta, opt = np.ones(7), SGD(0.1, decay=0.01)
    want = theta.copy()
    for g in grads():
        opt.step(theta, g)
        want = want - 0.1 * (g + 0.01 * want)
    np.testing.assert_allclose(theta, want, rtol=1e-13)


def test_momentum_is_its_formula():
    theta, opt = np.ones(7), Momentum(0.1, 0.8, decay=0.01)
    want, v = theta.copy(), 0
    for g in grads():
        opt.step(theta, g)
        v = 0.8 * v + g + 0.01 * want
        want = want - 0.1 * v
    np.testing.assert_allclose(theta, want, rtol=1e-13)


def test_adam_is_its_formula():
    theta, opt = np.ones(7), Adam(0.1, decay=0.02)
    want, m, v = theta.copy(), 0, 0
    for t, g in enumerate(grads(), 1):
        opt.step(theta, g)
        g = g + 0.02 * want
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        want = want - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(theta, want, rtol=1e-12)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_place_in_the_type_of_theta_and_never_in_the_gradient(name, dtype):
    theta, g = np.ones(7, dtype), grads()[0].astype(dtype)
    kept, same = g.copy(), theta
    opt = OPTIMISERS[name](rate=0.1)
    opt.step(theta, g)
    opt.step(theta, g, rate=0.5)
    assert theta is same and theta.dtype == dtype and (theta != 1).all()
    np.testing.assert_array_equal(g, kept)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("beyond", [-1, 0, 1, PIECE + 3])
def test_a_large_step_is_that_of_each_number(name, beyond):
    """Pieces are for speed: where one ends is to be seen in no bit."""
    draws = np.random.default_rng(2)
    theta, first, second = draws.standard_normal((3, PIECE + beyond), dtype=np.float32)
    parts = [(theta[i::7].copy(), OPTIMISERS[name](rate=0.1, decay=0.01)) for i in range(7)]
    whole = OPTIMISERS[name](rate=0.1, decay=0.01)
    for grad in (first, second):
        whole.step(theta, grad)
        for i, (part, opt) in enumerate(parts):
            opt.step(part, grad[i::7])
    for i, (part, _) in enumerate(parts):
        np.testing.assert_array_equal(theta[i::7], part)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_works_in_little_memory(name):
    opt = OPTIMISERS[name](rate=0.1)
    opt.step(np.ones(5 * PIECE), np.ones(5 * PIECE))
    assert opt._spare.size == PIECE


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_quadratic_is_minimised(name):
    target, theta, opt = grads()[0], np.zeros(7), OPTIMISERS[name](rate=0.05)
    for _ in range(600):
        opt.step(theta, theta - target)
    np.testing.assert_allclose(theta, target, atol=1e-3)


def test_a_proximal_step_ends_at_the_minimum_of_the_sum():
    """1/2 |z - t|^2 + w |z|_1 is least at the soft threshold of t."""
    target, theta, opt, spare = grads()[0], np.zeros(7), SGD(0.5), np.empty(7)
    for _ in range(100):
        opt.step(theta, theta - target)
        prox.shrink(theta, 0.5 * 0.3, spare)
    np.testing.assert_allclose(theta, prox.l1(target, 0.3), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGD(0.0), "rate = 0.0, expected a number above 0"),
        (lambda: SGD(float("nan")), "rate = nan"),
        (lambda: SGD(0.1, decay=-1), "decay = -1, expected a number of 0 or more"),
        (lambda: Momentum(0.1, 1.0), "momentum = 1.0, expected 0 or more and below 1"),
        (lambda: Adam(beta2=-0.1), "beta2 = -0.1"),
    ],
)
def test_settings_are_checked(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_memory_of_another_model_is_refused():
    opt = Momentum(0.1)
    opt.step(np.ones(3), np.ones(3))
    with pytest.raises(UsageError, match="it is for another model"):
        opt.step(np.ones(4), np.ones(4))
    with pytest.raises(UsageError, match=r"a gradient of shape \(3,\) for theta of shape \(4,\)"):
        SGD(0.1).step(np.ones(4), np.ones(3))
