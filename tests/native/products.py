"""Sessions of one product, and what they are to compute."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edge_sdk.model.onnx_session import OnnxSession

HALF_ULP = 2.0**-24
FUSED = {"transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0, "alpha": 1.0}
"""Attributes of FusedMatMul; where onnxruntime makes one out of Transpose and MatMul, it has all of them."""


def make_graph(operator: str, inputs: int, kind: int = TensorProto.FLOAT, **attributes: Any) -> bytes:
    """A graph of one operator: inputs a, b, and c; output y; no shape is said."""
    names = ["a", "b", "c"][:inputs]
    fused = operator == "FusedMatMul"
    given = {**(FUSED if fused else {}), **attributes}
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft" if fused else "", **given)
    ins, outs = ([helper.make_tensor_value_info(name, kind, None) for name in some] for some in (names, ["y"]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ins, outs), opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


@cache
def open_product(library: str, operator: str, inputs: int, threads: int = 1, **attributes: Any) -> OnnxSession:
    return OnnxSession(operator, make_graph(operator, inputs, **attributes), threads, library=library)


def run_product(library: str, operator: str, *arrays: Any, threads: int = 1, **attributes: Any) -> Any:
    session = open_product(library, operator, len(arrays), threads, **attributes)
    return session.run(dict(zip("abc", arrays, strict=False)))[0]


def multiply(a: Any, b: Any, alpha: float = 1.0, **swaps: int) -> tuple[Any, Any, int]:
    """alpha a b in float64, the same of absolute values, and the depth; `swaps` as FusedMatMul has them."""
    a, b = turn(a, swaps, "A"), turn(b, swaps, "B")
    return alpha * (a @ b), abs(alpha) * (np.abs(a) @ np.abs(b)), a.shape[-1]


def turn(a: Any, swaps: dict[str, int], which: str) -> Any:
    a = np.asarray(a, np.float64)
    if swaps.get(f"transBatch{which}") and a.ndim > 2:
        a = np.moveaxis(a, 0, -2)
    return a.swapaxes(-1, -2) if swaps.get(f"trans{which}") and a.ndim > 1 else a


def check_close(got: Any, want: Any, size: Any, depth: int) -> None:
    """Checks a product of float32: each of its depth + 4 roundings moves it by half a unit of its last place at most.

    Args:
        want: in float64. size: the same of absolute values.
    """
    count = (depth + 4) * HALF_ULP
    assert got.dtype == np.float32 and got.shape == np.shape(want)
    worst = np.abs(got - want) - count / (1 - count) * size
    assert np.all(worst <= 0), f"off by {np.abs(got - want).max()}"
