"""Steps of optimisers by the library: numpy's bits, in place, for vectors that it takes, and only where it is right."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import optim
from edge_sdk.errors import UsageError
from edge_sdk.model.sessions import native_optimiser
from edge_sdk.model.sessions.native_optimiser import NativeSteps, open_steps, use_native_steps
from tests.native.libraries import compile_old_library
from tests.native.test_bounds import Guarded

MAKERS = {
    "sgd": lambda: optim.SGD(0.1),
    "sgd with decay": lambda: optim.SGD(0.1, 0.01),
    "momentum": lambda: optim.Momentum(0.03, 0.8, 0.02),
    "adam": lambda: optim.Adam(0.01, 0.8, 0.99, 1e-6, 0.001),
}


def train(name: str, size: int, steps: Any) -> tuple[Any, ...]:
    """Theta and what is remembered after four steps, two of them with another rate."""
    random, optimiser = np.random.default_rng(0), MAKERS[name]()
    theta = Guarded(random.standard_normal(size).astype(np.float32)).array
    optim.use_steps(steps)
    for rate in (None, 0.2, None, 1e-3):
        grad = Guarded(random.standard_normal(size).astype(np.float32)).array
        optimiser.step(theta, grad, rate)
    optim.use_steps(None)
    return theta, *optimiser.plan_step(theta).memory


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("size", [optim.PIECE + 1, 3 * optim.PIECE - 5, 100_003])
def test_they_have_the_bits_of_numpy(library: str, name: str, size: int) -> None:
    for got, want in zip(train(name, size, NativeSteps(library)), train(name, size, None), strict=True):
        np.testing.assert_array_equal(got, want)


def test_short_and_other_vectors_are_left_to_numpy() -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("not for the library")

    long = optim.PIECE + 1
    optim.use_steps(refuse)
    for theta in (np.zeros(5, np.float32), np.zeros(long), np.zeros((long, 2), np.float32)[:, 0]):
        optim.SGD(0.1).step(theta, np.ones_like(theta))
        np.testing.assert_allclose(theta, -0.1, rtol=1e-6)
    with pytest.raises(UsageError, match="a gradient of shape"):
        optim.SGD(0.1).step(np.zeros(long, np.float32), np.zeros(long + 1, np.float32))


def test_vectors_that_may_not_be_written_stay_as_they_are(best: str) -> None:
    optim.use_steps(NativeSteps(best))
    data = bytes(4 * (optim.PIECE + 1))
    theta = np.frombuffer(data, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        optim.SGD(0.1).step(theta, np.ones_like(theta))
    assert not any(data)


def test_they_are_used_where_they_are_right(best: str) -> None:
    use_native_steps(best)
    assert isinstance(optim._steps, NativeSteps)


def test_a_library_that_is_wrong_is_not_used(best: str, monkeypatch: Any, caplog: Any) -> None:
    wrong = tuple("Add 0 6" if line == "Sub 0 6" else line for line in native_optimiser.SGD)
    monkeypatch.setattr(native_optimiser, "PROGRAMS", {**native_optimiser.PROGRAMS, "sgd": wrong})
    use_native_steps(best)
    assert optim._steps is None and "a step of SGD by auscult-native is not numpy's" in caplog.text


def test_a_library_without_them_is_not_used(tmp_path: Any, caplog: Any) -> None:
    use_native_steps(str(compile_old_library(tmp_path)))
    assert optim._steps is None and "an older version" in caplog.text


def test_a_wrong_library_leaves_the_right_one(best: str, tmp_path: Any) -> None:
    use_native_steps(best)
    use_native_steps(str(compile_old_library(tmp_path)))
    assert optim._steps is open_steps(best)


def test_a_step_that_fails_leaves_no_trace() -> None:
    def fail(*args: Any) -> None:
        raise MemoryError("none left")

    size = optim.PIECE + 1
    theta, grad, adam, other = np.zeros(size, np.float32), np.ones(size, np.float32), optim.Adam(), optim.Adam()
    optim.use_steps(fail)
    for _ in range(3):
        with pytest.raises(MemoryError):
            adam.step(theta, grad)
    optim.use_steps(None)
    adam.step(theta, grad)
    want = np.zeros_like(theta)
    other.step(want, grad)
    np.testing.assert_array_equal(theta, want)


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_of_numpys_own_are_pythons(best: str, name: str) -> None:
    """They would widen the products of one way, and not of the other."""
    random, size = np.random.default_rng(0), optim.PIECE + 1
    start, grad = random.standard_normal((2, size)).astype(np.float32)
    found = []
    for steps in (None, NativeSteps(best)):
        optim.use_steps(steps)
        theta, optimiser = start.copy(), MAKERS[name]()
        optimiser.step(theta, grad, np.float64(0.037))
        found.append(theta)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("text", ["", "Inputs 1\nNegate 0\nReturn 1", "Inputs 1\nSum 0 1\nReturn 1"])
def test_what_is_no_program_is_not_read(best: str, text: str) -> None:
    read = ctypes.CDLL(best).auscult_native_read
    read.restype = ctypes.c_void_p
    assert read(text.encode()) is None


def test_a_value_that_is_still_needed_is_not_overwritten(best: str, monkeypatch: Any) -> None:
    """The second step reads theta, which the first has written."""
    late = ("Inputs 4", "Sub 0 1", "Add 0 4", "Return 4")
    monkeypatch.setattr(native_optimiser, "PROGRAMS", {"sgd": late})
    theta, grad = np.ones(10, np.float32), np.ones(10, np.float32)
    with pytest.raises(ValueError, match="after it has written it"):
        NativeSteps(best)("sgd", (theta, grad), (0.0, 0.0))
    assert np.all(theta == 1)
