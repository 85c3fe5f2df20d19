"""The marks of a forward graph, as onnx's reference evaluator runs them: each is its first input."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.marks import MARK_DOMAIN


class StopGradient(OpRun):
    op_domain = MARK_DOMAIN

    def _run(self, x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.copy(),)


class Cotangent(StopGradient):
    op_domain = MARK_DOMAIN


class OwnGradient(StopGradient):
    op_domain = MARK_DOMAIN


class Heads(StopGradient):
    op_domain = MARK_DOMAIN


OPERATORS = [StopGradient, Cotangent, OwnGradient, Heads]
