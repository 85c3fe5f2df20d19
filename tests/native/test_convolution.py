"""The operator ConvWeightGradient beside torch in float64: windows, groups, threads, and what is no number."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("torch", reason="the reference needs it")

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.models.ir.evaluation.reference import Evaluator
from tests.native.products import HALF_ULP
from tests.native.test_bounds import Guarded


class Case(NamedTuple):
    """Sizes of a convolution: samples, channels, outputs, and of each axis."""

    batch: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    before: tuple[int, ...] = (0, 0)
    after: tuple[int, ...] = (0, 0)
    group: int = 1

    def count_positions(self) -> tuple[int, ...]:
        found = []
        for i, size in enumerate(self.sizes):
            reach = self.dilation[i] * (self.kernel[i] - 1)
            found.append((size + self.before[i] + self.after[i] - reach - 1) // self.stride[i] + 1)
        return tuple(found)

    def attributes(self) -> dict[str, int]:
        named = {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilation, "before": self.before}
        each = {f"{name}_{i}": values[i] for name, values in named.items() for i in range(len(self.sizes))}
        return {**each, "group": self.group}


CASES = [
    Case(1, 1, 1, (1,), (1,)),
    Case(2, 3, 5, (40,), (7,), before=(3,), after=(3,)),
    Case(3, 6, 20, (33,), (5,), (2,), (1,), (0,)),
    Case(2, 4, 9, (50,), (3,), (1,), (4,), (6,), (1,)),
    Case(5, 2, 3, (3,), (3,), before=(2,), after=(2,)),
    Case(2, 3, 8, (9, 8), (3, 3), before=(1, 1), after=(1, 1)),
    Case(2, 3, 8, (9, 8), (3, 3), (2, 1), (1, 2), (1, 2), (0, 2)),
    Case(3, 4, 6, (7, 7), (3, 2), (1, 2), (2, 1), (0, 1), group=2),
    Case(2, 5, 17, (124, 9), (5, 1)),
    Case(2, 5, 17, (30, 9), (5, 1), dilation=(3, 1), before=(4, 0), after=(2, 0)),
    Case(2, 3, 4, (2, 3), (5, 7), before=(4, 6), after=(4, 6)),
    Case(1, 3, 4, (6, 1), (3, 3), before=(1, 1), after=(1, 1)),
    Case(40, 33, 65, (2, 2), (3, 3), before=(1, 1), after=(1, 1)),
    Case(2, 70, 130, (17, 16), (3, 3), before=(1, 1), after=(1, 1)),
    Case(2, 16, 9, (23, 21), (1, 1)),
    Case(1, 3, 33, (31, 29), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3)),
    Case(2, 6, 6, (12, 11), (3, 3), before=(1, 1), after=(1, 1), group=6),
    Case(0, 2, 3, (5,), (3,)),
]


def make_graph(case: Case) -> bytes:
    node = helper.make_node("ConvWeightGradient", ["x", "gy"], ["gw"], domain="auscult", **case.attributes())
    ins, outs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in v] for v in (["x", "gy"], ["gw"]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("auscult", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ins, outs), opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


@cache
def open_gradient(library: str, case: Case, threads: int = 1) -> OnnxSession:
    return OnnxSession("gradient", make_graph(case), threads, library=library)


def draw(case: Case) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.batch, case.channels, *case.sizes))
    gy = rng.standard_normal((case.batch, case.outputs, *case.count_positions()))
    return {"x": x.astype(np.float32), "gy": gy.astype(np.float32)}


def compute(case: Case, given: dict[str, Any]) -> tuple[Any, Any, int]:
    """The gradient in float64, the same of absolute values, and the numbers that a sum has at most."""
    import onnx

    wide = {name: v.astype(np.float64) for name, v in given.items()}
    evaluate = Evaluator(onnx.load_from_string(make_graph(case)))
    size = evaluate({name: np.abs(v) for name, v in wide.items()})["gw"]
    return evaluate(wide)["gw"], size, case.batch * int(np.prod(case.count_positions()))


def check_close(got: Any, want: Any, size: Any, count: int) -> None:
    assert got.dtype == np.float32 and got.shape == want.shape
    assert np.all(np.abs(got - want) <= (count + 4) * HALF_ULP * size)


@pytest.mark.parametrize("case", CASES)
def test_windows(library: str, case: Case):
    given = draw(case)
    if case.batch:
        check_close(open_gradient(library, case).run(given)[0], *compute(case, given))
    else:
        assert not open_gradient(library, case).run(given)[0].any()


def test_the_number_of_threads_changes_no_bit(library: str):
    case = Case(3, 130, 70, (17, 16), (3, 3), before=(1, 1), after=(1, 1))
    given = draw(case)
    assert len({open_gradient(library, case, threads).run(given)[0].tobytes() for threads in (1, 2, 4)}) == 1


@pytest.mark.parametrize("case", CASES[:-1])
def test_nothing_is_touched_beside_an_array(library: str, case: Case):
    given = draw(case)
    want, size, count = compute(case, given)
    arrays = {name: Guarded(value) for name, value in given.items()}
    made = Guarded(np.zeros(want.shape, np.float32))
    binding = open_gradient(library, case)._session.io_binding()
    for name, one in arrays.items():
        binding.bind_input(name, "cpu", 0, np.float32, one.array.shape, one.array.ctypes.data)
    binding.bind_output("gw", "cpu", 0, np.float32, made.array.shape, made.array.ctypes.data)
    open_gradient(library, case)._session.run_with_iobinding(binding)
    check_close(made.array, want, size, count)


@pytest.mark.parametrize("case", [CASES[5], CASES[6], CASES[8]])
def test_what_is_no_number_is_seen_by_its_taps_alone(library: str, case: Case):
    """In a corner of x: a tap that does not see it must not even multiply it by 0. In gy: its output has none."""
    for name in ("x", "gy"):
        given = draw(case)
        given[name][0, 1, 0, -1] = np.nan
        want, got = compute(case, given)[0], open_gradient(library, case).run(given)[0]
        assert np.array_equal(np.isnan(got), np.isnan(want)) and not np.isnan(want).all()


WRONG = [
    ("x", (2, 3, 9), "shapes"), ("x", (2, 3), "shapes"), ("x", (1, 3, 9, 8), "shapes"), ("gy", (2, 8, 9), "shapes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "word"), WRONG)
def test_shapes_that_do_not_fit_are_refused(best: str, name: str, shape: tuple[int, ...], word: str):
    given = draw(CASES[5]) | {name: np.zeros(shape, np.float32)}
    with pytest.raises(BundleError, match=f"ConvWeightGradient: the {word} of the inputs do not fit"):
        open_gradient(best, CASES[5]).run(given)


def test_channels_that_are_no_whole_groups_are_refused(best: str):
    case = CASES[5]._replace(group=2)
    with pytest.raises(BundleError, match="ConvWeightGradient: the shapes of the inputs do not fit"):
        open_gradient(best, case).run(draw(case))


@pytest.mark.parametrize("change", [{"stride": (0, 1)}, {"kernel": (3, -1)}, {"before": (-1, 0)}, {"group": 0}])
def test_attributes_out_of_range_are_refused(best: str, change: dict[str, Any]):
    with pytest.raises(BundleError, match="ConvWeightGradient: "):
        open_gradient(best, CASES[5]._replace(**change))


def test_windows_that_reach_too_far_are_refused(best: str):
    """Places that they see are added up and multiplied with the numbers of a line."""
    case = Case(1, 1, 1, (1, 65536), (2**23 + 1, 1), dilation=(2**24, 1))
    given = {name: np.zeros((1, 1, 1, 65536), np.float32) for name in ("x", "gy")}
    with pytest.raises(BundleError, match="reach farther than can be counted"):
        open_gradient(best, case).run(given)
