"""Normalisation in torch with all values in one memory layout.

Torch 2.13's batch normalisation on a processor gives a wrong gradient, in float64 as in float32, where its batch has
one sample, and its input and the gradient of its output lie differently in memory (channels first and channels last:
tokens behind a convolution). Instance normalisation is one of a single sample at any batch size. Where all lies in one
way both are right, so the gate asks for the gradient in that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

NORMS = (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm)


class EvenLayouts(TorchFunctionMode):
    """While it is active, norms see their input and the gradient of their output with the channels first."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func not in NORMS:
            return func(*args, **(kwargs or {}))
        made: torch.Tensor = func(put_in_order(args[0]), *args[1:], **(kwargs or {}))
        if made.requires_grad:
            made.register_hook(put_in_order)  # type: ignore[no-untyped-call]
        return made


def put_in_order(t: torch.Tensor) -> torch.Tensor:
    """A copy with the last axis innermost; `contiguous` would keep the strides of axes of length 1, which are read."""
    return t.clone(memory_format=torch.contiguous_format)
