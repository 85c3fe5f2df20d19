"""Products of matrices for the float64 evaluation of a graph, and the way of arrays to torch."""

from __future__ import annotations

import numpy as np
import torch
from onnx.reference.op_run import OpRun


def to_tensor(a: np.ndarray) -> torch.Tensor:
    """An array for torch: the same memory where that is in order, for copies of large ones took most of the time."""
    ready = a.flags.c_contiguous and a.flags.writeable
    return torch.from_numpy(a if ready else np.array(a, order="C"))


class MatMul(OpRun):
    """Products by torch's float64 kernels: numpy's own take minutes where a stack of matrices lies transposed."""

    op_domain = ""

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        if a.dtype.kind != "f" or a.dtype != b.dtype:
            return (np.matmul(a, b),)
        return (np.asarray(torch.matmul(to_tensor(a), to_tensor(b)).numpy(), a.dtype),)
