"""Norms whose statistics are others in training than `--norm` would make them.

Batch normalisations without running statistics (track_running_stats=False), those that a module keeps in evaluation
while it trains, and instance norms with running statistics.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.frontend.modules.randomness import follow_path
from edge_sdk.models.ir.errors import UnsupportedPattern

NORM = nn.modules.batchnorm._BatchNorm


def settle_statistics(net: nn.Module, norm: str) -> nn.Module:
    """The module, whose predictions do not depend on who else is in the batch.

    Such a layer normalises with the batch in predictions, too. In training it is like any other with --norm batch; for
    predictions it is given running statistics here, which that training keeps. The module itself is not changed.

    Raises:
        UnsupportedPattern: statistics are frozen, and a layer has none; or they are not, and a layer would train with
            others than in torch.
    """
    if norm != "frozen":
        refuse_instances(net, norm)
        refuse_held(net, norm)
    paths = [path for path, m in net.named_modules() if isinstance(m, NORM) and m.running_mean is None]
    if paths and norm == "frozen":
        what = "BatchNorm without running statistics (track_running_stats=False)"
        advice = "compile with --norm batch or running, which gives it running statistics, or use GroupNorm"
        raise UnsupportedPattern(what, paths[0], advice)
    net = copy.deepcopy(net) if paths else net
    for layer in [m for m in net.modules() if isinstance(m, NORM) and m.running_mean is None]:
        layer.track_running_stats = True
        layer.running_mean, layer.running_var = torch.zeros(layer.num_features), torch.ones(layer.num_features)
        layer.num_batches_tracked = torch.tensor(0)
    return net


def refuse_instances(net: nn.Module, norm: str) -> None:
    """Raise UnsupportedPattern for an instance norm with running statistics, which only predictions would use."""
    for path, layer in net.named_modules():
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.running_mean is not None:
            what = f"InstanceNorm with running statistics, which --norm {norm} does not carry along"
            advice = "leave track_running_stats at False, which normalises each sample by itself, or use GroupNorm"
            raise UnsupportedPattern(what, path or "the module", advice)


def refuse_held(net: nn.Module, norm: str) -> None:
    """Raise UnsupportedPattern for a batch normalisation that a module's own `train()` leaves in evaluation."""
    trained = copy.deepcopy(net).train()
    for path, layer in trained.named_modules():
        if isinstance(layer, NORM) and not layer.training:
            what = f"BatchNorm that stays in evaluation as the module trains, but would not with --norm {norm}"
            advice = "compile with --norm frozen, or write its scale and shift in its place, as a layer of their own"
            raise UnsupportedPattern(what, path or "the module", advice)


def find_readers(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Path of each layer that reads running statistics beside normalising with them, and the names of these."""
    net, found = copy.deepcopy(net).eval(), list[tuple[str, str]]()
    kept = {id(b): n for n, b in net.named_buffers() if n.rpartition(".")[2] in ("running_mean", "running_var")}
    with torch.no_grad(), follow_path(net) as stack, WatchReads(kept, stack, found):
        run_module(net, examples, arguments)
    return found


class WatchReads(TorchFunctionMode):
    """Notes who gives some tensors to a function that is no norm.

    Args:
        kept: id -> name of each tensor. stack: the modules that are running. found: (path, name) is added to it.
    """

    def __init__(self, kept: Mapping[int, str], stack: Sequence[tuple[str, Any]], found: list[tuple[str, str]]) -> None:
        super().__init__()
        self.kept, self.stack, self.found = kept, stack, found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = [self.kept[id(v)] for v in (*args, *(kwargs or {}).values()) if id(v) in self.kept]
        if named and "norm" not in getattr(func, "__name__", "") and not is_look(func):
            self.found.append(((self.stack[-1][0] if self.stack else "") or "the module", named[0]))
        return func(*args, **(kwargs or {}))


def is_look(func: Any) -> bool:
    """True for what reads a tensor's shape or type, and none of its values."""
    return getattr(func, "__name__", "") in ("__get__", "size", "dim", "numel", "is_floating_point", "is_complex")
