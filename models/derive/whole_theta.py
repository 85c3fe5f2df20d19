"""A graph that takes the tensors of theta one by one, written so that it takes theta as a whole (see tensors.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.algebra.vectors import Layout
from edge_sdk.model.theta_tensors import ThetaTensor

THETA, CUT = "theta", "whole theta"
"""The input, and how names of what it is cut with begin: those of its tensors begin with "theta."."""


def take_whole_theta(data: bytes, tensors: Sequence[ThetaTensor], layout: Layout) -> bytes:
    """The graph with the input `theta` (n,) in the place of its tensors, which it cuts and reshapes as others do.

    Args:
        data: the graph. tensors: inputs of it. layout: of theta.
    """
    model = onnx.load_from_string(data)
    graph, given = model.graph, {one.name for one in tensors}
    of_slot = {one.span.start: one for one in tensors}
    pieces = [f"{CUT}.{k}" for k in range(len(layout.slots))]
    nodes = [helper.make_node("Split", [THETA, f"{CUT}.sizes"], pieces, axis=0)]
    constants = [numpy_helper.from_array(np.array([slot.size for slot in layout.slots], np.int64), f"{CUT}.sizes")]
    for piece, slot in zip(pieces, layout.slots, strict=True):
        if (one := of_slot.get(slot.offset)) is not None:
            constants.append(numpy_helper.from_array(np.array(one.shape, np.int64), f"{piece}.shape"))
            nodes.append(helper.make_node("Reshape", [piece, f"{piece}.shape"], [one.name]))
    inputs = [value for value in graph.input if value.name not in given]
    whole = helper.make_tensor_value_info(THETA, TensorProto.FLOAT, [layout.size])
    made = helper.make_graph(
        [*nodes, *graph.node], graph.name, [whole, *inputs], graph.output, [*graph.initializer, *constants]
    )
    opsets, version = list(model.opset_import), model.ir_version
    found = helper.make_model(made, opset_imports=opsets, ir_version=version, producer_name=model.producer_name)
    return bytes(found.SerializeToString(deterministic=True))
