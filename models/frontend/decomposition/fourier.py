"""Fourier transforms of the last axis as products with matrices of cosines and sines, which ONNX runs everywhere.

Parts are real tensors: (real, imaginary). Matrices are made in float64, from angles reduced as whole numbers, rounded
once; `EXACT` remembers what they were rounded from, so that the gate can compare in float64.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import torch

from edge_sdk.models.ir.errors import UnsupportedPattern

ISTFT = "give the frames of stft for real numbers, of all samples, and its window"
Parts = tuple[torch.Tensor, torch.Tensor]
LONGEST = 2048
"""Points of a transform: its matrices have up to the square of it as entries, and lie in the bundle."""
EXACT: dict[tuple[tuple[int, ...], bytes], np.ndarray] = {}
"""Shape and bytes of a matrix in float32 -> the same in float64."""


def scale_of(norm: str | None, points: int, inverse: bool) -> float:
    """The factor of a transform with torch's `norm`."""
    if norm == "ortho":
        return 1 / sqrt(points)
    return 1 / points if inverse == (norm in (None, "backward")) else 1.0


def turn(rows: int, columns: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of 2 pi j k / points, each (rows, columns)."""
    if points > LONGEST:
        raise UnsupportedPattern(f"a Fourier transform of {points} points", "", f"use up to {LONGEST}, or windows")
    steps = np.outer(np.arange(rows), np.arange(columns)) % points
    angles = steps * (2 * pi / points)
    sin = np.sin(angles)
    sin[2 * steps % points == 0] = 0  # exactly, as in torch: a rest of 1e-16 would choose the sign of angle()
    return np.cos(angles), sin


def as_tensor(matrix: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A constant with the dtype of another tensor."""
    if like.dtype != torch.float32:
        return torch.tensor(matrix, dtype=like.dtype)
    rounded = matrix.astype(np.float32)
    EXACT[rounded.shape, rounded.tobytes()] = matrix
    return torch.tensor(rounded)


def resize(x: torch.Tensor, points: int) -> torch.Tensor:
    """The last axis cut, or filled up with zeros."""
    have = x.shape[-1]
    return x[..., :points] if have >= points else torch.nn.functional.pad(x, (0, points - have))


def transform_real(x: torch.Tensor, points: int, scale: float, half: bool) -> Parts:
    """The transform of real numbers; `half`: its first points // 2 + 1 entries only."""
    cos, sin = turn(points, points // 2 + 1 if half else points, points)
    x = resize(x, points)
    moved = x - x[..., :1]
    return add_up(x, moved @ as_tensor(cos * scale, x), scale), moved @ as_tensor(sin * -scale, x)


def add_up(x: torch.Tensor, made: torch.Tensor, scale: float) -> torch.Tensor:
    """A transform of x less its first value, with the sum of x in the first place, where alone it makes a difference.

    Of a window of one value all other places are exactly 0 so, as torch's are: a sensor that is off has no phase, and
    what rounding would leave there in its place has an infinite logarithm's slope.
    """
    return torch.cat([x.sum(-1, keepdim=True) * scale, made[..., 1:]], -1)


def transform(x: Parts, points: int, scale: float, inverse: bool) -> Parts:
    """The transform of complex numbers, with e^(-i angle), or e^(i angle) for the inverse."""
    re, im = (resize(v, points) for v in x)
    cos, sin = turn(points, points, points)
    c, s = as_tensor(cos * scale, re), as_tensor(sin * (-scale if inverse else scale), re)
    real, imaginary = re - re[..., :1], im - im[..., :1]
    return add_up(re, real @ c + imaginary @ s, scale), add_up(im, imaginary @ c - real @ s, scale)


def invert_half(x: Parts, points: int, scale: float) -> torch.Tensor:
    """The real numbers whose transform begins with these points // 2 + 1 entries; the rest are their conjugates."""
    count = points // 2 + 1
    re, im = (resize(v, count) for v in x)
    cos, sin = turn(count, points, points)
    alone = np.arange(count) * 2 % points == 0  # its own conjugate, counted once
    weights = scale * np.where(alone, 1, 2)[:, None]
    sin[alone] = 0  # exactly, for torch takes no notice of these imaginary parts
    return re @ as_tensor(cos * weights, re) - im @ as_tensor(sin * weights, re)


def transform_frames(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Parts:
    """torch.stft with these arguments: the transforms (..., frequencies, frames) of windows of the last axis.

    Raises:
        UnsupportedPattern: it is asked for pairs of floats in place of complex numbers.
    """
    if not return_complex:
        raise UnsupportedPattern("stft without return_complex=True", "", "set it, and take view_as_real of the result")
    rows = x.reshape(-1, 1, x.shape[-1])
    if center:
        rows = torch.nn.functional.pad(rows, (n_fft // 2, n_fft // 2), mode=pad_mode)
    frames = rows.squeeze(1).unfold(-1, n_fft, hop_length or n_fft // 4)
    if window is not None:
        left = (n_fft - window.shape[0]) // 2
        frames = frames * torch.nn.functional.pad(window, (left, n_fft - window.shape[0] - left))
    elif win_length not in (None, n_fft):
        raise UnsupportedPattern("stft with win_length and without a window", "", "give a window of that length")
    scale = 1 / sqrt(n_fft) if normalized else 1.0
    made = transform_real(frames, n_fft, scale, half=onesided is not False)
    first, second = (v.transpose(-1, -2).reshape(*x.shape[:-1], -1, frames.shape[1]) for v in made)
    return first, second


def join_frames(
    x: Parts,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    **given: Any,
) -> torch.Tensor:
    """torch.istft with these arguments: the signal (..., samples) whose frames have these transforms.

    Args:
        given: `center`, `normalized`, `length`, and of the others what torch takes without them.

    Raises:
        UnsupportedPattern: another signal than a real one, another window, or more samples than frames reach.
    """
    weights = torch.ones(n_fft) if window is None else window
    if given.get("return_complex") or given.get("onesided") is False or (win_length or n_fft) != weights.shape[0]:
        raise UnsupportedPattern("istft of frames of complex numbers, or with a window of another size", "", ISTFT)
    left = (n_fft - weights.shape[0]) // 2
    weights = torch.nn.functional.pad(weights, (left, n_fft - weights.shape[0] - left))
    scale = 1 / sqrt(n_fft) if given.get("normalized") else 1 / n_fft
    frames = invert_half((x[0].mT, x[1].mT), n_fft, scale)
    count, hop = frames.shape[-2], hop_length or n_fft // 4
    total, start = n_fft + hop * (count - 1), n_fft // 2 if given.get("center", True) else 0
    end = start + given["length"] if given.get("length") else total - start
    if end > total:
        raise UnsupportedPattern(f"istft of {end - start} samples from {total - start}", "", ISTFT)
    columns = (frames * weights).reshape(-1, count, n_fft).mT
    shares = (weights * weights).reshape(1, n_fft, 1).expand(1, n_fft, count)
    joined, weight = (
        torch.nn.functional.fold(v, (1, total), (1, n_fft), stride=(1, hop)).reshape(-1, total)[:, start:end]
        for v in (columns, shares)
    )
    return (joined / weight).reshape(*x[0].shape[:-2], end - start)
