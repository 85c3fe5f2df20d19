"""Float64 evaluation of HardSigmoid and HardSwish, whose slope of 1/6 onnx's own evaluator has in float32."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.evaluation.restore import restore_number


class HardSigmoid(OpRun):
    """max(0, min(1, alpha x + beta)); an attribute is float32 in every file, and torch's slope is 1/6."""

    op_domain = ""

    def _run(self, x: np.ndarray, alpha: float = 0.2, beta: float = 0.5) -> tuple[np.ndarray, ...]:
        return (np.clip(restore_number(alpha) * x + restore_number(beta), 0, 1),)


class HardSwish(OpRun):
    """x max(0, min(1, x/6 + 1/2)); onnx's own evaluator has the 1/6 in float32."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x * np.clip(x / 6 + 0.5, 0, 1),)
