"""What a module keeps in Python from one call to the next: a bundle's graphs start anew with each call.

A number that nobody reads, such as a count of calls, is harmless; so is a cache, which stays as it is. Buffers are
refused before, in side_effects.py.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from edge_sdk.models.frontend.kept.counts import find_counts
from edge_sdk.models.frontend.modules.outputs import pick, run_module
from edge_sdk.models.frontend.modules.randomness import Still
from edge_sdk.models.frontend.modules.training import BATCH, is_same, keep_generators
from edge_sdk.models.ir.errors import UnsupportedPattern

Numbers = dict[tuple[str, str], Any]
"""(path of a module, name of its attribute) -> value."""


class Unnamed(UnsupportedPattern):
    """A result that changes from call to call, by something that has no name yet."""


def refuse_remembered(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str) -> None:
    """Raise for a module whose result depends on what it keeps from the calls before.

    Args:
        output: as of Spec.

    Raises:
        UnsupportedPattern: with the name of the attribute.
    """
    net, given = copy.deepcopy(net), [e[:BATCH] for e in examples]
    results, kept = [], []
    for _ in range(3):
        results.append(run_alike(net, given, arguments, output))
        kept.append(read_attributes(net))
    # what is set once, as a cache is, is the same after the second and the third call
    moving = [k for k, v in kept[2].items() if k in kept[1] and not is_equal(v, kept[1][k])]
    differs = not all(is_same(results[0], r) for r in results[1:])
    if not differs:
        moving = [k for k in moving if not all(is_same(results[0], r) for r in vary(net, k, given, arguments, output))]
    if moving or differs:
        path, name = moving[0] if moving else ("", "")
        what = f"{f'self.{name}' if name else 'something'} in Python changes with each call, and the result with it"
        advice = "a bundle keeps nothing between calls; give it as an input, or leave it out"
        raise (UnsupportedPattern if name else Unnamed)(what, path or "the module", advice)


def run_alike(net: nn.Module, given: Sequence[torch.Tensor], arguments: Sequence[str], output: str) -> torch.Tensor:
    """What a module returns, with nothing dropped and the same random numbers each time."""
    with warnings.catch_warnings(), torch.no_grad(), torch.random.fork_rng(devices=[]), keep_generators(), Still():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # a GPU keeps its numbers
        return pick(run_module(net, given, arguments), output)


def read_attributes(net: nn.Module) -> Numbers:
    """The numbers, truth values and tensors that modules have as plain attributes."""
    return {
        (path, name): value.detach().clone() if isinstance(value, torch.Tensor) else value
        for path, layer in net.named_modules()
        for name, value in vars(layer).items()
        if isinstance(value, (bool, int, float, torch.Tensor))
    }


def is_equal(a: Any, b: Any) -> bool:
    """True for two equal numbers or tensors."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())
    return type(a) is type(b) and bool(a == b)


def vary(
    net: nn.Module, key: tuple[str, str], given: Sequence[torch.Tensor], arguments: Sequence[str], output: str
) -> Iterator[torch.Tensor]:
    """Results of a module with other values of a number that it keeps."""
    path, name = key
    layer = net.get_submodule(path)
    before = getattr(layer, name)
    if isinstance(before, torch.Tensor):
        return
    for count in find_counts(net):
        setattr(layer, name, type(before)(count))
        yield run_alike(net, given, arguments, output)
    setattr(layer, name, before)
