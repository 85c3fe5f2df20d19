"""A graph that makes many steps of SGD in one call, from the gradient graph of a bundle.

Calls of onnxruntime from Python, and the few operations of numpy between two of them, are a good part of what training
a small model costs. Here the gradient graph is the body of a Loop, in which each step's mini-batch is gathered and the
step applied:

    v <- keep * v - eta * grad(base + v; batch) + push

The operators are the same, and each rounds by itself; so the result is that of the steps one by one, to the bit. Who
uses it compares the two once on the machine at hand (edge_sdk/simulate/epochs.py).

A gradient graph cuts theta into its parameters and joins their gradients. Where that is all it does with theta, as the
compiler writes it, the loop carries the parameters one by one, and nothing is cut or joined between two steps. What
does not change from step to step is computed once, before the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.models.ir.proto import IR_VERSION

DAMP, BASE, PUSH = "damp", "base", "push"
"""Terms of a step that a graph has or has not: `keep` is 1 without DAMP, `base` and `push` are zero without these."""
DATA = "data."
"""Before the name of an input of which a step gathers its rows."""


@dataclass(frozen=True)
class Parameters:
    """What a loop carries of theta.

    Attributes:
        names: of the values that the gradient graph takes it as.
        gradients: names of their gradients.
        sizes: of each.
        nodes: the gradient graph without what cuts theta and joins the gradients.
        cut: initializer that has the sizes; "": there is one part, theta.
    """

    names: tuple[str, ...]
    gradients: tuple[str, ...]
    sizes: tuple[int, ...]
    nodes: tuple[onnx.NodeProto, ...]
    cut: str = ""


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
    parts = find_parameters(model.graph)
    once, steps = set_apart(model.graph, parts.nodes, gathered)
    body = make_body(parts, steps, gathered, terms)
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
    carried, ended = [f"start.{name}" for name in parts.names], [f"end.{name}" for name in parts.names]
    nodes = [
        *cut(parts, "start"),
        *(node for name in (BASE, PUSH) if name in terms for node in cut(parts, name)),
        *once,
        helper.make_node("Shape", ["order"], ["order.shape"], start=0, end=1),
        helper.make_node("Squeeze", ["order.shape"], ["steps"]),
        helper.make_node("Loop", ["steps", "", *carried], [*ended, "losses"], body=body),
        helper.make_node("Concat", ended, ["end"], axis=0),
    ]
    made = [value("end", TensorProto.FLOAT, [size]), value("losses", TensorProto.FLOAT, ["S"])]
    graph = helper.make_graph(nodes, "epoch", given, made, initializer=list(model.graph.initializer))
    found = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=IR_VERSION, producer_name="auscult"
    )
    onnx.checker.check_model(found)
    return bytes(found.SerializeToString(deterministic=True))


def find_parameters(graph: onnx.GraphProto) -> Parameters:
    """The parts of theta that a loop can carry: its parameters, or theta as a whole."""
    size = graph.output[1].type.tensor_type.shape.dim[0].dim_value
    whole = Parameters(("theta",), ("grad",), (size,), tuple(graph.node))
    made_by = {name: node for node in graph.node for name in node.output}
    cuts = [node for node in graph.node if "theta" in node.input]
    tail = [made_by["grad"]]
    while tail[-1].op_type == "Identity":
        tail.append(made_by[tail[-1].input[0]])
    if len(cuts) != 1 or cuts[0].op_type != "Split" or tail[-1].op_type != "Concat":
        return whole
    values = {one.name: one for one in graph.initializer}
    sizes = tuple(numpy_helper.to_array(values[cuts[0].input[1]]).tolist()) if cuts[0].input[1] in values else ()
    gradients = tuple(tail[-1].input)
    if sizes != tuple(length_of(made_by[name], values) for name in gradients):
        return whole
    kept = tuple(node for node in graph.node if node is not cuts[0] and not any(node is one for one in tail))
    return Parameters(tuple(cuts[0].output), gradients, sizes, kept, cuts[0].input[1])


def length_of(node: onnx.NodeProto, values: dict[str, onnx.TensorProto]) -> int:
    """Length of the vector that a node makes of a gradient; 0: the graph does not say it."""
    if node.op_type != "Reshape" or node.input[1] not in values:
        return 0
    shape = numpy_helper.to_array(values[node.input[1]]).tolist()
    return int(shape[0]) if len(shape) == 1 else 0


def set_apart(
    graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], gathered: Collection[str]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Nodes whose values are the same in each step, and the others. The number of samples is one: `weights` has it."""
    has_weights = any(i.name == "weights" for i in graph.input)
    known = {one.name for one in graph.initializer} | ({"weights"} if has_weights else set())
    once, steps = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for node in nodes:
        if has_weights and node.op_type == "Shape" and node.input[0] in gathered and first_only(node):
            node = helper.make_node("Shape", ["weights"], list(node.output), start=0, end=1)
        same = bool(node.input) and known.issuperset(node.input) and node.output[0] not in ("loss", "grad")
        (once if same else steps).append(node)
        if same:
            known |= set(node.output)
    return once, steps


