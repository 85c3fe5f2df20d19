"""Torch with what it leaves open as it is on devices: which of equal elements is chosen, and the epsilon of RMSNorm.

Of equal elements ONNX's operators choose the first one. Torch's own sort is stable up to 16 elements only, and its
topk, median and kthvalue are not stable at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edge_sdk.models.frontend.decomposition.decompose_choices import kth_value, median, top_k

aten = torch.ops.aten
RMS_NORM = torch.rms_norm


def sort_stably(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Values and places along an axis."""
    return torch.sort(x, stable=True, dim=dim, descending=descending)


def in_order(choose: Callable[..., Any]) -> Callable[..., Any]:
    """A function made of sorts, with stable ones."""

    def stable(*args: Any, **options: Any) -> Any:
        with StableOrder():
            return choose(*args, **options)

    return stable


STABLE: Mapping[Any, Any] = {
    aten.sort.default: sort_stably,
    aten.topk.default: in_order(top_k),
    aten.kthvalue.default: in_order(kth_value),
    aten.median.dim: in_order(median),
}


class StableOrder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes torch's choices stable, below autograd, which takes the places that were chosen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in STABLE:
            return func(*args, **(kwargs or {}))
        return STABLE[func](*args, **(kwargs or {}))


def norm_as_float32(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """Torch's rms_norm with the epsilon of devices' numbers: without one, torch takes that of the type."""
    return RMS_NORM(x, shape, weight, torch.finfo(torch.float32).eps if eps is None else eps)
