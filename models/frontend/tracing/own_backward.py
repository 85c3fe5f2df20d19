"""Functions with a backward pass of their own (`torch.autograd.Function`), traced together with that pass.

A trace sees only what such a function computes. Here its backward pass is run as well, of a cotangent that is a value
of the graph like others, and its results are noted as the gradients of the function's inputs (marks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from edge_sdk.models.frontend.modules.side_effects import watch_own_functions
from edge_sdk.models.frontend.tracing.marks import given_gradient, own_gradient


class Context:
    """What a function may note in its forward pass for its backward pass, as torch's own context."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Torch's forward mode is not used here."""

    def set_materialize_grads(self, value: bool) -> None:
        """All results have a gradient here."""

    def mark_dirty(self, *tensors: Any) -> None:
        raise NotImplementedError("a function that writes into what it is given")

    def mark_non_differentiable(self, *tensors: Any) -> None:
        raise NotImplementedError("results without a gradient")


@contextmanager
def trace_own_backwards() -> Iterator[None]:
    """Trace backward passes of functions that are not torch's own.

    One that cannot be traced (several results, values changed in place, Python numbers) is left out, and its function
    has the derivative of what it computes: the gate compares that with torch's gradient.
    """

    def trace(cls: Any, args: Sequence[Any], apply: Callable[[], Any]) -> Any:
        try:
            return trace_call(cls, args)
        except Exception:
            return apply()

    with watch_own_functions(trace):
        yield


def trace_call(cls: Any, args: Sequence[Any]) -> torch.Tensor:
    """The result of a function, marked with what its backward pass makes of a cotangent. Raises whatever it raises."""
    is_input = tuple(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args)
    context, inputs = Context(is_input), [a for a, there in zip(args, is_input, strict=True) if there]
    with torch.no_grad():
        y = run_forward(cls, context, args)
        if not isinstance(y, torch.Tensor) or not y.is_floating_point():
            raise NotImplementedError("results other than one tensor of floats")
        g = given_gradient(y, inputs)
        found = cls.backward(context, g)
        found = found if isinstance(found, tuple) else (found,)
        pairs = [(a, f) for a, f, there in zip(args, found, is_input, strict=False) if there and f is not None]
        gradients = [f.to(a.dtype).sum_to_size(a.shape) if f.shape != a.shape else f.to(a.dtype) for a, f in pairs]
    marked: torch.Tensor = own_gradient(y, g, [a for a, _ in pairs], gradients)
    return marked


def run_forward(cls: Any, context: Context, args: Sequence[Any]) -> Any:
    """What a function returns, in either of the two forms that torch knows."""
    if cls.setup_context is torch.autograd.Function.setup_context:
        return cls.forward(context, *args)
    made = cls.forward(*args)
    cls.setup_context(context, args, made)
    return made
