"""A torch module through export, reverse mode and the float64 half of the gate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from edge_sdk.models.bundle.compile import make_example, read_vectors
from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.tracing.export import Forward, export_forward
from edge_sdk.models.gate.graphs.gate import Truth, check_semantics
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput


class Net(nn.Module):
    """Linear 8 -> 6, a function, linear to 3 classes: for functions of tensors."""

    def __init__(self, f: Callable[..., torch.Tensor], out: int = 6, extra: nn.Module | None = None) -> None:
        super().__init__()
        self.a, self.b, self.f, self.extra = nn.Linear(8, 6), nn.Linear(out, 3), f, extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        return self.b(self.extra(h) if self.extra is not None else self.f(h))


class Last(nn.Module):
    """The last step of a recurrent layer's sequence."""

    def forward(self, out):
        return out[0][:, -1]


def measure_error(net: nn.Module, shape: tuple[int, ...], below: int | None = None) -> float:
    """Worst float64 error over the gate's cases; raises what the compiler raises."""
    return measure_exported(*export_net(net, shape, below))


def export_net(net: nn.Module, shape: tuple[int, ...], below: int | None = None):
    """The module, its input and its exported forward pass; the export takes most of the time."""
    net = net.eval()
    inputs = [DataInput("x", shape, below)]
    return net, inputs, export_forward(net, lay_out_parameters(net), ["x"], [make_example(inputs[0])])


def measure_exported(net: nn.Module, inputs: list[DataInput], forward: Forward) -> float:
    """Reverse mode on an exported module, and the float64 half of the gate."""
    slots, buffers = lay_out_parameters(net), lay_out_buffers(net)
    target = targets.write_loss_grad(targets.Source(forward, {"theta": slots}, buffers), "cross_entropy")
    return check_semantics(target, slots, Truth(net, inputs, "cross_entropy"), read_vectors(net, slots, buffers), (-3,))
