"""Check (g) of the gate: functions of single values in float32 at values near 0, where a formula may lose its digits.

All comparisons in float64 are blind to that: log(1 + x) has nine digits left there for x = 1e-7, and none in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from edge_sdk.models.derive.reverse import write_gradient
from edge_sdk.models.gate.operators.isolate import IsolatedCall
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.shapes import at_batch
from edge_sdk.models.passes.pointwise.precise import write_precise_units
from edge_sdk.models.passes.pointwise.small_values import write_small_values

LIMIT = 1e-4
TORCH_FACTOR = 20
SMALLEST = 1e-30
"""Results below this are not compared: float32 itself has fewer digits soon."""

Arrays = Mapping[str, np.ndarray]


def is_checked(call: IsolatedCall) -> bool:
    """True for a function of each element of one value alone."""
    tags = getattr(call.node.target, "tags", ())
    alone = len(call.node.all_input_nodes) == len(call.floats) == len(call.graph.inputs) == 1
    return torch.Tag.pointwise in tags and alone and list(call.outputs) == [0]


def check_digits(call: IsolatedCall) -> None:
    """Compare value and slope of one call in float32, as devices compute them, with torch's in float64.

    Raises:
        ParityError: it is further off than torch's own float32.
    """
    if not is_checked(call):
        return
    x = draw_small(at_batch(call.graph.shape(call.floats[0]), 2))
    exact, single = (run_torch(call, x, dtype) for dtype in (torch.float64, torch.float32))
    for what, got in run_device(call, x).items():
        error = measure_digits(got, exact[what], single[what])
        if not error <= LIMIT:
            kind = f"{call.graph.nodes[-1].where or 'the module'}: {call.node.target}"
            raise ParityError(f"float32, {kind}", "values near 0", what, error, LIMIT)


def draw_small(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of both signs between 1e-7 and 1e-1, and a 0."""
    rng = np.random.default_rng(0)
    values = 10 ** rng.uniform(-7, -1, shape) * rng.choice([-1.0, 1.0], shape)
    values.flat[0] = 0
    return np.asarray(values, np.float32)


def run_device(call: IsolatedCall, x: np.ndarray) -> dict[str, np.ndarray]:
    """The value and the slope of a call by onnxruntime."""
    g: OnnxGraph = call.graph.empty_copy()
    for name in call.graph.inputs:
        g.input(name, call.graph.shape(name), call.graph.dtypes[name])
    g.nodes, g.makers = list(call.graph.nodes), dict(call.graph.makers)
    write_precise_units(g)
    write_small_values(g)
    source, made = call.floats[0], call.outputs[0]
    seed = g.input("cotangent", g.shape(made))
    slope = write_gradient(g, {made: seed}, [source])[source]
    named = {"the value": made} | ({"the slope": slope} if slope else {})
    ones = np.ones(at_batch(g.shape(made), 2), np.float32)
    found = RunnableGraph(write_model(g, [*named.values()]))({source: x, "cotangent": ones})
    return {what: found[name] for what, name in named.items()}


def run_torch(call: IsolatedCall, x: np.ndarray, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """Value and slope of a call by torch in a precision."""
    given = torch.from_numpy(x).to(dtype).requires_grad_()
    args, kwargs = torch.fx.node.map_arg((call.node.args, call.node.kwargs), lambda n: given.clone())
    made = call.node.target(*args, **kwargs)  # type: ignore[operator]
    slope = torch.zeros_like(given)
    if made.requires_grad:
        slope = torch.autograd.grad(made.sum(), given, materialize_grads=True)[0]
    return {"the value": made.detach().double().numpy(), "the slope": slope.double().numpy()}


def measure_digits(got: np.ndarray, exact: np.ndarray, single: np.ndarray) -> float:
    """The largest relative error of a number beyond what torch's own float32 has, times TORCH_FACTOR."""
    counts = np.isfinite(exact) & np.isfinite(single) & (np.abs(exact) > SMALLEST)
    got, exact, single = (v[counts] for v in (got, exact, single))
    excess = np.abs(got - exact) - TORCH_FACTOR * np.abs(single - exact)
    return float((excess / np.abs(exact)).max(initial=0))
