"""Refuses hooks on gradients: an exported forward graph does not have them, nor does a copy of the module."""

from __future__ import annotations

from torch import nn

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
