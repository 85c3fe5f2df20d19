"""Products of matrices for the float64 evaluation of a graph."""

from __future__ import annotations

import numpy as np
import torch
from onnx.reference.op_run import OpRun


class MatMul(OpRun):
    """Products by torch's float64 kernels: numpy's own take minutes where a stack of matrices lies transposed."""

    op_domain = ""

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        if a.dtype.kind != "f" or a.dtype != b.dtype:
            return (np.matmul(a, b),)
        left, right = (torch.from_numpy(np.array(v, order="C")) for v in (a, b))
        return (np.asarray(torch.matmul(left, right).numpy(), a.dtype),)
