"""GatherElements in float64: onnx's evaluator refuses indices of fewer rows than the data have, which are allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.evaluation.reference_products import to_tensor


class GatherElements(OpRun):
    """Entries of x at places along one axis; a negative place counts from the end."""

    op_domain = ""

    def _run(self, x: np.ndarray, index: np.ndarray, axis: Any = 0) -> tuple[np.ndarray, ...]:
        places = torch.from_numpy(np.where(index < 0, index + x.shape[axis], index))
        return (torch.gather(to_tensor(x), axis, places).numpy(),)
