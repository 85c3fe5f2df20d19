"""Products of the library beside numpy's in float64: shapes, transposes, factors, and what is repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.onnx_session import OnnxSession
from tests.native.products import check_close, make_graph, multiply, open_product, run_product

SMALL = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 14, 15, 16, 17, 27, 28, 29, 31, 32, 33, 47, 48, 49])
LARGE = st.sampled_from([61, 64, 127, 128, 255, 256, 257, 503, 504, 505, 512, 513, 769])
SIZE = st.one_of(SMALL, SMALL, LARGE)
FACTOR = st.sampled_from([1.0, 1.0, -1.0, 0.5, 0.0, 3.0])
SWAP = st.sampled_from([0, 1])
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def draw(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def lay(a: Any, swap: int) -> Any:
    """What is to be given where an operator swaps the last two axes."""
    return np.ascontiguousarray(a.swapaxes(-1, -2)) if swap else a


@MANY
@given(rows=SIZE, depth=SIZE, columns=SIZE, alpha=FACTOR, swap_a=SWAP, swap_b=SWAP, seed=st.integers(0, 99))
def test_two_axes(library: str, rows: int, depth: int, columns: int, alpha: float, swap_a: int, swap_b: int, seed: int):
    a, b = draw(seed, rows, depth), draw(seed + 1, depth, columns)
    if alpha == 1 and not swap_a and not swap_b:
        got = run_product(library, "MatMul", a, b)
    else:
        how = {"alpha": alpha, "transA": swap_a, "transB": swap_b}
        got = run_product(library, "Gemm", lay(a, swap_a), lay(b, swap_b), **how)
    check_close(got, *multiply(a, b, alpha))


@MANY
@given(
    rows=SIZE, depth=SIZE, columns=SIZE, alpha=FACTOR, beta=FACTOR, swap_a=SWAP, swap_b=SWAP,
    bias=st.sampled_from(["none", "()", "(1,)", "(N,)", "(1,1)", "(1,N)", "(M,1)", "(M,N)"]),
)  # fmt: skip
def test_gemm(library: str, rows, depth, columns, alpha, beta, swap_a, swap_b, bias: str):
    shapes = {"()": (), "(1,)": (1,), "(N,)": (columns,), "(1,1)": (1, 1), "(1,N)": (1, columns)}
    shapes |= {"(M,1)": (rows, 1), "(M,N)": (rows, columns)}
    a, b = draw(0, rows, depth), draw(1, depth, columns)
    c = [] if bias == "none" else [np.asarray(draw(2, *shapes[bias]), np.float32)]
    how = {"alpha": alpha, "beta": beta, "transA": swap_a, "transB": swap_b}
    got = run_product(library, "Gemm", lay(a, swap_a), lay(b, swap_b), *c, **how)
    want, size, depth = multiply(a, b, alpha)
    if c:
        want, size = want + beta * c[0].astype(np.float64), size + abs(beta) * np.abs(c[0])
    check_close(got, want, size, depth)


OUTER = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3)


@MANY
@given(data=st.data())
def test_more_axes(library: str, data: Any):
    """Outer axes, of which each side has some, or 1 in place of one."""
    outer = data.draw(OUTER)
    rows, depth, columns = (data.draw(SMALL) for _ in range(3))
    sides = []
    for _ in range(2):
        kept = outer[data.draw(st.integers(0, len(outer))) :]
        sides.append([1 if data.draw(st.booleans()) else size for size in kept])
    a, b = draw(0, *sides[0], rows, depth), draw(1, *sides[1], depth, columns)
    check_close(run_product(library, "MatMul", a, b), *multiply(a, b))


@MANY
@given(outer=OUTER, depth=SIZE, other=SMALL, which=st.sampled_from(["a", "b", "both"]))
def test_one_axis(library: str, outer: list[int], depth: int, other: int, which: str):
    a = draw(0, depth) if which != "b" else draw(0, *outer, other, depth)
    b = draw(1, depth) if which != "a" else draw(1, *outer, depth, other)
    check_close(run_product(library, "MatMul", a, b), *multiply(a, b))


def test_numbers_that_are_none(library: str):
    """0 times infinity is no number, wherever it stands: nothing is left out because a factor is 0."""
    rng = np.random.default_rng(3)
    for rows, depth, columns in ((5, 40, 9), (40, 300, 70), (2, 3, 1), (1, 64, 33)):
        a, b = draw(0, rows, depth), draw(1, depth, columns)
        a[rng.integers(rows), rng.integers(depth)] = 0
        a[-1, -1], b[-1, -1] = 0, np.inf
        b[rng.integers(depth), rng.integers(columns)] = np.nan
        b[rng.integers(depth), rng.integers(columns)] = -np.inf
        with np.errstate(invalid="ignore"):
            want = a.astype(np.float64) @ b.astype(np.float64)
        for got in (
            run_product(library, "MatMul", a, b),
            run_product(library, "Gemm", lay(a, 1), lay(b, 1), transA=1, transB=1),
            run_product(library, "Gemm", a, lay(b, 1), transB=1),
        ):
            assert np.array_equal(np.isnan(got), np.isnan(want))
            assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)])
            assert np.isfinite(got[np.isfinite(want)]).all()


@pytest.mark.parametrize(
    "shapes", [((1100, 300), (300, 600)), ((30, 12, 64, 64), (30, 12, 64, 64)), ((9, 900), (900, 2000))]
)
def test_the_number_of_threads_changes_no_bit(library: str, shapes):
    a, b = (draw(i, *shape) for i, shape in enumerate(shapes))
    one, two, four = (run_product(library, "MatMul", a, b, threads=threads) for threads in (1, 2, 4))
    assert one.tobytes() == two.tobytes() == four.tobytes()


@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 33, 17), (60, 300, 70), (3, 128, 40)])
def test_numbers_that_lie_anywhere(library: str, rows: int, depth: int, columns: int):
    """Arrays that begin at no multiple of a vector's length: inputs and the output, as an application may bind them."""
    session = open_product(library, "MatMul", 2)._session
    a, b, y = (shift(draw(i, *shape)) for i, shape in enumerate([(rows, depth), (depth, columns), (rows, columns)]))
    binding = session.io_binding()
    for name, array in (("a", a), ("b", b)):
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    check_close(y, *multiply(a, b))


def shift(a: Any) -> Any:
    """The same numbers, 4 bytes behind a multiple of 64."""
    room = np.empty(a.size + 32, np.float32)
    start = (-room.ctypes.data % 64) // 4 + 1
    moved = room[start : start + a.size].reshape(a.shape)
    moved[...] = a
    return moved


def test_it_is_deterministic(library: str):
    a, b = draw(0, 300, 520), draw(1, 520, 130)
    assert len({run_product(library, "MatMul", a, b).tobytes() for _ in range(5)}) == 1


def test_an_older_version_of_an_operator_keeps_to_onnxruntimes_own(best: str):
    model = onnx.load_from_string(make_graph("MatMul", 2))
    model.opset_import[0].version = 12
    session = OnnxSession("old", model.SerializeToString(), 1, library=best)
    assert session.run({"a": np.ones((2, 3), np.float32), "b": np.ones((3, 1), np.float32)})[0].tolist() == [[3], [3]]
    with pytest.raises(BundleError) as refused:
        session.run({"a": np.ones((2, 3), np.float32), "b": np.ones((4, 1), np.float32)})
    assert "the inner sizes of A and B differ" not in str(refused.value)
