"""One model that predicts again and again: what does not change from window to window is checked and looked up once."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.algebra.vectors import Vector
from edge_sdk.model.bound import FORWARD_BATCH
from edge_sdk.model.inputs import Data, Floats, split_inputs
from edge_sdk.model.model import Model

Output = Callable[[Data], Floats]


def make_predictor(model: Model, theta: Vector) -> Output:
    """x (B, *input_shape) -> what `model.predict(theta, x)` returns, with the same errors.

    For one window at a time, on a small model, looking up graph, parameters and statistics anew would take half as long
    as the model itself.
    """
    session, most = model.session("predict"), min(FORWARD_BATCH, model.max_batch)
    declared = model.bundle.manifest["inputs"]
    fixed = {"theta": model.parameters(theta)}
    if model.buffers0.size:
        fixed["buffers"] = model.buffers0
    fixed = {name: value for name, value in fixed.items() if name in session.inputs}

    def output(x: Data) -> Floats:
        x = model.samples(x)
        if not 0 < len(x) <= most:
            return model.predict(theta, x)
        found: Floats = session.run({**fixed, **split_inputs(declared, x)})[0]
        return found

    return output
