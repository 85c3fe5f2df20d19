"""One operator, differentiated by its rule and by central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.models.derive.reverse import write_gradient
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.evaluation import reference
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model

STEP = 1e-5
Shapes = Mapping[str, Sequence[int | str]]


def make_forward(
    nodes: Sequence[onnx.NodeProto], inputs: Shapes, constants: Mapping[str, np.ndarray], output: str = "y"
):
    """A forward graph; inputs whose shape begins with "B" are data, the others parameters."""
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, list(v)) for k, v in inputs.items()]
    stored = [numpy_helper.from_array(to_single(v), k) for k, v in constants.items()]
    out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "test", infos, [out], initializer=stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data = tuple(k for k, v in inputs.items() if v and v[0] == "B")
    examples = tuple(
        torch.from_numpy(np.random.default_rng(9).uniform(0.5, 1, (7, *inputs[k][1:]))).float() for k in data
    )
    return Forward(model, data, examples, output)


def to_single(v: np.ndarray) -> np.ndarray:
    v = np.asarray(v)
    return v.astype(np.float32) if v.dtype == np.float64 else v


def check(
    nodes: Sequence[onnx.NodeProto],
    inputs: Shapes,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    batch: int = 3,
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray] | None = None,
    limit: float = 1e-6,
    output: str = "y",
) -> None:
    """The rules' gradient with respect to every input, along random directions, equals central differences."""
    forward = make_forward(nodes, inputs, constants or {}, output)
    g = read_forward(forward)
    rng = np.random.default_rng(len(nodes) + batch)
    draw = draw or (lambda r, shape: r.standard_normal(shape))
    at = {k: np.asarray(draw(rng, at_batch(v, batch))) for k, v in inputs.items()}
    f = write_model(g, [output], double=True)
    y = reference.run(f, at)[output]
    names = append_gradients(g, inputs, output)
    cotangent = rng.standard_normal(y.shape)
    got = reference.run(write_model(g, names, double=True), {**at, "cotangent": cotangent})
    for (k, value), grad in zip(at.items(), got.values(), strict=True):
        assert grad.shape == value.shape, f"{k}: gradient of shape {grad.shape} for {value.shape}"
        for _ in range(3):
            v = rng.standard_normal(value.shape)
            want = measure_slope(f, at, k, v, cotangent, output)
            scale = max(1.0, abs(want), float(np.abs(grad * v).sum()))
            assert abs((grad * v).sum() - want) <= limit * scale, (
                f"{k}: {(grad * v).sum()} by rule, {want} by differences"
            )


def append_gradients(g, inputs: Shapes, output: str) -> list[str]:
    """Append the backward pass; names of the adjoints, each under its input's name."""
    g.input("cotangent", g.shape(output))
    adjoints = write_gradient(g, {output: "cotangent"}, list(inputs))
    for k, v in adjoints.items():
        assert v is not None, f"no gradient for {k}"
        assert g.shape(v) == g.shape(k), f"{k}: declared {g.shape(v)}, expected {g.shape(k)}"
        g.op("Identity", v, shape=g.shape(k), output=f"grad.{k}")
    return [f"grad.{k}" for k in adjoints]


def measure_slope(f: onnx.ModelProto, at, k: str, v: np.ndarray, cotangent: np.ndarray, output: str) -> float:
    ahead, behind = ({**at, k: at[k] + sign * STEP * v} for sign in (1, -1))
    return float(((reference.run(f, ahead)[output] - reference.run(f, behind)[output]) * cotangent).sum() / (2 * STEP))


def at_batch(shape: Sequence[int | str], batch: int) -> tuple[int, ...]:
    return tuple(batch if d == "B" else int(d) for d in shape)


def make_node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


__all__ = ["check", "make_forward", "make_node"]


def compare_rewritten(
    nodes: Sequence[onnx.NodeProto], shapes: Shapes, rewrite: Callable[[OnnxGraph], None], limit: float = 1e-12
) -> None:
    """The value y of a graph, and its gradient with respect to every input, stay the same when it is rewritten."""
    rng = np.random.default_rng(0)
    at, found = {k: rng.standard_normal(at_batch(v, 2)) for k, v in shapes.items()}, []
    for change in (lambda g: None, rewrite):
        g = read_forward(make_forward(nodes, shapes, {}))
        change(g)
        y = reference.run(write_model(g, ["y"], double=True), at)["y"]
        names = append_gradients(g, shapes, "y")
        given = {**at, "cotangent": np.random.default_rng(4).standard_normal(y.shape)}
        found.append([y, *reference.run(write_model(g, names, double=True), given).values()])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, atol=limit)
