"""The operators of domain "auscult", as onnx's reference evaluator runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx.reference.op_run import OpRun
from torch.nn.grad import conv1d_weight, conv2d_weight

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.models.ir.evaluation.reference_elementwise import Elementwise
from edge_sdk.models.ir.evaluation.reference_loops import OPERATORS as LOOPS
from edge_sdk.models.ir.evaluation.reference_products import to_tensor

GRADIENTS: dict[int, Any] = {1: conv1d_weight, 2: conv2d_weight}
"""Number of axes -> torch's function."""


class ConvWeightGradient(OpRun):
    """The gradient (O, C / group, *kernel) of a convolution's weights from x (B, C, ...) and gy (B, O, ...).

    It has one or two axes of positions, and attributes for each, such as `stride_0`.
    """

    op_domain = NATIVE_DOMAIN

    def _run(self, x: np.ndarray, gy: np.ndarray, group: Any = None, **given: Any) -> tuple[np.ndarray, ...]:
        axes = x.ndim - 2
        kernel, stride, dilation, before = (
            [given[f"{name}_{i}"] for i in range(axes)] for name in ("kernel", "stride", "dilation", "before")
        )
        sizes = zip(x.shape[2:], gy.shape[2:], kernel, stride, dilation, before, strict=True)
        behind = [(out - 1) * s + (k - 1) * d + 1 - size - b for size, out, k, s, d, b in sizes]
        room = [n for b, e in zip(reversed(before), reversed(behind), strict=True) for n in (b, e)]
        seen = torch.nn.functional.pad(to_tensor(x), room)
        shape = (gy.shape[1], x.shape[1] // group, *kernel)
        return (GRADIENTS[axes](seen, shape, to_tensor(gy), tuple(stride), 0, tuple(dilation), group).numpy(),)


NATIVE = [Elementwise, ConvWeightGradient, *LOOPS]
