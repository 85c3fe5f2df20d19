"""Branches on whether gradients are wanted: a bundle predicts what it trains, by one forward pass for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from edge_sdk.models.frontend.modules.outputs import pick
from edge_sdk.models.frontend.modules.training import BATCH, LARGER, Pass, find_difference, is_same, run_pass
from edge_sdk.models.ir.errors import UnsupportedPattern


@contextmanager
def as_inference() -> Iterator[None]:
    """Answer code that asks for inference_mode; torch's own would give functions other parts, as of dropout."""
    asked = mock.patch.object(torch, "is_inference_mode_enabled", lambda: True)
    with torch.no_grad(), asked, mock.patch.object(torch.Tensor, "is_inference", lambda _: True):
        yield


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": as_inference,
}


def refuse_grad_modes(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str) -> None:
    """Raise for a module that returns something else in evaluation where torch notes no gradients.

    Args:
        output: as of Spec.

    Raises:
        UnsupportedPattern: with the path of the first layer whose result differs.
    """
    given = [e[:BATCH] for e in examples]
    for inputs in (given, [e * LARGER if e.is_floating_point() else e for e in given]):
        try:
            with torch.enable_grad():
                wanted = run_seeded(net, inputs, arguments)
        except Exception:  # a module that does not run with gradients is refused by those that trace it
            return
        for name, mode in MODES.items():
            with mode():
                found = run_seeded(net, inputs, arguments)
            if not is_same(*(pick(p.made, output) for p in (wanted, found))):
                what = f"another result under torch.{name}() than with gradients"
                advice = (
                    "take the branch on is_grad_enabled, is_inference_mode_enabled, requires_grad or grad_fn out: a "
                    "device predicts what it trains"
                )
                raise UnsupportedPattern(what, find_difference(wanted, found), advice)


def run_seeded(net: nn.Module, given: Sequence[torch.Tensor], arguments: Sequence[str]) -> Pass:
    """One pass in evaluation, with the same random numbers each time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # a GPU keeps its numbers
        return run_pass(net, given, arguments, False, None)
