"""Where every parameter of a torch module lies in theta, and every buffer in the vector of running statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod

import torch
from torch import nn

from models.ir.errors import SharedParameter

NORMS = (nn.GroupNorm, nn.LayerNorm, nn.modules.batchnorm._NormBase)
CONVOLUTIONS = (nn.modules.conv._ConvNd,)
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Slot:
    """One tensor inside a flat vector; `kind` and `group` as in the bundle's layout (models/README.md)."""

    name: str
    shape: tuple[int, ...]
    offset: int
    kind: str
    group: str

    @property
    def size(self) -> int:
        return prod(self.shape)

    def as_json(self) -> dict:
        return asdict(self) | {"shape": list(self.shape)}


def lay_out_parameters(module: nn.Module, groups: Mapping[str, str] | None = None) -> list[Slot]:
    """Trainable parameters in torch's order.

    Args:
        module: with float parameters, each under one name.
        groups: name of a group -> comma-separated prefixes of parameter names. Without it every top-level part that has
            parameters is a group of its own.

    Raises:
        SharedParameter: a tensor has two names.
    """
    refuse_shared(module)
    kinds = find_kinds(module)
    slots, offset = [], 0
    for name, p in module.named_parameters():
        slots.append(Slot(name, tuple(p.shape) or (1,), offset, kinds[name], find_group(name, groups)))
        offset += p.numel()
    return slots


def lay_out_buffers(module: nn.Module) -> list[Slot]:
    """Float buffers (running statistics); counters are left out."""
    slots, offset = [], 0
    for name, b in module.named_buffers():
        if b.is_floating_point():
            slots.append(Slot(name, tuple(b.shape) or (1,), offset, "other", ""))
            offset += b.numel()
    return slots


def refuse_shared(module: nn.Module) -> None:
    seen: dict[int, str] = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        if id(p) in seen:
            raise SharedParameter(f"{seen[id(p)]} and {name} are one tensor; give each layer its own")
        seen[id(p)] = name


def find_kinds(module: nn.Module) -> dict[str, str]:
    """Parameter name -> kind of its layer; every vector of a layer other than a norm is a bias."""
    kinds = {}
    for path, layer in module.named_modules():
        for name, p in layer.named_parameters(recurse=False):
            kinds[f"{path}.{name}" if path else name] = find_kind(layer, name, p)
    return kinds


def find_kind(layer: nn.Module, name: str, p: torch.Tensor) -> str:
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
    if groups is None:
        return name.split(".")[0]
    for group, prefixes in groups.items():
        if any(name == p or name.startswith(p + ".") for p in prefixes.split(",")):
            return group
    return ""


def flatten(tensors: Mapping[str, torch.Tensor], slots: list[Slot]) -> torch.Tensor:
    """(n,): all tensors of the slots, one after the other."""
    if not slots:
        return torch.zeros(0)
    return torch.cat([tensors[s.name].detach().reshape(-1) for s in slots])


def unflatten(theta: torch.Tensor, slots: list[Slot], shapes: Mapping[str, torch.Size]) -> dict[str, torch.Tensor]:
    """Views of theta under the module's names, with the module's shapes (scalars too)."""
    return {s.name: theta[s.offset : s.offset + s.size].reshape(shapes[s.name]) for s in slots}
