"""Pooling and resizing for the float64 evaluation, after the ONNX specification; onnx's own are slow or differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.evaluation.padding import settle_window
from edge_sdk.models.ir.evaluation.resizing import make_matrix

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class AveragePool(OpRun):
    """Means over windows; what lies beyond input and padding (ceil_mode) never counts."""

    op_domain = ""

    def _run(self, x: np.ndarray, **at: Any) -> tuple[np.ndarray, ...]:
        nd, kernel = x.ndim - 2, list(at["kernel_shape"])
        pads, strides, dilations = settle_window(at, x.shape[2:], kernel)
        whole = not at.get("ceil_mode")
        extra = [0] * nd if whole else count_beyond(x.shape[2:], kernel, pads, strides, dilations)
        around = [v for i in reversed(range(nd)) for v in (pads[i], pads[nd + i])]
        beyond = [v for e in reversed(extra) for v in (0, e)]
        ones = torch.ones(1, 1, *x.shape[2:], dtype=torch.float64)
        counted = F.pad(F.pad(ones, around, value=float(bool(at.get("count_include_pad")))), beyond)
        values = F.pad(F.pad(torch.from_numpy(np.array(x, order="C")), around), beyond)
        sums = [add_up_windows(v, kernel, strides, dilations) for v in (values, counted)]
        return ((sums[0] / sums[1]).numpy().astype(x.dtype),)


def add_up_windows(x: torch.Tensor, kernel: list[int], strides: list[int], dilations: list[int]) -> torch.Tensor:
    """Sums over windows, per channel."""
    flat = x.double().reshape(-1, 1, *x.shape[2:])
    made = CONVOLUTIONS[len(kernel)](flat, torch.ones(1, 1, *kernel).double(), stride=strides, dilation=dilations)
    return made.reshape(*x.shape[:2], *made.shape[2:])


def count_beyond(
    sizes: Sequence[int], kernel: list[int], pads: list[int], strides: list[int], dilations: list[int]
) -> list[int]:
    """Positions after the padding that the last window needs; it must begin in the input or the padding before it."""
    found = []
    for i, size in enumerate(sizes):
        whole, reach = size + pads[i] + pads[len(sizes) + i], dilations[i] * (kernel[i] - 1)
        stops = -(-(whole - reach - 1) // strides[i]) + 1
        stops -= (stops - 1) * strides[i] >= size + pads[i]
        found.append(max(0, (stops - 1) * strides[i] + reach + 1 - whole))
    return found


class Resize(OpRun):
    """Interpolation, axis by axis."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, roi: Any = None, scales: Any = None, sizes: Any = None, **attributes: Any
    ) -> tuple[np.ndarray, ...]:
        given = {k: v for k, v in attributes.items() if v is not None}
        axes = given.pop("axes", None) or range(x.ndim)
        for i, axis in enumerate(axes):
            factor = float(scales[i]) if scales is not None and len(scales) else 0.0
            made = int(np.floor(x.shape[axis] * factor)) if factor else int(sizes[i])
            if made != x.shape[axis]:
                matrix = make_matrix(factor, (x.shape[axis], made), given).astype(x.dtype)
                x = np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T, -1, axis)
        return (np.ascontiguousarray(x),)
