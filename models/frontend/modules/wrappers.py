"""What torch's tools wrap around a module, taken off: a bundle has the module as it was written.

`torch.compile` makes code of its own through which nothing can be traced, and gives parameters other names. The older
kind of checkpoint (`use_reentrant=True`) computes a part under no_grad, and once more in the backward pass; a bundle
has that part once, with its gradient. The newer kind draws dropout anew as well, as it did before, from torch's own
generator, which knows nothing of a device's masks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils import checkpoint

from edge_sdk.models.ir.errors import UnsupportedPattern

ORIGINAL = "_orig_mod"
"""The name under which `torch.compile` keeps the module that it was given."""


def unwrap(net: nn.Module) -> nn.Module:
    """The module without what `torch.compile` has wrapped around it or its parts, whose names are the original ones.

    The module itself is not changed; where a part is compiled, this is a copy.
    """
    net = take_original(net)
    if any(take_original(layer) is not layer for layer in net.modules()):
        net = copy.deepcopy(net)
        for layer in list(net.modules()):
            for name, part in layer.named_children():
                layer._modules[name] = take_original(part)
    return net


def take_original(part: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given, or the module itself."""
    while isinstance(inner := getattr(part, ORIGINAL, None), nn.Module):
        part = inner
    return part


@contextmanager
def as_written() -> Iterator[None]:
    """Run compiled functions and layers as they were written, and checkpoints as plain calls."""
    with (
        torch.compiler.set_stance("force_eager"),
        mock.patch.object(checkpoint, "CheckpointFunction", PlainCall),
        mock.patch.object(checkpoint, "_checkpoint_without_reentrant_generator", call_once),
    ):
        yield


def call_once(*_: Any, **__: Any) -> Iterator[None]:
    """Around the call of what is checkpointed by the newer kind: nothing is computed again, or drawn again."""
    yield


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let torch compute on one thread: what a compilation computes is so small that more of them mostly wait for each
    other, and what is measured of it, which a bundle says, would depend on the machine's number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class PlainCall:
    """Stands for torch's function that checkpoints."""

    @staticmethod
    def apply(run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """What `run` gives.

        Raises:
            UnsupportedPattern: no argument has a gradient, and then torch gives the part's parameters none.
        """
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if torch.is_grad_enabled() and not any(t.requires_grad for t in tensors):
            what = "torch.utils.checkpoint around what reads the samples gives its layers no gradient"
            raise UnsupportedPattern(what, "", "say use_reentrant=False")
        return run(*args)
