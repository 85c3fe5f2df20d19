"""Which of a module's results counts, where it returns several: by key, by field, or by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from edge_sdk.models.ir.errors import CompileError

USUAL = ("logits", "out", "output")
"""Names that a result has where it is the one that is meant."""


def list_results(made: Any) -> dict[str, torch.Tensor]:
    """Name -> tensor of floats, of what a module returns."""
    if isinstance(made, Mapping):
        pairs = [(str(k), v) for k, v in made.items()]
    elif isinstance(made, (tuple, list)):
        pairs = list(zip(getattr(made, "_fields", map(str, range(len(made)))), made, strict=True))
    else:
        pairs = [("", made)]
    return {k: v for k, v in pairs if isinstance(v, torch.Tensor) and v.is_floating_point()}


def pick(made: Any, name: str) -> torch.Tensor:
    """The result with this name; "" is the only one, or the one with a usual name.

    Raises:
        CompileError: there is none, or several to choose from.
    """
    if isinstance(made, torch.Tensor):
        return made
    found = list_results(made)
    names = [n for n in ([name] if name else USUAL) if n in found]
    if not names and len(found) == 1 and not name:
        names = list(found)
    if not names:
        asked = f"no result {name!r}" if name else "several results"
        there = ", ".join(f"{k} {tuple(v.shape[1:])}" for k, v in found.items()) or type(made).__name__
        raise CompileError(f"the module returns {asked}: {there}; choose one with --result NAME")
    return found[names[0]]


def run_module(net: nn.Module, values: Sequence[torch.Tensor], arguments: Sequence[str] = ()) -> Any:
    """What a module returns; what it changes of its inputs in place, it changes of copies.

    Args:
        arguments: of the module, that the values are given as; "" or nothing: by their place.
    """
    values = [v.clone() for v in values]
    named = dict(zip(arguments, values, strict=True)) if any(arguments) else {}
    with plain_attention():
        return net(**named) if named else net(*values)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Keep torch from its fused encoder layers, which read weights without calling layers, so without adapters."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def masks_as_they_are() -> Iterator[None]:
    """Keep torch's encoder and decoder from comparing a mask with the causal one, through which nothing can be traced.

    They would only tell attention that it is causal, and give it the mask all the same.
    """

    def is_causal(mask: Any, said: bool | None = None, size: int | None = None) -> bool:
        return said is True

    with mock.patch.object(nn.modules.transformer, "_detect_is_causal_mask", is_causal):
        yield


def check_output(
    net: nn.Module, examples: Sequence[torch.Tensor], names: Sequence[str], arguments: Sequence[str] = ()
) -> None:
    """Run the module on two samples, and on one: what is left of a device's data may be a single one.

    Args:
        names: of the result that counts, as of `pick`, and of others that are trained with the same targets.

    Raises:
        CompileError: it does not run, or its results cannot be chosen, or differ in shape.
    """
    made = try_samples(net, [e[:2] for e in examples], arguments)
    first, *others = (pick(made, name) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if other is first or other.shape != first.shape:
            shapes = f"is {tuple(other.shape[1:])} for a sample, the result that counts {tuple(first.shape[1:])}"
            raise CompileError(f"heads: {name} {shapes}; a head is another result of that shape, with the same targets")
    try_samples(net, [e[:1] for e in examples], arguments)


def try_samples(net: nn.Module, samples: Sequence[torch.Tensor], arguments: Sequence[str]) -> Any:
    """What a module returns. Raises CompileError, with the layer, where torch does not run it."""
    running: list[str] = []
    hooks = [
        m.register_forward_pre_hook(lambda m, a, path=path: running.append(path)) for path, m in net.named_modules()
    ]
    try:
        with torch.no_grad():
            return run_module(net, samples, arguments)
    except Exception as error:
        first = str(error).strip().split("\n")[0][:300] or type(error).__name__
        shapes = ", ".join(str(tuple(e.shape[1:])) for e in samples)
        alone = len(samples[0]) == 1
        many = f"a batch of a single sample of shape {shapes}" if alone else f"samples of shape {shapes}"
        advice = (
            "use layers that do not need several (a norm over more than one value)"
            if alone
            else "--input is the shape of one sample, without the batch"
        )
        where = running[-1] if running and running[-1] else "the module"
        raise CompileError(f"{where}: torch itself does not run it on {many} ({first}); {advice}") from error
    finally:
        for hook in hooks:
            hook.remove()
