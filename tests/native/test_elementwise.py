"""The operator Elementwise: each step against numpy in float64, inputs that are repeated, and programs it refuses."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.onnx_session import OnnxSession
from tests.native.programs import open_program, run_program
from tests.native.test_bounds import Guarded

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 3e38, -3e38]
ONE: dict[str, Callable[[Any], Any]] = {
    "Identity": np.positive,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Erf": np.vectorize(erf),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Sign": np.sign,
    "Not": lambda x: x == 0,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}
UNITS = {"Tanh": 6, "Sigmoid": 4, "Exp": 2, "Log": 2, "Erf": 2}
"""Units of the last place that a function may be off; others are the nearest number."""


def check(got: Any, want: Any, units: float = 0.51) -> None:
    """Compares float32 with float64: within units of the last place, and the same infinities and NaN."""
    nearest = want.astype(np.float32)
    assert got.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest))
    finite = np.isfinite(nearest) & np.isfinite(got)
    np.testing.assert_array_equal(got[~finite], nearest[~finite])
    worst = np.abs(got.astype(np.float64) - want)[finite] - units * np.spacing(np.abs(nearest[finite])).astype(float)
    assert np.all(worst <= 1e-38), f"off at {nearest[finite][np.argmax(worst)]}"  # of denormal numbers some are 0


@pytest.mark.parametrize("name", ONE)
def test_a_step_of_one_operand(library: str, name: str):
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-12, 12, 5000), rng.standard_normal(5000) * 1e-3, rng.uniform(-120, 120, 3003)])
    x = np.concatenate([x, SPECIAL]).astype(np.float32)
    (got,) = run_program(library, f"Inputs 1\n{name} 0\nReturn 1", [x])
    with np.errstate(all="ignore"):
        check(got, np.asarray(ONE[name](x.astype(np.float64)), np.float64), UNITS.get(name, 0.51))


@pytest.mark.parametrize("name", TWO)
def test_a_step_of_two_operands(library: str, name: str):
    """Arrays, a single number on either side, and a constant."""
    rng = np.random.default_rng(0)
    x, y = (np.concatenate([rng.standard_normal(300), each]) for each in (SPECIAL * 11, np.repeat(SPECIAL, 11)))
    x, y = x.astype(np.float32), y.astype(np.float32)
    x[:50] = y[:50]
    with np.errstate(all="ignore"):
        for a, b in ((x, y), (x, y[:1]), (x[:1], y)):
            (got,) = run_program(library, f"Inputs 2\n{name} 0 1\nReturn 2", [a, b])
            want = np.asarray(TWO[name](a.astype(np.float64), b.astype(np.float64)), np.float64)
            check(got, want)
        (got,) = run_program(library, f"Inputs 1\nConstant 0x1.8p-1\n{name} 0 1\nReturn 2", [x])
        check(got, np.asarray(TWO[name](x.astype(np.float64), 0.75), np.float64))


def test_steps_of_three_operands(library: str):
    rng = np.random.default_rng(0)
    c, x, y = rng.standard_normal((3, 1000)).astype(np.float32)
    c[::3] = 0
    for singles in range(8):
        a, b, d = (one[:1] if singles >> k & 1 else one for k, one in enumerate((c, x, y)))
        text = "Inputs 4\nWhere 0 1 2\nMul 3 4\nReturn 5"
        (got,) = run_program(library, text, [a, b, d, np.ones(1000)])
        np.testing.assert_array_equal(got, np.broadcast_to(np.where(a, b, d), 1000))
    text = "Inputs 1\nConstant 0x1p-1\nConstant 0x1p-2\nHardSigmoid 0 1 2\nReturn 3"
    (got,) = run_program(library, text, [x])
    np.testing.assert_array_equal(got, np.clip(x / 2 + np.float32(0.25), 0, 1))


REPEATED = [
    [(5, 4, 3), (3,)],
    [(5, 4, 3), (4, 1)],
    [(5, 4, 3), (5, 1, 1), (1, 4, 3)],
    [(2, 3, 4, 5), (3, 1, 1), (2, 1, 1, 5), (1,)],
    [(1, 1), (7, 9)],
    [(6, 1, 8), (1, 7, 1)],
    [(3, 700), (700,), (3, 1)],
    [(4, 5000), (5000,)],
    [(2, 16, 33, 31), (16, 1, 1)],
    [(300, 1), (1, 300)],
    [(2, 3, 4, 700), (2, 3, 1, 1), (3, 4, 1), (700,)],
    [(2, 3, 2, 2500), (2, 1, 1, 1), (2, 1), (1, 3, 1, 1)],
    [(3, 2, 400), (3, 1, 1), (1, 400), (2, 1)],
    [(), ()],
    [(), (2, 3)],
    [(0, 3), (3,)],
    [(70001,), (1,)],
    [(2, 1, 3, 1, 2), (1, 2, 1, 5, 1), (5, 1)],
]


@pytest.mark.parametrize("shapes", REPEATED)
@pytest.mark.parametrize("threads", [1, 2])
def test_inputs_are_repeated(library: str, shapes: list[tuple[int, ...]], threads: int):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    lines, last = [f"Inputs {len(arrays)}"], 0
    for k in range(1, len(arrays)):
        lines, last = [*lines, f"Add {last} {k}"], len(arrays) + k - 1
    text = "\n".join([*lines, f"Mul {last} 0", f"Return {last} {last + 1}"])
    total, product = run_program(library, text, arrays, outputs=2, threads=threads)
    want = arrays[0]
    for one in arrays[1:]:
        want = want + one
    np.testing.assert_array_equal(total, want)
    np.testing.assert_array_equal(product, want * arrays[0])


def test_outputs_that_are_no_results_of_their_own(library: str):
    x = np.arange(300, dtype=np.float32)
    found = run_program(library, "Inputs 1\nNeg 0\nConstant 0x1p1\nReturn 1 0 1 2", [x], outputs=4)
    for got, want in zip(found, (-x, x, -x, np.full(300, 2)), strict=True):
        np.testing.assert_array_equal(got, want)


SUMMED = [((4, 3, 5, 7), 2), ((2, 33, 1000), 1), ((3, 5000), 1), ((2, 3, 4), 3), ((6, 5), 0), ((0, 3), 1), ((3, 0), 1)]


@pytest.mark.parametrize(("shape", "axes"), [*SUMMED, ((80, 2, 900), 1), ((3, 90000), 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_along_the_last_axes(library: str, shape: tuple[int, ...], axes: int, threads: int):
    """Of a value that is returned, of one that is not, of an input that is repeated, and of a constant."""
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[-1:]).astype(np.float32)
    lines = ["Inputs 2", "Mul 0 1", "Exp 2", "Constant 0x1.8p0", *(f"Sum {k} {axes}" for k in (2, 3, 1, 4))]
    text = "\n".join([*lines, "Return 5 2 6 7 8"])
    first, product, *others = run_program(library, text, [x, row], outputs=5, threads=threads)
    along = tuple(range(len(shape) - axes, len(shape)))
    values = [x * row, np.exp(x * row), np.broadcast_to(row, shape), np.full(shape, 1.5)]
    np.testing.assert_array_equal(product, values[0])
    for got, value in zip([first, *others], values, strict=True):
        value = value.astype(np.float64)
        np.testing.assert_allclose(
            got, value.sum(along), rtol=1e-6, atol=1e-6 * (1 + np.abs(value).sum(along).max(initial=0))
        )


def test_many_numbers_by_several_threads(library: str):
    """A long program, whose rows are used again, over stretches that several threads take."""
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal((40, 90, 192)).astype(np.float32), rng.standard_normal(192).astype(np.float32)
    lines, want, last = ["Inputs 2"], x, 0
    for k in range(60):
        lines, last = [*lines, f"Mul {last} 1", f"Add {2 + 2 * k} 0"], 3 + 2 * k
        want = want * row + x
    text = "\n".join([*lines, f"Return {last}"])
    for threads in (1, 3):
        (got,) = run_program(library, text, [x, row], threads=threads)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(1,), (15,), (16,), (257,), (3, 5), (2, 31, 7), (70, 1000)])
def test_nothing_is_touched_behind_an_array(library: str, shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    shapes = {"i0": shape, "i1": shape[-1:], "i2": (*shape[:-1], 1), "o0": shape, "o1": shape}
    arrays = {name: Guarded(rng.standard_normal(each).astype(np.float32)) for name, each in shapes.items()}
    session = open_program(library, "Inputs 3\nMul 0 1\nExp 3\nAdd 3 2\nReturn 4 5", 3, 2)._session
    binding = session.io_binding()
    for name, one in arrays.items():
        bind = binding.bind_output if name in ("o0", "o1") else binding.bind_input
        bind(name, "cpu", 0, np.float32, one.array.shape, one.array.ctypes.data)
    session.run_with_iobinding(binding)
    x, row, column = (arrays[f"i{k}"].array for k in range(3))
    np.testing.assert_array_equal(arrays["o1"].array, x * row + column)
    np.testing.assert_allclose(arrays["o0"].array, np.exp(x * row), rtol=1e-6)


WRONG = {
    "": "number of inputs",
    "Mul 0 1": "number of inputs",
    "Inputs 0\nConstant 1\nNeg 0\nReturn 1": "no inputs, or returns nothing",
    "Inputs 1\nNeg 0": "does not know",
    "Inputs 1\nNeg 0\nReturn": "no inputs, or returns nothing",
    "Inputs 1\nNeg 1\nReturn 1": "no line before has given",
    "Inputs 1\nNeg -1\nReturn 1": "no line before has given",
    "Inputs 1\nAdd 0\nReturn 1": "no line before has given",
    "Inputs 1\nNeg 0 0\nReturn 1": "more words",
    "Inputs 1\nNeg 0\nReturn 2": "no line before has given",
    "Inputs 1\nConstant\nNeg 0\nReturn 2": "no number",
    "Inputs 1\nConstant x\nNeg 0\nReturn 2": "no number",
    "Inputs 1\nSum 0 1\nNeg 1\nReturn 1 2": "no step reads it",
    "Inputs 1\nNeg 0\nSum 1 1\nReturn 1": "a sum is not returned",
    "Inputs 1\nSum 0 1\nReturn 1 1": "a sum is returned twice",
    "Inputs 1\nSum 0 -1\nReturn 1": "no line before has given",
    "Inputs 1\nSum 0\nReturn 1": "no line before has given",
    "Inputs 1\nConstant \t0x1p0\nNeg 1\nReturn 2": "no number",
    "Inputs 1025\nNeg 0\nReturn 1025": "no line before has given",
    "Inputs 1\nNegate 0\nReturn 1": "does not know",
    "Inputs 1\nNeg 99999999999999999999\nReturn 1": "no line before has given",
    "Inputs 1000000\nNeg 0\nReturn 1": "no line before has given",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_program_is_refused(best: str, text: str):
    with pytest.raises(BundleError, match=WRONG[text]):
        open_program(best, text, 1, 1)


def test_values_that_are_needed_at_the_same_time_are_limited(best: str):
    """Each thread keeps memory for them."""
    for count, refused in ((1024, False), (1026, True)):
        last, sums = 1, []
        for k in range(2, count + 1):
            sums.append(f"Add {last} {k}")
            last = count + k - 1
        text = "\n".join(["Inputs 1", *["Neg 0"] * count, *sums, f"Return {last}"])
        if refused:
            with pytest.raises(BundleError, match="1,024 values at the same time"):
                open_program(best, text, 1, 1)
        else:
            assert run_program(best, text, [np.ones(3)])[0].tolist() == [-count] * 3


def test_inputs_and_outputs_without_a_name_are_refused(best: str):
    for outputs in (["y", ""], ["", "y"]):
        for program in ("Inputs 1\nAdd 0 0\nMul 0 0\nReturn 1 2", "Inputs 1\nAdd 0 0\nSum 1 1\nReturn 1 2"):
            with pytest.raises(BundleError, match="an output has no name"):
                run_named(best, ["a"], outputs, program)
    with pytest.raises(BundleError):
        run_named(best, ["a", ""], ["y"], "Inputs 2\nAdd 0 1\nReturn 2")


def run_named(library: str, inputs: list[str], outputs: list[str], program: str) -> None:
    """Runs a program whose node has these names."""
    node = helper.make_node("Elementwise", inputs, outputs, domain="auscult", program=program)
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None)] for name in ("a", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("auscult", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets, ir_version=8)
    OnnxSession("named", model.SerializeToString(), 1, library=library).run({"a": np.ones(5, np.float32)})


def test_calls_that_do_not_fit_are_refused(best: str):
    with pytest.raises(BundleError, match="the shapes of the inputs differ"):
        run_program(best, "Inputs 2\nAdd 0 1\nReturn 2", [np.zeros(3), np.zeros(4)])
    with pytest.raises(BundleError, match="other inputs or outputs"):
        run_program(best, "Inputs 1\nNeg 0\nReturn 1", [np.zeros(3), np.zeros(3)])
    with pytest.raises(BundleError, match="other inputs or outputs"):
        run_program(best, "Inputs 1\nNeg 0\nReturn 1", [np.zeros(3)], outputs=2)
    with pytest.raises(BundleError, match="more axes than there are"):
        run_program(best, "Inputs 1\nSum 0 2\nReturn 1", [np.zeros(3)])
