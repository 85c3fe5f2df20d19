"""Angles, distances and images that are sampled at computed places, spelled out."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1


def angle(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The angle of the point (x, y), by the arc tangent of the smaller over the larger coordinate.

    Both quotients are always taken, so their divisors are kept away from 0. At the origin the gradient is 0.
    """
    flat, origin = x.abs() >= y.abs(), (x == 0) & (y == 0)
    quotient = torch.where(flat, y / torch.where(flat & ~origin, x, 1.0), -x / torch.where(flat, 1.0, y))
    slope = torch.where(origin, 0.0, quotient)
    up = torch.where(y >= 0, 1.0, -1.0)
    return torch.atan(slope) + torch.where(flat, torch.where(x < 0, math.pi * up, 0.0), 0.5 * math.pi * up)


def length(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """sqrt(a^2 + b^2)."""
    return torch.sqrt(a * a + b * b)


def sine_over_angle(x: torch.Tensor) -> torch.Tensor:
    """sin(pi x) / (pi x), and 1 with the gradient 0 at 0."""
    angle = math.pi * torch.where(x == 0, 1.0, x)
    return torch.where(x == 0, 1.0, torch.sin(angle) / angle)


def copy_sign(x: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """|x| with the sign of another number, where 0 counts as positive."""
    return torch.where(signs < 0, -1.0, 1.0) * x.abs()


def distances(a: torch.Tensor, b: torch.Tensor, p: float = 2.0, mode: int | None = None) -> Any:
    """The distance of each row of a from each row of b; its gradient is 0 where it is 0."""
    between = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p not in (1.0, 2.0):
        return NotImplemented
    return between.abs().sum(-1) if p == 1 else torch.linalg.vector_norm(between, dim=-1)


def lay_grid(theta: torch.Tensor, size: list[int], align_corners: bool) -> Any:
    """The places (B, H, W, 2) that affine maps (B, 2, 3) give to the pixels of an image, whose own are in float32."""
    if len(size) != 4:
        return NotImplemented
    lines = [torch.linspace(-1, 1, n, dtype=torch.float32) for n in size[2:]]
    rows, columns = (v * (1 if align_corners else (n - 1) / n) for v, n in zip(lines, size[2:], strict=True))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    places = torch.stack([x, y, torch.ones_like(x)], -1).reshape(1, -1, 3).to(theta.dtype)
    return (places @ theta.transpose(1, 2)).reshape(-1, *size[2:], 2)


def sample_image(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """An image (B, C, H, W) at the places (B, H', W', 2), each coordinate from -1 to 1.

    Between pixels it is linear, and outside it is 0 or, with `padding` BORDER, what the border has: there a place has
    no gradient, on the border neither.
    """
    if x.dim() != 4 or mode not in (BILINEAR, NEAREST) or padding not in (ZEROS, BORDER):
        return NotImplemented
    width, height = x.shape[3], x.shape[2]
    at = [find_pixel(grid[..., k], size, padding, align_corners) for k, size in enumerate((width, height))]
    if mode == NEAREST:
        return read_pixels(x, torch.round(at[0]), torch.round(at[1]))
    low = [torch.floor(v) for v in at]
    total: Any = 0.0
    for right, below in product((0, 1), (0, 1)):
        shares = (1 - (v - f) if not far else v - f for v, f, far in zip(at, low, (right, below), strict=True))
        weight = next(shares) * next(shares)
        total = total + read_pixels(x, low[0] + right, low[1] + below) * weight.unsqueeze(1)
    return total


def find_pixel(coordinate: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """A coordinate from -1 to 1 in pixels."""
    at = (coordinate + 1) / 2 * (size - 1) if align_corners else ((coordinate + 1) * size - 1) / 2
    return F.hardtanh(at, 0.0, float(size - 1)) if padding == BORDER else at


def read_pixels(x: torch.Tensor, column: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """The pixels (B, C, H', W') at whole places (B, H', W'); 0 for those outside."""
    height, width = x.shape[2:]
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    index = place.to(torch.int64).flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    read = torch.gather(x.flatten(2), 2, index).reshape(-1, x.shape[1], *column.shape[1:])
    return read * inside.to(x.dtype).unsqueeze(1)


def interpolate_signal(x: torch.Tensor, size: list[int] | None, align_corners: bool, scales: list[float] | None) -> Any:
    """A signal (B, C, n) by linear interpolation with another number of samples: an image of one row.

    For an image the exporter writes a Resize; for a signal, indices and weights that are rounded to float32, which
    where neighbours cancel is more than the gate allows.
    """
    across, factors = ([1, *size] if size else None), ([1.0, *scales] if scales else None)
    return aten.upsample_bilinear2d.vec(x.unsqueeze(2), across, align_corners, factors).squeeze(2)


def repeat_signal(x: torch.Tensor, size: list[int] | None, scales: list[float] | None) -> Any:
    """A signal (B, C, n) by its nearest samples with another number of them: an image of one row, as above."""
    across, factors = ([1, *size] if size else None), ([1.0, *scales] if scales else None)
    return aten.upsample_nearest2d.vec(x.unsqueeze(2), across, factors).squeeze(2)


GEOMETRY: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.atan2.default: angle,
    aten.hypot.default: length,
    aten.upsample_linear1d.vec: interpolate_signal,
    aten.upsample_nearest1d.vec: repeat_signal,
    aten.sinc.default: sine_over_angle,
    aten.special_sinc.default: sine_over_angle,
    aten.cdist.default: distances,
    aten._cdist_forward.default: distances,
    aten.affine_grid_generator.default: lay_grid,
    aten.grid_sampler.default: sample_image,
    aten.grid_sampler_2d.default: sample_image,
    aten.copysign.Tensor: copy_sign,
}
