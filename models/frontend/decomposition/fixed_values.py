"""Values that a module makes of numbers alone (rotary angles, places): a bundle has torch's own float32 numbers.

The exporter computes them with numpy, whose powers and cosines have other last bits. Steep functions, as an attention
that has saturated, would show the gate that rounding as an error of the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind

LIKE = 1e-3
"""How far torch's numbers may be from the exporter's, relative to the largest: angles of many turns differ so much."""


def compute_fixed(program: torch.export.ExportedProgram | None) -> dict[str, np.ndarray]:
    """Name of a value that depends on no input, parameter or buffer -> torch's numbers in float32."""
    if program is None:
        return {}
    values = read_constants(program)
    for node in program.graph.nodes:
        is_fixed = node.op == "call_function" and all(a in values for a in node.all_input_nodes)
        if is_fixed and (made := call_alone(node, values)) is not None:
            values[node] = made
    return {n.name: v.detach().numpy() for n, v in values.items() if v.dtype == torch.float32}


def read_constants(program: torch.export.ExportedProgram) -> dict[torch.fx.Node, torch.Tensor]:
    """The tensors that a module has made of lists of numbers."""
    kinds = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.kind is InputKind.CONSTANT_TENSOR}
    found = [(n, program.constants.get(kinds[n.name] or "")) for n in program.graph.nodes if n.name in kinds]
    return {n: v for n, v in found if isinstance(v, torch.Tensor)}


def call_alone(node: torch.fx.Node, values: Mapping[torch.fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """The tensor that one call gives; None where it is random, writes to one, or cannot be called without a batch."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None
    if torch.Tag.nondeterministic_seeded in target.tags:
        return None
    args, given = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
    try:
        with torch.no_grad():
            made = target(*args, **given)
    except (RuntimeError, TypeError):  # it stays as the exporter has it
        return None
    return made if isinstance(made, torch.Tensor) else None


def take_fixed(array: np.ndarray, fixed: np.ndarray | None) -> np.ndarray:
    """An array of the exporter's with torch's numbers, where these are known to be of the same value."""
    if fixed is None or array.dtype != np.float32 or array.size == 1 or fixed.shape != array.shape:
        return array
    scale = float(np.abs(fixed).max(initial=0))
    is_like = np.isfinite(scale) and float(np.abs(fixed - array).max(initial=0)) <= LIKE * scale
    return fixed if is_like else array
