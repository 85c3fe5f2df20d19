"""Sessions of one elementwise program, and what it computes in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edge_sdk.model.sessions.onnx_session import OnnxSession


def make_program(text: str, inputs: int, outputs: int) -> bytes:
    """A graph of one program: inputs i0, i1, ..., outputs o0, ...; no shape is said."""
    ins, outs = [f"i{k}" for k in range(inputs)], [f"o{k}" for k in range(outputs)]
    node = helper.make_node("Elementwise", ins, outs, domain="auscult", program=text)
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in some] for some in (ins, outs)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("auscult", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *values), opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


@cache
def open_program(library: str, text: str, inputs: int, outputs: int, threads: int = 1) -> OnnxSession:
    return OnnxSession("program", make_program(text, inputs, outputs), threads, library=library)


def run_program(library: str, text: str, arrays: Sequence[Any], outputs: int = 1, threads: int = 1) -> list[Any]:
    session = open_program(library, text, len(arrays), outputs, threads)
    return session.run({f"i{k}": np.asarray(one, np.float32) for k, one in enumerate(arrays)})
