"""Memory that a trained parameter shares with another tensor: torch's step changes both, a bundle has two of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from edge_sdk.models.frontend.kept.snapshots import take_snapshot
from edge_sdk.models.ir.errors import UnsupportedPattern


def refuse_shared_memory(net: nn.Module) -> None:
    """Raise UnsupportedPattern for a trained parameter that shares elements with another tensor or array.

    A copy of a module, by which all else is judged, shares them no more.
    """
    made = find_made_by_hooks(net)
    found = [(name, tensor) for name, tensor in list_arrays(net) if id(tensor) not in made]
    others = [(name, tensor, view) for name, tensor in found if (view := find_memory(tensor)) is not None]
    for name, parameter in net.named_parameters():
        memory = find_memory(parameter) if parameter.requires_grad else None
        for other, tensor, view in others if memory is not None else ():
            if tensor is not parameter and np.may_share_memory(memory, view) and np.shares_memory(memory, view):
                what = f"the memory of {other}, which a step of torch would change with it"
                advice = "give both one nn.Parameter (a.weight = b.weight) to train them as one, else .clone() it"
                raise UnsupportedPattern(what, name, advice)


def find_made_by_hooks(net: nn.Module) -> set[int]:
    """Identities of tensors that torch's normalisations of weights make anew before each use: what shares their memory
    until then is not what is trained."""
    hooks = [(part, hook) for part in net.modules() for hook in part._forward_pre_hooks.values()]
    return {id(getattr(part, hook.name, None)) for part, hook in hooks if isinstance(hook, SpectralNorm | WeightNorm)}


def list_arrays(net: nn.Module) -> Iterator[tuple[str, Any]]:
    """All tensors and arrays that a module has or its code can reach, with what they are called there."""
    yield from net.named_parameters()
    yield from net.named_buffers()
    found = take_snapshot(net, copied=False)
    for path, value in found.values.items():
        if isinstance(value, torch.Tensor | np.ndarray):
            yield found.places[path].words, value


def find_memory(value: torch.Tensor | np.ndarray) -> np.ndarray | None:
    """The numbers of an array or a tensor of float32, without a copy; None: it has others, or none here."""
    if isinstance(value, np.ndarray):
        return value
    has_numbers = value.dtype == torch.float32 and value.layout == torch.strided and value.device.type == "cpu"
    return value.detach().numpy(force=True) if has_numbers else None
