"""Runs a compiled graph on this machine's onnxruntime, with the options that devices use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort

from edge_sdk.model.sessions.onnx_session import optimisations_left_out


class RunnableGraph:
    """One graph, called with mappings of input names to values: later ones win, float64 is rounded to float32.

    Args:
        library: path of auscult-native, for a graph with operators of it; "": none.
        products: with the library, its products take the place of onnxruntime's own.
    """

    def __init__(self, model: onnx.ModelProto, library: str = "", products: bool = True) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.enable_mem_pattern, options.log_severity_level = False, 3
        left_out = optimisations_left_out(options, library, products)
        self.session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"],
            disabled_optimizers=left_out,
        )  # fmt: skip
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def __call__(self, *sources: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for s in sources:
            values.update(s)
        given = {n: to_single(values[n]) for n in self.inputs}
        return dict(zip(self.outputs, self.session.run(None, given), strict=True))


def to_single(a: np.ndarray) -> np.ndarray:
    """Float64 as float32; everything else as it is."""
    return a.astype(np.float32) if a.dtype == np.float64 else a
