"""What a module does beside computing its result, which no bundle can do after it.

A buffer that changes in evaluation stays in a bundle as it was, so such a module is refused. A function with a backward
pass of its own is no reason to refuse: that pass is traced as well (tracing/own_backward.py). It is named where the
gate finds another gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.frontend.modules.statistics import find_readers
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
def explain_parity(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], norm: str = "frozen"
) -> Iterator[None]:
    """Add to a refusal of the gate what of a module may be its reason.

    Args:
        norm: as of Spec.
    """
    try:
        yield
    except ParityError as error:
        names = find_own_backward(net, examples, arguments)
        readers = find_readers(net, examples, arguments) if norm != "frozen" else []
        advice = error.advice
        if names:
            advice = (
                f"{', '.join(names)} has a backward pass of its own, which is not what was traced of it: write it as a "
                "function of one result that notes what it needs with save_for_backward, or say the gradient with "
                "detach(): y = f(x).detach() + g(x) - g(x).detach() is f(x), with the gradient of g"
            )
        elif readers:
            path, read = readers[0]
            advice = (
                f"{path} reads {read} in forward, which --norm {norm} moves in each training step: torch reads it "
                "after the step, a bundle as it was before; leave it out, compute the statistic of each sample, or "
                "compile with --norm frozen, where it stays as it is"
            )
        raise ParityError(error.kind, error.case, error.slot, error.error, error.limit, advice) from error


def find_own_backward(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> tuple[str, ...]:
    """Names of the `torch.autograd.Function`s that a module applies, which are not torch's own."""
    found: dict[str, None] = {}

    def note(cls: Any, args: Sequence[Any], apply: Callable[[], Any]) -> Any:
        found[cls.__name__] = None
        return apply()

    with watch_own_functions(note), torch.no_grad():
        run_module(net, examples, arguments)
    return tuple(found)


@contextlib.contextmanager
def watch_own_functions(answer: Callable[[Any, Sequence[Any], Callable[[], Any]], Any]) -> Iterator[None]:
    """Let `answer` give the results of `torch.autograd.Function`s that are not torch's own.

    A module may have kept a function's `apply`, so what that calls is replaced.

    Args:
        answer: is given the function, what it is applied to, and what applies it as torch does.
    """
    base: Any = torch.autograd.function._SingleLevelFunction

    def watch(cls: Any, *args: Any, **options: Any) -> Any:
        def apply() -> Any:
            return super(base, cls).apply(*args, **options)

        return apply() if cls.__module__.startswith("torch.") or options else answer(cls, args, apply)

    with mock.patch.object(base, "apply", classmethod(watch)):
        yield
