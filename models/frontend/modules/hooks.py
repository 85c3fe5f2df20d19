"""Refuses hooks on gradients: an exported forward graph does not have them, nor does a copy of the module."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.frontend.modules.randomness import Still, follow_path, set_training
from edge_sdk.models.frontend.modules.training import BATCH, find_gradients
from edge_sdk.models.ir.errors import UnsupportedPattern

ON_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
ON_LAYERS = ("_backward_hooks", "_backward_pre_hooks")


def refuse_hooks(net: nn.Module) -> None:
    """Raise UnsupportedPattern for a parameter or layer whose gradient a hook changes, or may change.

    A copy of a module has no hooks on its parameters, so this is for the module as it came.
    """
    for name, parameter in net.named_parameters():
        if any(getattr(parameter, kind, None) for kind in ON_TENSORS):
            what = "a hook on this parameter's gradient, which devices would not call"
            advice = (
                "remove it; for entries that stay as they are, multiply by a mask in forward, or freeze the parameter"
            )
            raise UnsupportedPattern(what, name, advice)
    for path, layer in net.named_modules():
        if any(getattr(layer, kind, None) for kind in ON_LAYERS):
            what = "a hook on this layer's gradient, which devices would not call"
            raise UnsupportedPattern(what, path or "the module", "remove it, or write what it does in forward")


def refuse_tensor_hooks(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str
) -> None:
    """Raise for a module that puts a hook on a tensor in forward which returns another gradient.

    A hook that only looks is harmless.

    Args:
        output: as of Spec.

    Raises:
        UnsupportedPattern: with the path of the layer that registers the hook.
    """
    for training in (True, False):
        trained, changed = copy.deepcopy(net), list[str]()
        set_training(trained, others=training)
        try:
            with warnings.catch_warnings(), torch.enable_grad(), follow_path(trained) as stack, Still():
                warnings.simplefilter("ignore")
                with watch_hooks(stack, changed):
                    made = run_module(trained, [e[:BATCH] for e in examples], arguments)
                find_gradients(trained, made, output)
        except Exception:  # a module that does not run is refused elsewhere
            continue
        refuse_hooks(trained)
        if changed:
            what = "x.register_hook in forward changes a gradient, and devices would not call the hook"
            advice = "write the gradient with detach(): c * x + (1 - c) * x.detach() is x, with c times its gradient"
            raise UnsupportedPattern(what, changed[0] or "the module", f"{advice}; leave limits of gradients out")


@contextmanager
def watch_hooks(stack: Sequence[tuple[str, nn.Module]], changed: list[str]) -> Iterator[None]:
    """Note the paths of layers whose hooks on tensors return something, or write into a gradient."""
    register: Any = torch.Tensor.register_hook

    def watch(tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
        path = stack[-1][0] if stack else ""

        def call(grad: torch.Tensor) -> Any:
            before = grad.clone()
            made = hook(grad)
            if (made is not None and made is not grad) or not torch.equal(before, grad):
                changed.append(path)
            return made

        return register(tensor, call)

    with mock.patch.object(torch.Tensor, "register_hook", watch):
        yield
