"""Low-rank adapters (LoRA): a device trains, and sends, one percent of a large model.

E. J. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, equation 3: a linear layer becomes
    y = x W' + b + (alpha / rank) x A' B'
with W and b as they are, A (rank, in) drawn and B (out, rank) zero, so that the model begins as it was. Here alpha is
twice the rank, as is usual.

Some layers are never called: attention reads its projections' weights. There the weight itself is
    W + (alpha / rank) B A
whenever it is read, which is the same function.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.ir.errors import CompileError

FACTOR = 2.0  # alpha / rank


class Adapted(nn.Module):
    """A layer with an adapter: `lora_a` (rank, in) and `lora_b` (out, rank) are trained."""

    lora_a: nn.Parameter
    lora_b: nn.Parameter


class AdaptedByCall(Adapted):
    """A layer beside which an adapter runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = super().forward(x)
        return made + FACTOR * F.linear(F.linear(x, self.lora_a), self.lora_b)


class AdaptedLinear(AdaptedByCall, nn.Linear):
    """A linear layer beside which an adapter runs."""


def add_to_weight(layer: Any, name: str) -> torch.Tensor:
    """The weight (out, in) of a layer and its adapter together; notes that it was read."""
    layer.reads = getattr(layer, "reads", 0) + 1
    whole: torch.Tensor = layer._parameters[name] + FACTOR * (layer.lora_b @ layer.lora_a)
    return whole


class ReadLinear(Adapted, nn.Linear):
    """A linear layer whose weight others read; the adapter is part of it then."""

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        return add_to_weight(self, "weight")


class ReadAttention(Adapted, nn.MultiheadAttention):
    """Attention whose projection of queries, keys and values has one adapter."""

    @property
    def in_proj_weight(self) -> torch.Tensor:  # type: ignore[override]
        return add_to_weight(self, "in_proj_weight")


def find_size(layer: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a layer that can have an adapter; None: it cannot.

    `Conv1D` with `nf` outputs is the linear layer of GPT-2 in transformers; its weight lies the other way round.
    """
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D" and isinstance(getattr(layer, "nf", None), int):
        shape: Any = layer.weight.shape
        return int(shape[0]), int(shape[1])
    if isinstance(layer, nn.MultiheadAttention) and layer._qkv_same_embed_dim:
        return layer.embed_dim, 3 * layer.embed_dim
    return None


def add_adapters(net: nn.Module, rank: int, targets: Sequence[str], others: Sequence[str] = ()) -> nn.Module:
    """A copy of a module of which only adapters, and `others`, are trained.

    Args:
        targets: words; each linear layer, or attention, with one of them in its path gets an adapter.
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
    able = {p: size for p, m in paths.items() if (size := find_size(m)) is not None}
    adapted = [p for p in able if any(t in p for t in targets)]
    if not adapted:
        linear = ", ".join(able) or "none at all"
        raise CompileError(
            f"--target {' '.join(targets)}: no linear layer has that in its path; there are {linear}"[:500]
        )
    for path in adapted:
        adapt_layer(paths[path], able[path], rank, path)
    for path in others:
        paths[path].requires_grad_(True)
    return net


def adapt_layer(layer: nn.Module, sizes: tuple[int, int], rank: int, path: str) -> None:
    """Give a layer of these inputs and outputs an adapter, in place; its own parameters keep their names."""
    kind, (into, out) = type(layer), sizes
    if isinstance(layer, nn.Linear) and kind.forward is not nn.Linear.forward:
        raise CompileError(f"{path}: a {kind.__name__} has a forward of its own; leave it out of --target")
    if not 0 < rank < min(sizes):
        raise CompileError(f"--lora {rank}: {path} goes from {into} to {out}; give a rank from 1 to less than that")
    if isinstance(layer, nn.MultiheadAttention):
        layer.__class__ = ReadAttention
    elif isinstance(layer, nn.Linear):
        layer.__class__ = AdaptedLinear
    else:
        layer.__class__ = type(f"Adapted{kind.__name__}", (AdaptedByCall, kind), {})
    down = torch.empty(rank, into)
    nn.init.kaiming_uniform_(down, a=5**0.5)
    layer.lora_a, layer.lora_b = nn.Parameter(down), nn.Parameter(torch.zeros(out, rank))


def settle_adapters(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str] = ()) -> None:
    """Run the module once, and make adapters part of the weights of those linear layers that are never called.

    Raises:
        CompileError: naming a layer whose weight is not read either.
    """
    for path in list_idle(net, examples, arguments):
        layer = net.get_submodule(path)
        if isinstance(layer, AdaptedLinear):
            layer.__class__ = ReadLinear  # type: ignore[assignment]
    for path in list_idle(net, examples, arguments):
        raise CompileError(f"{path}: it is neither called nor read, so an adapter would do nothing; choose others")


def list_idle(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> list[str]:
    """Paths of the layers with adapters that a run of the module neither calls nor, where that counts, reads."""
    layers = {m: path for path, m in net.named_modules() if isinstance(m, Adapted)}
    left = dict(layers)
    handles = [m.register_forward_hook(lambda m, given, made: (left.pop(m, None), None)[1]) for m in layers]
    before = {m: getattr(m, "reads", 0) for m in layers}
    try:
        with torch.no_grad():
            run_module(net, [e[:2] for e in examples], arguments)
    except Exception:
        return []  # the exporter explains that better
    finally:
        for handle in handles:
            handle.remove()
    return [path for m, path in left.items() if getattr(m, "reads", 0) == before[m]]
