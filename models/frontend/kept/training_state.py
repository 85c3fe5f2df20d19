"""What a module keeps while it trains, and what follows from it: a bundle keeps nothing but theta.

Buffers and numbers may be counted in training without harm, where nothing follows from them. Where a result or a
gradient does, the module would be trained on a device with what it kept when it was compiled: a temperature would stay,
running means would not run. Norms of torch are in evaluation here; `--norm` says what becomes of their statistics.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

import torch
from torch import nn

from edge_sdk.models.frontend.kept.calls import LARGER, Call, part, run_once, try_once
from edge_sdk.models.frontend.kept.counts import find_counts
from edge_sdk.models.frontend.kept.remembered import Unnamed, is_equal, read_attributes
from edge_sdk.models.frontend.modules.randomness import set_training
from edge_sdk.models.frontend.modules.training import BATCH
from edge_sdk.models.ir.errors import UnsupportedPattern

Key = tuple[str, str]
"""(path of a module, name of what it has)"""
Kept = dict[Key, Any]
CALLS = 2


def refuse_training_state(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str, dropout: str
) -> None:
    """Raise for a module that changes something while it trains on which its result or a gradient depends.

    Args:
        output, dropout: as of Spec. With dropout "off" a result may differ from call to call where nothing is kept.
            With "keep" the module draws, the same numbers in each call: a schedule of dropout or noise changes nothing
            where nothing is drawn.

    Raises:
        UnsupportedPattern: with the path of the module and the name of what it changes.
    """
    given, trained = [e[:BATCH] for e in examples], copy.deepcopy(net)
    call = partial(run_once, given=given, arguments=arguments, output=output, drawn=dropout == "keep")
    try:
        further = partial(call, given=[e * LARGER if e.is_floating_point() else e for e in given])
        changed, same = watch(trained, call, further)
    except Exception:  # a module that does not run in training is refused elsewhere, or trained as in evaluation
        return
    for key in changed:
        if key[1] in dict(net.get_submodule(key[0]).named_parameters(recurse=False)):
            raise refuse_parameter(key)
    counts = find_counts(net) if changed else ()
    for key, value in changed.items():
        if follows(net, key, [value, *list_counts(value, counts)], call):
            raise refuse_kept(net, key)
    if not same and dropout != "off":
        what = "something in Python changes with each call in training, and the result with it"
        raise Unnamed(what, "the module", "a bundle keeps nothing between calls; leave it out")


def watch(net: nn.Module, call: Call, further: Call) -> tuple[Kept, bool]:
    """What a module changed in calls in training, by its values after them, and whether all calls were alike.

    Args:
        further: a call with larger inputs.
    """
    set_training(net)
    before = read_kept(net)
    calls = [call(net) for _ in range(CALLS)]
    changed = find_changes(before, read_kept(net))
    for move, run in ((keep, further), (enlarge, call), (part, call)):
        move(net)
        moved = read_kept(net)
        try:
            run(net)
        except Exception:  # with parameters that it was not made for
            moved = read_kept(net)
        changed = find_changes(moved, read_kept(net)) | changed
    return changed, all(calls[0].equals(c) for c in calls[1:])


def keep(net: nn.Module) -> None:
    """Leave the parameters as they are."""


@torch.no_grad()
def enlarge(net: nn.Module) -> None:
    """Multiply all parameters: a bound on weights writes only where they are beyond it."""
    for p in net.parameters():
        if p.is_floating_point():
            p.mul_(LARGER)


def read_kept(net: nn.Module) -> Kept:
    """Parameters, buffers and plain attributes of all modules."""
    tensors = {
        (path, name): value.detach().clone()
        for path, layer in net.named_modules()
        for name, value in (*layer._parameters.items(), *layer._buffers.items())
        if value is not None
    }
    return read_attributes(net) | tensors


def find_changes(before: Kept, after: Kept) -> Kept:
    """What is another value now."""
    return {k: v for k, v in after.items() if k not in before or not is_equal(v, before[k])}


def follows(net: nn.Module, key: Key, values: Sequence[Any], call: Call) -> bool:
    """True if a result or a gradient, in training or in evaluation, is another one with one of these values."""
    for training in (True, False):
        makers = [prepare(net, training), *(prepare(net, training, key, v) for v in values)]
        first, *others = (try_once(m, call) for m in makers)
        if any(first is not None and (o is None or not first.equals(o)) for o in others):
            return True
    return False


def prepare(net: nn.Module, training: bool, key: Key | None = None, value: Any = None) -> nn.Module:
    """A copy of a module in one mode, with another value in one place."""
    net = copy.deepcopy(net)
    set_training(net, others=training)
    if key is not None:
        layer = net.get_submodule(key[0])
        value = value.clone() if isinstance(value, torch.Tensor) else value
        if key[1] in layer._buffers:
            layer._buffers[key[1]] = value
        else:
            setattr(layer, key[1], value)
    return net


def list_counts(value: Any, counts: Sequence[int]) -> Iterator[Any]:
    """Values of a count that are far ahead, as far as its type goes, in search of one from which something follows."""
    whole = isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
    most = torch.iinfo(value.dtype).max if whole and value.dtype != torch.bool else inf
    for count in [count for count in counts if count <= most]:
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype != torch.bool:
            yield torch.full_like(value, count)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield type(value)(count)


def refuse_parameter(key: Key) -> UnsupportedPattern:
    """The error of a module that writes into a parameter while it trains."""
    advice = (
        f"write a constraint into what is computed, e.g. self.{key[1]}.clamp(-1, 1) or torch.renorm(self.{key[1]}, 2, "
        f"0, 1.0) in the place of self.{key[1]}, and set what the first batch sets before it is compiled, by running "
        "the module in training mode on data of yours"
    )
    return UnsupportedPattern(f"parameter {key[1]} is written to in training", key[0] or "the module", advice)


def refuse_kept(net: nn.Module, key: Key) -> UnsupportedPattern:
    """The error of a module that changes a buffer or a number while it trains."""
    path, name = key
    owner = type(net.get_submodule(path)).__name__
    what = f"buffer {name}" if name in net.get_submodule(path)._buffers else f"self.{name} in Python"
    advice = (
        "a device would train with its present value for ever; make it a parameter or an input, keep it fixed in "
        "training, or use a norm of torch, whose running statistics --norm batch or running carries along"
    )
    if owner == "_SpectralNorm" or name in ("weight_u", "weight_v"):
        advice = "a bundle cannot carry the vectors of spectral_norm along; remove it, or use weight_norm"
    told = f"{what} changes in training, and results or gradients with it"
    return UnsupportedPattern(told, path or "the module", advice)
