"""Functions that choose among the elements of an axis, or run along it, spelled out.

Which of several equal elements torch's topk, median and kthvalue choose is left open; here it is the first one in the
order of a stable sort. The gate compares them with torch's own stable sort (gate/references/as_on_devices.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Pair = tuple[torch.Tensor, torch.Tensor]
Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def between(x: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None) -> torch.Tensor:
    """`clamp` by tensors, with torch's gradient where elements are equal: x has it at a bound.

    The exporter would write the larger and the smaller of two, which share it. Where both bounds are one number above
    x, nothing has a gradient.
    """
    if low is None or high is None:
        return at_least(x, low) if low is not None else at_most(x, high)
    below = torch.where(low < high, low, torch.ops.auscult.stop_gradient(low))
    return torch.where((x > high) | (high < low), high, torch.where(x < low, below, x))


def at_least(x: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """`clamp_min` by a tensor, as in `between`."""
    return torch.where(x < low, low, x)


def at_most(x: torch.Tensor, high: Any) -> torch.Tensor:
    """`clamp_max` by a tensor, as in `between`."""
    return torch.where(x > high, high, x)


def top_k(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The first k elements of a sorted axis, and their places."""
    values, index = torch.sort(x, dim=dim, descending=largest)
    return values.narrow(dim, 0, k), index.narrow(dim, 0, k)


def stable_sort(x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Pair:
    """A sorted axis, and the places of its elements: every sort of a bundle is a stable one."""
    values, index = torch.sort(x, dim=dim, descending=descending)
    return values, index


def stable_places(x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> torch.Tensor:
    """The places of a sorted axis, as in `stable_sort`."""
    return torch.sort(x, dim=dim, descending=descending)[1]


def kth_value(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th smallest element of an axis, counted from one, and its place."""
    values, index = (v.narrow(dim, k - 1, 1) for v in torch.sort(x, dim=dim))
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


def median(x: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The lower of the two middle elements of an axis, and its place."""
    return kth_value(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def quantile(
    x: torch.Tensor, q: float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    """The q-th quantile of an axis; NaN where an element is.

    The share of the higher neighbour is a number of float64 here. In torch's float32 graph it is the rest of q times
    the size, which has lost as many digits as the size has.
    """
    if dim is None or not isinstance(x.shape[dim], int):
        return NotImplemented
    size = x.shape[dim]
    low, share = math.floor(q * (size - 1)), q * (size - 1) % 1
    shares = {"linear": share, "lower": 0.0, "higher": float(share > 0), "midpoint": 0.5 * (share > 0)}
    share = shares.get(interpolation, float(round(q * (size - 1)) > low))  # nearest: of two the even one, as round does
    values = torch.sort(x, dim=dim)[0]
    lower, higher = values.narrow(dim, low, 1), values.narrow(dim, min(low + 1, size - 1), 1)
    made = lower * (1 - share) + higher * share if 0 < share < 1 else higher if share else lower
    made = torch.where(torch.isnan(x).any(dim, keepdim=True), math.nan, made)
    return made if keepdim else made.squeeze(dim)


def run_along(x: torch.Tensor, dim: int, combine: Combine) -> Any:
    """y_i = combine(y_(i-1), x_i) along an axis for an associative function, in log2(n) steps over all of it."""
    size = x.shape[dim]
    if not isinstance(size, int):  # the batch
        return NotImplemented
    reach = 1
    while reach < size:
        earlier, later = x.narrow(dim, 0, size - reach), x.narrow(dim, reach, size - reach)
        x = torch.cat([x.narrow(dim, 0, reach), combine(earlier, later)], dim)
        reach *= 2
    return x


def cumulative_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """The product of all elements up to each. No division: an element may be 0."""
    return run_along(x, dim, torch.mul)


def add_exponents(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """log(e^a + e^b), whose gradient is whole where the two are equal."""
    above = torch.where(a >= b, a, b)
    return above + torch.log(torch.exp(a - above) + torch.exp(b - above))


def cumulative_log_sum_exp(x: torch.Tensor, dim: int) -> Any:
    """The logarithm of the sum of the exponentials of all elements up to each."""
    return run_along(x, dim, add_exponents)


def cumulative_extremum(x: torch.Tensor, dim: int, keeps: Combine) -> Any:
    """The extreme element up to each, and its place; of equal ones the last, as in torch."""
    size = x.shape[dim]
    if not isinstance(size, int):
        return NotImplemented
    ends = [1] * x.dim()
    ends[dim] = size
    index, reach = torch.arange(size).reshape(ends).expand_as(x), 1
    while reach < size:
        pieces = [(v.narrow(dim, 0, size - reach), v.narrow(dim, reach, size - reach)) for v in (x, index)]
        wins = keeps(pieces[0][1], pieces[0][0])
        x, index = (
            torch.cat([v.narrow(dim, 0, reach), torch.where(wins, later, earlier)], dim)
            for v, (earlier, later) in zip((x, index), pieces, strict=True)
        )
        reach *= 2
    return x, index


def cumulative_maximum(x: torch.Tensor, dim: int) -> Any:
    """`cumulative_extremum` for the largest."""
    return cumulative_extremum(x, dim, torch.ge)


def cumulative_minimum(x: torch.Tensor, dim: int) -> Any:
    """`cumulative_extremum` for the smallest."""
    return cumulative_extremum(x, dim, torch.le)


CHOICES: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.clamp.Tensor: between,
    aten.clip.Tensor: between,
    aten.clamp_min.Tensor: at_least,
    aten.clamp_max.Tensor: at_most,
    aten.sort.stable: stable_sort,
    aten.argsort.stable: stable_places,
    aten.topk.default: top_k,
    aten.kthvalue.default: kth_value,
    aten.median.dim: median,
    aten.quantile.scalar: quantile,
    aten.cumprod.default: cumulative_product,
    aten.logcumsumexp.default: cumulative_log_sum_exp,
    aten.cummax.default: cumulative_maximum,
    aten.cummin.default: cumulative_minimum,
}
