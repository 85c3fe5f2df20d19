"""Low-rank adapters (LoRA): a device trains, and sends, one percent of a large model.

E. J. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, equation 3: a linear layer becomes
    y = x W' + b + (alpha / rank) x A' B'
with W and b as they are, A (rank, in) drawn and B (out, rank) zero, so that the model begins as it was. Here alpha is
twice the rank, as is usual.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.frontend.outputs import run_module
from edge_sdk.models.ir.errors import CompileError

FACTOR = 2.0  # alpha / rank


class AdaptedLinear(nn.Linear):
    """A linear layer beside which an adapter is trained."""

    lora_a: nn.Parameter
    lora_b: nn.Parameter

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        lower = F.linear(input, self.lora_a)
        return F.linear(input, self.weight, self.bias) + FACTOR * F.linear(lower, self.lora_b)


def add_adapters(net: nn.Module, rank: int, targets: Sequence[str], others: Sequence[str] = ()) -> nn.Module:
    """A copy of a module of which only adapters, and `others`, are trained.

    Args:
        targets: words; each linear layer with one of them in its path gets an adapter.
        others: paths of layers that are trained whole, such as a new head.

    Raises:
        CompileError: no linear layer has such a path, a rank is no smaller than its layer, or there is no such layer.
    """
    net = copy.deepcopy(net)
    paths = dict(net.named_modules())
    for path in others:
        if path not in paths:
            raise CompileError(
                f"--also {path}: there is no such layer; there are {', '.join(filter(None, paths))}"[:500]
            )
    net.requires_grad_(False)
    adapted = [p for p, m in paths.items() if isinstance(m, nn.Linear) and any(t in p for t in targets)]
    if not adapted:
        linear = ", ".join(p for p, m in paths.items() if isinstance(m, nn.Linear)) or "none at all"
        raise CompileError(
            f"--target {' '.join(targets)}: no linear layer has that in its path; there are {linear}"[:500]
        )
    for path in adapted:
        adapt_layer(paths[path], rank, path)
    for path in others:
        paths[path].requires_grad_(True)
    return net


def adapt_layer(layer: nn.Module, rank: int, path: str) -> None:
    """Give a linear layer an adapter, in place; its own parameters keep their names."""
    assert isinstance(layer, nn.Linear)
    if type(layer).forward is not nn.Linear.forward:
        raise CompileError(f"{path}: a {type(layer).__name__} has a forward of its own; leave it out of --target")
    if not 0 < rank < min(layer.in_features, layer.out_features):
        size = f"{layer.in_features} to {layer.out_features}"
        raise CompileError(f"--lora {rank}: {path} goes from {size}; give a rank from 1 to less than that")
    layer.__class__ = AdaptedLinear
    down = torch.empty(rank, layer.in_features)
    nn.init.kaiming_uniform_(down, a=5**0.5)
    layer.lora_a, layer.lora_b = nn.Parameter(down), nn.Parameter(torch.zeros(layer.out_features, rank))


def check_adapters(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str] = ()) -> None:
    """Check that the module calls every layer with an adapter; some read a layer's weight and never call it.

    Raises:
        CompileError: naming a layer that is not called.
    """
    left = {m: path for path, m in net.named_modules() if isinstance(m, AdaptedLinear)}
    handles = [m.register_forward_hook(lambda m, given, made: (left.pop(m, None), None)[1]) for m in list(left)]
    try:
        with torch.no_grad():
            run_module(net, [e[:2] for e in examples], arguments)
    except Exception:
        return  # the exporter explains that better
    finally:
        for handle in handles:
            handle.remove()
    for path in left.values():
        raise CompileError(f"{path}: its weight is read without a call, so an adapter would do nothing; choose others")
