"""Calls of a module in training or evaluation, with what each made, to be compared bit by bit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from edge_sdk.models.frontend.kept.snapshots import is_alike
from edge_sdk.models.frontend.modules.outputs import pick, run_module
from edge_sdk.models.frontend.modules.randomness import Still
from edge_sdk.models.frontend.modules.training import Pass, find_gradients, keep_generators, note_functions

Call = Callable[[nn.Module], "Seen"]
"""Runs a module once, as `run_once` does."""
LARGER = 30.0
"""What inputs or parameters are multiplied by for one more call."""


@dataclass(frozen=True)
class Seen:
    """What a call made: the result that counts, and gradients by the parameters' names."""

    result: torch.Tensor
    gradients: Mapping[str, torch.Tensor]

    def equals(self, other: Seen) -> bool:
        """True if every bit is the same: the same module did the same twice."""
        pairs = [(self.result, other.result), *((g, other.gradients.get(n)) for n, g in self.gradients.items())]
        return all(b is not None and is_alike(a, b) for a, b in pairs)


@torch.no_grad()
def part(net: nn.Module) -> None:
    """Give each parameter values of its own: a running copy of another one begins as its equal."""
    generator = torch.Generator().manual_seed(0)
    for p in net.parameters():
        if p.is_floating_point():
            p.copy_(torch.randn(p.shape, generator=generator))


def run_once(
    net: nn.Module, given: Sequence[torch.Tensor], arguments: Sequence[str], output: str, drawn: bool = False
) -> Seen:
    """One call as the module is, with the same random numbers each time.

    Args:
        drawn: dropout and noise are drawn; else nothing is dropped or added.

    Raises:
        CompileError: no result counts.
    """
    with (
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
        keep_generators(),
        nullcontext() if drawn else Still(),
        note_functions(Pass(), ()),
    ):
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # a GPU keeps its numbers
        random.seed(0)
        np.random.seed(0)
        made = run_module(net, given, arguments)
        return Seen(pick(made, output).detach(), find_gradients(net, made, output) or {})


def try_once(net: nn.Module, call: Call) -> Seen | None:
    """What a call made; None: it has another result in training, or does not run, as with a count out of a table."""
    try:
        return call(net)
    except Exception:
        return None
