"""Modules that torch would train otherwise than a device: refused, before anything is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from edge_sdk.models.frontend.kept.python_state import named_state, refuse_python_state
from edge_sdk.models.frontend.kept.remembered import refuse_remembered
from edge_sdk.models.frontend.kept.training_state import refuse_training_state
from edge_sdk.models.frontend.modules.grad_modes import refuse_grad_modes
from edge_sdk.models.frontend.modules.hooks import refuse_tensor_hooks
from edge_sdk.models.frontend.modules.lora import settle_adapters
from edge_sdk.models.frontend.modules.outputs import check_output
from edge_sdk.models.frontend.modules.randomness import find_draws, refuse_certain_drops, refuse_draws
from edge_sdk.models.frontend.modules.side_effects import refuse_changes, refuse_setting
from edge_sdk.models.frontend.modules.training import refuse_training_only
from edge_sdk.models.gate.graphs.gate import Drops


def refuse_unlike(
    net: nn.Module,
    examples: Sequence[torch.Tensor],
    arguments: Sequence[str],
    outputs: Sequence[str],
    norm: str,
    dropout: str,
) -> Drops | None:
    """What a module drops at random in training, if that is to be kept; None: nothing.

    Args:
        arguments: of the module that the inputs are given as; none: by place. outputs: the result that counts, and
            those of further heads. norm, dropout: as of Spec.

    Raises:
        CompileError: its results are none that can be trained on, or it does what no device does after it.
    """
    with refuse_setting(net):
        check_output(net, examples, list(outputs), arguments)
    refuse_changes(net, examples, arguments)
    given = (net, examples, arguments, outputs[0])
    refuse_grad_modes(*given)
    with named_state(*given, dropout):
        refuse_remembered(*given)
        settle_adapters(net, examples, arguments)
        drops = find_drops(net, examples, dropout, arguments)
        refuse_training_state(*given, dropout)
    refuse_python_state(*given, dropout)
    for name in outputs:
        refuse_training_only(net, examples, arguments, name, norm, dropout)
    refuse_tensor_hooks(*given)
    return drops


def find_drops(
    net: nn.Module, examples: Sequence[torch.Tensor], dropout: str, arguments: Sequence[str]
) -> Drops | None:
    """What a module drops at random in training, if that is to be kept; None: nothing.

    Raises:
        TrainModeExport: it drops something, and `dropout` does not say what is to become of it.
    """
    if dropout != "off":
        refuse_certain_drops(net)
    draws = [] if dropout == "off" else find_draws(net, examples, arguments)
    if not dropout:
        refuse_draws(draws)
    return Drops(tuple(draws), ()) if draws else None
