"""One node of a graph, and the graph inside a Scan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_sdk.models.ir.shapes import Shape


@dataclass(frozen=True)
class TorchCall:
    """The call of a torch function that a node was written for.

    At a kink, functions that ONNX writes alike have different derivatives: clamp passes the gradient at its bounds,
    hardtanh does not, and both are a Clip.

    Attributes:
        name: of the function, e.g. "hardtanh". overload: e.g. "default". arguments: as torch prints them.
    """

    name: str
    overload: str = "default"
    arguments: tuple[str, ...] = ()


@dataclass
class OnnxNode:
    """One operator at work: its inputs and outputs are names of values.

    Attributes:
        op: name of the operator, e.g. "Conv". domain: its operator set; "" is ONNX's own.
        where: path of the torch module that it came from; "" if unknown.
        call: the torch function that it came from; None if unknown, and for nodes of the backward pass.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    where: str = ""
    call: TorchCall | None = None


@dataclass(frozen=True)
class ScanBody:
    """The graph inside a Scan, which may read values of the outer graph by name.

    Attributes:
        inputs, outputs: (name, shape) of each; the states first, then the sequences.
    """

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[tuple[str, Shape], ...]
    outputs: tuple[tuple[str, Shape], ...]


def write_key(value: Any) -> Any:
    """What equal attributes of operators have in common, and others do not: of an array all of its bytes."""
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)
