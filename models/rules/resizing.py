"""Resize: nearest neighbour by whole factors, and linear and cubic interpolation."""

from __future__ import annotations

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.evaluation.resizing import make_matrix
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import as_number
from edge_sdk.models.rules.shaping import multiply_along
from edge_sdk.models.rules.table import Adjoints, Want, rule

# ways to choose the nearest neighbour that repeat each element where the factors are whole numbers
COPIES = {("floor", "asymmetric"), ("round_prefer_floor", "half_pixel"), ("round_prefer_ceil", "half_pixel")}


@rule("Resize")
def resize(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Each axis is a matrix of weights, whose transpose is the adjoint; repeating elements is a plain sum."""
    x = n.inputs[0]
    sx, sy = g.shape(x), g.shape(n.outputs[0])
    if sx[:2] != sy[:2]:
        raise UnsupportedPattern(f"Resize from {sx} to {sy}", n.where, "resize positions only")
    mode, rounding = n.attributes.get("mode", "nearest"), n.attributes.get("nearest_mode", "round_prefer_floor")
    place = n.attributes.get("coordinate_transformation_mode", "half_pixel")
    factors = [divmod(o, i) for i, o in zip(g.sample_shape(x)[1:], g.sample_shape(n.outputs[0])[1:], strict=True)]
    if mode == "nearest" and all(rest == 0 for _, rest in factors) and (rounding, place) in COPIES:
        apart = [d for i, (factor, _) in zip(sx[2:], factors, strict=True) for d in (i, factor)]
        return (g.sum(g.reshape(gy, (*sx[:2], *apart)), range(3, 3 + 2 * (len(sx) - 2), 2)),)
    for axis in range(2, len(sx)):
        if sx[axis] != sy[axis]:
            matrix = make_matrix(
                read_scales(g, n)[axis], (as_number(sx[axis]), as_number(sy[axis])), n.attributes, n.where
            )
            gy = multiply_along(g, gy, axis, g.constant(np.ascontiguousarray(matrix)))
    return (gy,)


def read_scales(g: OnnxGraph, n: OnnxNode) -> list[float]:
    """The factor of each axis; 0 where it follows from the sizes."""
    scales = g.constants.get(n.inputs[2]) if len(n.inputs) > 2 and n.inputs[2] else None
    rank = g.rank(n.inputs[0])
    return [float(s) for s in scales] if scales is not None and scales.size == rank else [0.0] * rank
