"""Functions whose implementation in torch asks for sizes as numbers, spelled out without: a batch has any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def take_along_dim(input: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """The elements of an axis at indices of each place beside it; other axes of size 1 are repeated."""
    if dim is None or input.dim() != indices.dim():
        return torch.take_along_dim(input, indices, dim)
    dim %= input.dim()
    read, at = list(input.shape), list(indices.shape)
    for i in range(input.dim()):
        if i != dim and type(read[i]) is int and type(at[i]) is int:
            read[i] = at[i] = max(read[i], at[i]) if 1 in (read[i], at[i]) else read[i]
        elif i != dim:
            read[i] = at[i] = at[i] if type(read[i]) is int else read[i]
    return torch.gather(input.expand(read), dim, indices.expand(at))


def gradient(
    input: torch.Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[torch.Tensor, ...]:
    """Differences of second order along axes, of one step between all elements; of first or second order at the ends.

    Other uses are left to torch.
    """
    dims = [dim] if isinstance(dim, int) else dim
    whole: Any = torch.gradient
    if dims is None or not isinstance(spacing, (int, float)) or any(type(input.shape[d]) is not int for d in dims):
        made: tuple[torch.Tensor, ...] = whole(input, spacing=spacing, dim=dim, edge_order=edge_order)
        return made
    return tuple(differentiate(input.movedim(d, -1), spacing, edge_order).movedim(-1, d) for d in dims)


def differentiate(x: torch.Tensor, step: float, edge_order: int) -> torch.Tensor:
    """The differences of the last axis."""
    first, last = x[..., 1:2] - x[..., :1], x[..., -1:] - x[..., -2:-1]
    if edge_order == 2:
        first = (4 * x[..., 1:2] - 3 * x[..., :1] - x[..., 2:3]) / 2
        last = (3 * x[..., -1:] - 4 * x[..., -2:-1] + x[..., -3:-2]) / 2
    return torch.cat([first, (x[..., 2:] - x[..., :-2]) / 2, last], -1) / step


def multiply_all(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The product of several matrices, from left to right."""
    made, *others = tensors
    for other in others:
        made = made @ other
    return made


SIZED: dict[Any, Callable[..., Any]] = {
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.gradient: gradient,
    torch.linalg.multi_dot: multiply_all,
}
