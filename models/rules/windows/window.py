"""The window of a convolution or pooling: its size, and its steps over the input."""

from __future__ import annotations

from dataclasses import dataclass

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.evaluation.padding import settle_window
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim, as_numbers


@dataclass(frozen=True)
class Window:
    """A window and its steps: one entry per spatial axis.

    Attributes:
        kernel: taps. stride: positions between two outputs. before, after: padding. dilation: positions between taps.
        group: groups of channels (convolutions only).
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    group: int = 1

    @property
    def pads(self) -> list[int]:
        return [*self.before, *self.after]

    @property
    def reach(self) -> tuple[int, ...]:
        """Input positions between the first and the last tap."""
        return tuple(d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True))

    @property
    def dense(self) -> bool:
        """True if the window stops at every position and its taps lie side by side."""
        return all(s == 1 for s in self.stride) and all(d == 1 for d in self.dilation)


def read_window(g: OnnxGraph, n: OnnxNode, kernel: tuple[int, ...]) -> Window:
    """The window of a Conv or pooling node; automatic padding becomes numbers.

    Raises:
        UnsupportedPattern: it would move along the batch axis.
    """
    at, shape = n.attributes, g.shape(n.inputs[0])[2:]
    nd = len(kernel)
    if any(isinstance(d, BatchDim) for d in shape):
        raise UnsupportedPattern(f"{n.op} along the batch axis", n.where)
    spatial = as_numbers(shape)
    pads, stride, dilation = settle_window(at, spatial, kernel)
    return Window(kernel, tuple(stride), tuple(pads[:nd]), tuple(pads[nd:]), tuple(dilation), at.get("group", 1))
