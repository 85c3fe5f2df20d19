"""A graph that makes many steps of SGD in one call, from the gradient graph of a bundle.

Calls of onnxruntime from Python, and the few operations of numpy between two of them, are a good part of what training
a small model costs. Here the gradient graph is the body of a Loop, in which each step's mini-batch is gathered and the
step applied:

    v <- keep * v - eta * grad(base + v; batch) + push

The operators are the same, on arrays of the same shapes, and each rounds by itself; so the result is that of the steps
one by one, to the bit. Who uses it compares the two once on the machine at hand (edge_sdk/simulate/epochs.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
from onnx import TensorProto, helper

from edge_sdk.models.ir.proto import IR_VERSION

DAMP, BASE, PUSH = "damp", "base", "push"
"""Terms of a step that a graph has or has not: `keep` is 1 without DAMP, `base` and `push` are zero without these."""
DATA = "data."
"""Before the name of an input of which a step gathers its rows."""


def write_epoch(gradient: bytes, terms: Collection[str] = ()) -> bytes:
    """The graph of many steps.

    Inputs: `start` (n,); `data.x` ... and `data.y`, all samples; `order` int64 (S, B), rows of each step; `weights`
    (B,); `eta`, and by `terms` `keep` (both scalars), `base` (n,) and `push` (n,). Outputs: `end` (n,), `losses` (S,).

    Args:
        gradient: a bundle's `loss_grad.onnx`.
        terms: of a step, beside its gradient: DAMP, BASE, PUSH.

    Raises:
        ValueError: the graph takes more than samples, as the running statistics of a batch, or masks of dropout.
    """
    model = onnx.load_from_string(gradient)
    inputs = {i.name: i for i in model.graph.input}
    if other := sorted(inputs.keys() & {"buffers", "masks"}):
        raise ValueError(f"the gradient graph takes {', '.join(other)}, which change from step to step")
    gathered = [name for name in inputs if name not in ("theta", "weights")]
    body = make_body(model.graph, gathered, terms)
    size, value = inputs["theta"].type.tensor_type.shape.dim[0].dim_value, helper.make_tensor_value_info
    given = [
        value("start", TensorProto.FLOAT, [size]),
        *(all_samples(inputs[name]) for name in gathered),
        value("order", TensorProto.INT64, ["S", "B"]),
        *([inputs["weights"]] if "weights" in inputs else []),
        value("eta", TensorProto.FLOAT, []),
        *([value("keep", TensorProto.FLOAT, [])] if DAMP in terms else []),
        *(value(name, TensorProto.FLOAT, [size]) for name in (BASE, PUSH) if name in terms),
    ]
    nodes = [
        helper.make_node("Shape", ["order"], ["order.shape"], start=0, end=1),
        helper.make_node("Squeeze", ["order.shape"], ["steps"]),
        helper.make_node("Loop", ["steps", "", "start"], ["end", "losses"], body=body),
    ]
    made = [value("end", TensorProto.FLOAT, [size]), value("losses", TensorProto.FLOAT, ["S"])]
    graph = helper.make_graph(nodes, "epoch", given, made, initializer=list(model.graph.initializer))
    found = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=IR_VERSION, producer_name="auscult"
    )
    onnx.checker.check_model(found)
    return bytes(found.SerializeToString(deterministic=True))


def make_body(gradient: onnx.GraphProto, gathered: Sequence[str], terms: Collection[str]) -> onnx.GraphProto:
    """One step: the gradient graph as it is, between the gathering of its samples and the change of v."""
    size = gradient.output[1].type.tensor_type.shape.dim[0].dim_value
    at = "v" if BASE in terms else "theta"
    nodes = [helper.make_node("Gather", ["order", "step"], ["rows"], axis=0)]
    nodes += [helper.make_node("Gather", [DATA + name, "rows"], [name], axis=0) for name in gathered]
    if BASE in terms:
        nodes.append(helper.make_node("Add", [BASE, "v"], ["theta"]))
    nodes += gradient.node
    kept = "kept" if DAMP in terms else at
    if DAMP in terms:
        nodes.append(helper.make_node("Mul", [at, "keep"], ["kept"]))
    nodes.append(helper.make_node("Mul", ["grad", "eta"], ["change"]))
    nodes.append(helper.make_node("Sub", [kept, "change"], ["moved" if PUSH in terms else "after"]))
    if PUSH in terms:
        nodes.append(helper.make_node("Add", ["moved", PUSH], ["after"]))
    nodes.append(helper.make_node("Identity", ["go"], ["go.on"]))
    value = helper.make_tensor_value_info
    given = [
        value("step", TensorProto.INT64, []),
        value("go", TensorProto.BOOL, []),
        value(at, TensorProto.FLOAT, [size]),
    ]
    made = [value("go.on", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, [size])]
    return helper.make_graph(nodes, "step", given, [*made, value("loss", TensorProto.FLOAT, [])])


def all_samples(one: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The input with all samples of which a step gathers some."""
    found = onnx.ValueInfoProto()
    found.CopyFrom(one)
    found.name = DATA + one.name
    found.type.tensor_type.shape.dim[0].dim_param = "N"
    return found
