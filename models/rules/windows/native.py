"""Operators of the native step (domain "auscult"), as what the rules write could be made with them.

A rule writes its gradient with standard operators, and says beside it which native nodes would make the same values:
graphs stay as they are, and passes/native/native_nodes.py puts these nodes in the place of those that they make
superfluous.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import as_number
from edge_sdk.models.rules.windows.window import Window

LEAST_OUTPUTS, LEAST_BESIDE_LINES = 16, 32
"""Output channels of a group from which on the gradient of a convolution's weights is worth gathering columns for; more
where outputs have lines of another length than inputs, so that columns consist of pieces as long as these."""
SHORTEST = 4
"""Positions of such a piece: a window as wide as the image leaves one, and numbers are gathered one by one."""


def describe_loop(g: OnnxGraph, op: str, given: Sequence[str], made: Sequence[str], backwards: bool) -> OnnxNode:
    """The operator of a whole loop over time."""
    return OnnxNode(op, list(given), list(made), {"backwards": int(backwards)}, NATIVE_DOMAIN, g.where)


def note_weight_adjoint(g: OnnxGraph, x: str, gy: str, window: Window, gw: str) -> None:
    """Say that the weight adjoint `gw` of a convolution can be made by one operator."""
    axes = len(window.kernel)
    same = set(window.stride) == {1} and g.shape(x)[-1] == g.shape(gy)[-1]
    if axes > 2 or g.numbers(gw)[0] // window.group < (LEAST_OUTPUTS if same else LEAST_BESIDE_LINES):
        return
    if not same and as_number(g.shape(gy)[-1]) < SHORTEST:
        return
    named = {"kernel": window.kernel, "stride": window.stride, "dilation": window.dilation, "before": window.before}
    numbers = {f"{name}_{i}": sizes[i] for name, sizes in named.items() for i in range(axes)}
    attributes = {**numbers, "group": window.group}
    g.native.append((OnnxNode("ConvWeightGradient", [x, gy], [gw], attributes, NATIVE_DOMAIN, g.where),))
