"""Sessions of one product, and what they are to compute."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edge_sdk.model.sessions.onnx_session import OnnxSession

HALF_ULP = 2.0**-24


def make_graph(operator: str, inputs: int, kind: int = TensorProto.FLOAT, **attributes: Any) -> bytes:
    """A graph of one operator: inputs a, b, and c; output y; no shape is said."""
    names = ["a", "b", "c"][:inputs]
    node = helper.make_node(operator, names, ["y"], **attributes)
    ins, outs = ([helper.make_tensor_value_info(name, kind, None) for name in some] for some in (names, ["y"]))
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph([node], "g", ins, outs), opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


@cache
def open_product(library: str, operator: str, inputs: int, threads: int = 1, **attributes: Any) -> OnnxSession:
    return OnnxSession(operator, make_graph(operator, inputs, **attributes), threads, library=library)


def run_product(library: str, operator: str, *arrays: Any, threads: int = 1, **attributes: Any) -> Any:
    session = open_product(library, operator, len(arrays), threads, **attributes)
    return session.run(dict(zip("abc", arrays, strict=False)))[0]


def multiply(a: Any, b: Any, alpha: float = 1.0) -> tuple[Any, Any, int]:
    """alpha a b in float64, the same of absolute values, and the depth."""
    a, b = (np.asarray(each, np.float64) for each in (a, b))
    return alpha * (a @ b), abs(alpha) * (np.abs(a) @ np.abs(b)), a.shape[-1]


def check_close(got: Any, want: Any, size: Any, depth: int) -> None:
    """Checks a product of float32: each of its depth + 4 roundings moves it by half a unit of its last place at most.

    Args:
        want: in float64. size: the same of absolute values.
    """
    count = (depth + 4) * HALF_ULP
    assert got.dtype == np.float32 and got.shape == np.shape(want)
    worst = np.abs(got - want) - count / (1 - count) * size
    assert np.all(worst <= 0), f"off by {np.abs(got - want).max()}"
