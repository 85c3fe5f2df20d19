"""Recurrent loops of the library beside numpy's in float64: sizes, directions, threads, and what is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.model.bundle import BundleError
from tests.native.loops import INPUTS, OUTPUTS, compute, draw, list_shapes, open_loop, run_loop
from tests.native.test_bounds import Guarded

SIZES = [
    (steps, rows, hidden) for steps in (1, 2, 9) for rows in (1, 2, 3, 8, 33) for hidden in (1, 5, 16, 33)
]  # fmt: skip
LONG = [(112, 8, 128), (112, 1, 128), (20, 33, 300), (3, 2, 513), (0, 2, 4), (3, 0, 4)]
LIMIT = 4e-6
"""Difference from float64, relative to 1 and the value: some ten roundings a step, which states hand on."""


def check_close(got: dict[str, Any], want: dict[str, Any], limit: float = LIMIT) -> None:
    for name, value in want.items():
        assert got[name].dtype == np.float32 and got[name].shape == value.shape
        worst = np.abs(got[name] - value) / (1 + np.abs(value))
        assert worst.size == 0 or worst.max() <= limit, f"{name} is off by {worst.max()}"


@pytest.mark.parametrize("operator", INPUTS)
@pytest.mark.parametrize("backwards", [False, True])
def test_sizes(library: str, operator: str, backwards: bool):
    for seed, sizes in enumerate(SIZES):
        given = draw(operator, *sizes, seed)
        check_close(run_loop(library, operator, given, backwards), compute(operator, given, backwards))


@pytest.mark.parametrize("operator", INPUTS)
@pytest.mark.parametrize("sizes", LONG)
def test_many_steps_and_units_or_none(library: str, operator: str, sizes: tuple[int, int, int]):
    given = draw(operator, *sizes)
    check_close(run_loop(library, operator, given), compute(operator, given), 10 * LIMIT)


@pytest.mark.parametrize("operator", INPUTS)
def test_a_row_depends_on_no_other_one(library: str, operator: str):
    """Nor on how many there are, nor on threads: bit for bit."""
    given = draw(operator, 7, 75, 64)
    whole = run_loop(library, operator, given)
    for threads in (2, 4):
        again = run_loop(library, operator, given, threads=threads)
        assert all(whole[name].tobytes() == again[name].tobytes() for name in whole)
    for row in (0, 7, 74):
        alone = run_loop(library, operator, {k: v if k in ("r", "bh") else pick(v, row) for k, v in given.items()})
        assert all(pick(whole[name], row).tobytes() == alone[name].tobytes() for name in whole)


def pick(v: Any, row: int) -> Any:
    """One row of states (N, H) or of steps (T, N, H)."""
    return np.ascontiguousarray(v[row : row + 1] if v.ndim == 2 else v[:, row : row + 1])


@pytest.mark.parametrize("operator", INPUTS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(library: str, operator: str, number: float):
    for name in INPUTS[operator]:
        given = draw(operator, 6, 9, 20)
        value = given[name]
        value[(3, 4, 2) if value.ndim == 3 else (4, 2) if value.ndim == 2 else 2] = number
        got, want = run_loop(library, operator, given), compute(operator, given)
        for output in OUTPUTS[operator]:
            assert np.array_equal(np.isnan(got[output]), np.isnan(want[output])), (name, output)
            assert np.array_equal(np.isposinf(got[output]), np.isposinf(want[output]))
            assert np.array_equal(np.isneginf(got[output]), np.isneginf(want[output]))
        finite = {k: np.where(np.isfinite(v), v, 0) for k, v in want.items()}
        check_close({k: np.where(np.isfinite(v), v, np.float32(0)) for k, v in got.items()}, finite)


def test_gates_far_out(library: str):
    """Sigmoid and tanh at their ends, and tanh near 0, where it is its argument."""
    sizes = (1, 4, 200)
    given = {name: np.zeros(shape, np.float32) for name, shape in list_shapes("LstmLoop", *sizes).items()}
    given = {name: given[name] for name in INPUTS["LstmLoop"]}
    x = np.linspace(-110, 110, 800).reshape(4, 200)
    small = np.geomspace(1e-30, 1e-2, 800).reshape(4, 200)
    given["gx"][0] = np.concatenate([x, x, x, small], -1)
    got, want = run_loop(library, "LstmLoop", given), compute("LstmLoop", given)
    np.testing.assert_allclose(got["iof"], want["iof"], rtol=4e-7, atol=1e-37)
    np.testing.assert_allclose(got["m"], want["m"], rtol=7e-7)


@pytest.mark.parametrize("operator", INPUTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 5), (2, 1, 17), (3, 9, 31), (2, 33, 47), (2, 8, 128)])
def test_nothing_is_touched_behind_an_array(library: str, operator: str, sizes: tuple[int, int, int]):
    shapes = list_shapes(operator, *sizes)
    given = {name: Guarded(value) for name, value in draw(operator, *sizes).items()}
    made = {name: Guarded(np.zeros(shapes[name], np.float32)) for name in OUTPUTS[operator]}
    session = open_loop(library, operator)._session
    binding = session.io_binding()
    for arrays, bind in ((given, binding.bind_input), (made, binding.bind_output)):
        for name, one in arrays.items():
            bind(name, "cpu", 0, np.float32, one.array.shape, one.array.ctypes.data)
    session.run_with_iobinding(binding)
    want = compute(operator, {name: one.array for name, one in given.items()})
    check_close({name: one.array for name, one in made.items()}, want)


@pytest.mark.parametrize("operator", INPUTS)
def test_shapes_that_do_not_fit_are_refused(best: str, operator: str):
    right = draw(operator, 3, 2, 4)
    for name, value in right.items():
        for wrong in (value[..., None], np.repeat(value, 2, -1), np.zeros(0, np.float32), np.float32(0)):
            given = right | {name: np.asarray(wrong)}
            with pytest.raises(BundleError, match=f"{operator}: the shapes of the inputs do not fit each other"):
                run_loop(best, operator, given)