def first_only(node: onnx.NodeProto) -> bool:
    """True for a Shape that tells the first dimension alone."""
    found = {one.name: one.i for one in node.attribute}
    return found.get("start", 0) == 0 and found.get("end") == 1


def cut(parts: Parameters, name: str) -> list[onnx.NodeProto]:
    """What cuts a vector of theta's size into parts `NAME.PART`."""
    found = [f"{name}.{part}" for part in parts.names]
    if not parts.cut:
        return [helper.make_node("Identity", [name], found)]
    return [helper.make_node("Split", [name, parts.cut], found, axis=0)]


def make_body(
    parts: Parameters, steps: Sequence[onnx.NodeProto], gathered: Sequence[str], terms: Collection[str]
) -> onnx.GraphProto:
    """One step: the gradient graph between the gathering of its samples and the change of each part."""
    nodes = [helper.make_node("Gather", ["order", "step"], ["rows"], axis=0)]
    nodes += [helper.make_node("Gather", [DATA + name, "rows"], [name], axis=0) for name in gathered]
    carried = [f"v.{name}" if BASE in terms else name for name in parts.names]
    if BASE in terms:
        nodes += [helper.make_node("Add", [f"{BASE}.{name}", f"v.{name}"], [name]) for name in parts.names]
    nodes += steps
    for name, at, gradient in zip(parts.names, carried, parts.gradients, strict=True):
        nodes += change(name, at, gradient, terms)
    nodes.append(helper.make_node("Identity", ["go"], ["go.on"]))
    value = helper.make_tensor_value_info
    given = [value("step", TensorProto.INT64, []), value("go", TensorProto.BOOL, [])]
    given += [value(at, TensorProto.FLOAT, [size]) for at, size in zip(carried, parts.sizes, strict=True)]
    after = [
        value(f"after.{name}", TensorProto.FLOAT, [size]) for name, size in zip(parts.names, parts.sizes, strict=True)
    ]
    made = [value("go.on", TensorProto.BOOL, []), *after, value("loss", TensorProto.FLOAT, [])]
    return helper.make_graph(nodes, "step", given, made)


def change(name: str, at: str, gradient: str, terms: Collection[str]) -> list[onnx.NodeProto]:
    """The change of a part by one step: `after.NAME`, from its value `at`."""
    kept, moved, after = f"kept.{name}" if DAMP in terms else at, f"moved.{name}", f"after.{name}"
    nodes = [helper.make_node("Mul", [at, "keep"], [kept])] if DAMP in terms else []
    nodes.append(helper.make_node("Mul", [gradient, "eta"], [f"change.{name}"]))
    nodes.append(helper.make_node("Sub", [kept, f"change.{name}"], [moved if PUSH in terms else after]))
    if PUSH in terms:
        nodes.append(helper.make_node("Add", [moved, f"{PUSH}.{name}"], [after]))
    return nodes


def all_samples(one: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The input with all samples of which a step gathers some."""
    found = onnx.ValueInfoProto()
    found.CopyFrom(one)
    found.name = DATA + one.name
    found.type.tensor_type.shape.dim[0].dim_param = "N"
    return found
