"""What a module does beside computing its result, which no bundle can do after it.

A buffer that changes in evaluation stays in a bundle as it was, so such a module is refused. A function with a backward
pass of its own is no reason to refuse: the gate knows whether that is its derivative. It is named where it is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern


@contextlib.contextmanager
def refuse_setting(net: nn.Module) -> Iterator[None]:
    """Raise UnsupportedPattern if a module's parameters change while it runs. They are as before afterwards."""
    before = {name: p.detach().clone() for name, p in net.named_parameters() if not is_lazy(p)}
    yield
    changed = [n for n, p in net.named_parameters() if n in before and not equal(p, before[n])]
    with torch.no_grad():
        for name in changed:
            net.get_parameter(name).copy_(before[name])
    if changed:
        path, _, leaf = changed[0].rpartition(".")
        advice = (
            f"write a constraint into what is computed, e.g. self.{leaf}.clamp(-1, 1), and set what the first batch "
            "sets before it is compiled, by running the module on data of yours"
        )
        raise UnsupportedPattern(f"parameter {leaf} changes in evaluation", path or "the module", advice)


def refuse_changes(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> None:
    """Raise UnsupportedPattern for a module whose buffers change in evaluation. They are as before afterwards."""
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    with torch.no_grad():
        run_module(net, examples, arguments)
    changed = [n for n, b in net.named_buffers() if n in before and not equal(b, before[n])]
    for name in changed:
        path, _, leaf = name.rpartition(".")
        net.get_submodule(path)._buffers[leaf] = before[name]
    if changed:
        path, _, leaf = changed[0].rpartition(".")
        raise UnsupportedPattern(
            f"buffer {leaf} changes in evaluation", path or "the module",
            "a bundle's buffers stay as they are: change only those on which no result depends, and only in training",
        )  # fmt: skip


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


@contextlib.contextmanager
def explain_own_backward(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> Iterator[None]:
    """Add to a refusal of the gate which functions have a backward pass of their own, if there are some."""
    try:
        yield
    except ParityError as error:
        if not (names := find_own_backward(net, examples, arguments)):
            raise
        advice = (
            f"{', '.join(names)} has a backward pass of its own; a bundle has the derivative of what is computed, so "
            "leave out what has another one"
        )
        raise ParityError(error.kind, error.case, error.slot, error.error, error.limit, advice) from error


def find_own_backward(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> tuple[str, ...]:
    """Names of the `torch.autograd.Function`s that a module applies, which are not torch's own."""
    found: dict[str, None] = {}
    function: Any = torch.autograd.Function
    apply = function.__dict__["apply"]

    def note(cls: Any, *args: Any, **options: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            found[cls.__name__] = None
        return apply.__func__(cls, *args, **options)

    try:
        function.apply = classmethod(note)
        with torch.no_grad():
            run_module(net, examples, arguments)
    finally:
        function.apply = apply
    return tuple(found)
