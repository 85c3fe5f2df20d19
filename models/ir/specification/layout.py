"""The layout of a torch module: the place of every parameter in theta, and of every buffer in its own vector."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import nn

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.ir.errors import CompileError

NORMS = (nn.GroupNorm, nn.LayerNorm, nn.modules.batchnorm._NormBase)
CONVOLUTIONS = (nn.modules.conv._ConvNd,)
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def lay_out_parameters(
    module: nn.Module, groups: Mapping[str, str] | None = None, statistics: Collection[str] = ()
) -> list[Slot]:
    """The slots of trainable parameters (requires_grad), in torch's order, and of running statistics after them.

    Args:
        module: with float parameters. One that has several names has the first one here.
        groups: name of a group -> comma-separated prefixes of parameter names. Without it every top-level part that has
            parameters is a group of its own.
        statistics: names of the running statistics that are part of theta.

    Raises:
        CompileError: a parameter has no elements.
    """
    kinds = find_kinds(module)
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    running = [(name, b) for name, b in module.named_buffers() if name in statistics]
    return lay_out((name, t, kinds.get(name, "norm"), find_group(name, groups)) for name, t in [*trained, *running])


def lay_out_buffers(module: nn.Module, statistics: Collection[str] = ()) -> list[Slot]:
    """The slots of what is not trained: float buffers but `statistics`, and parameters without requires_grad."""
    floats = [(name, b) for name, b in module.named_buffers() if b.is_floating_point() and name not in statistics]
    frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
    return lay_out((name, t, "other", "") for name, t in [*floats, *frozen])


def lay_out(tensors: Iterable[tuple[str, torch.Tensor, str, str]]) -> list[Slot]:
    """Slots without gaps for (name, tensor, kind, group)."""
    slots, offset = list[Slot](), 0
    for name, tensor, kind, group in tensors:
        if not tensor.numel():
            raise CompileError(f"{name} has no elements: shape {tuple(tensor.shape)}; leave it out of the module")
        slots.append(Slot(name, tuple(tensor.shape) or (1,), offset, kind, group))
        offset += tensor.numel()
    return slots


def find_kinds(module: nn.Module) -> dict[str, str]:
    """Name of a parameter -> its kind, which says what layer it belongs to."""
    kinds = {}
    for path, layer in module.named_modules():
        for name, p in layer.named_parameters(recurse=False):
            kinds[f"{path}.{name}" if path else name] = find_kind(layer, name, p)
    return kinds


def find_kind(layer: nn.Module, name: str, p: torch.Tensor) -> str:
    """One of edge_sdk.algebra.vectors.KINDS."""
    if isinstance(layer, NORMS):
        return "norm"
    if isinstance(layer, RECURRENT):
        return "recurrent"
    if "bias" in name:
        return "bias"
    if isinstance(layer, CONVOLUTIONS):
        return "conv"
    if isinstance(layer, nn.Linear) or (isinstance(layer, nn.MultiheadAttention) and p.dim() == 2):
        return "linear"
    return "embedding" if isinstance(layer, nn.Embedding) else "other"


def find_group(name: str, groups: Mapping[str, str] | None) -> str:
    """The layer group of a parameter; "" if none of the prefixes fits."""
    if groups is None:
        return name.split(".")[0]
    for group, prefixes in groups.items():
        if any(name == p or name.startswith(p + ".") for p in prefixes.split(",")):
            return group
    return ""


def flatten(tensors: Mapping[str, torch.Tensor], slots: Sequence[Slot]) -> torch.Tensor:
    """All tensors of the slots, one after the other, (n,)."""
    if not slots:
        return torch.zeros(0)
    return torch.cat([tensors[s.name].detach().reshape(-1) for s in slots])
