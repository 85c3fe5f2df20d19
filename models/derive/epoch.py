"""A graph that makes many steps of SGD in one call, from the gradient graph of a bundle.

Calls of onnxruntime from Python, and the few operations of numpy between two of them, are a good part of what training
a small model costs. Here the gradient graph is the body of a Scan, in which each step's mini-batch is gathered and the
step applied:

    v <- keep * v - eta * grad(base + v; batch) + push

The operators are the same, and each rounds by itself; so the result is that of the steps one by one, to the bit. Who
uses it compares the two once on the machine at hand (edge_sdk/simulation/training/epochs.py).

A gradient graph cuts theta into its parameters and joins their gradients. Where that is all it does with theta, as the
compiler writes it, steps hand on the parameters one by one, in the shapes in which they are used: nothing is cut,
joined or reshaped between two steps. What does not change from step to step is computed once, before the first, and so
is what a step takes of its labels alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.models.ir.proto import IR_VERSION

DAMP, BASE, PUSH = "damp", "base", "push"
"""Terms of a step that a graph has or has not: `keep` is 1 without DAMP, `base` and `push` are zero without these."""
DATA = "data."
"""Before the name of an input of which a step gathers its rows."""
Shape = tuple[int, ...]
Constants = Mapping[str, onnx.TensorProto]


@dataclass(frozen=True)
class ThetaPart:
    """A part of theta.

    Attributes:
        name: of the value that the gradient graph takes it as.
        gradient: name of its gradient.
        shape: of both.
    """

    name: str
    gradient: str
    shape: Shape


def write_epoch(gradient: bytes, terms: Collection[str] = ()) -> bytes:
    """The graph of many steps.

    Inputs: `epoch.start` (n,); `data.x` ... and `data.y`, all samples; `epoch.order` int64 (S, B), rows of each step;
    `weights` (B,); `epoch.eta`, and by `terms` `epoch.keep` (both scalars), `epoch.base` (n,) and `epoch.push` (n,).
    Outputs: `epoch.end` (n,), `epoch.losses` (S,). A model's own inputs have names without a dot.

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
    samples = [name for name in inputs if name not in ("theta", "weights")]
    parts, nodes = find_parts(model)
    once, steps = set_apart(model.graph, nodes, samples)
    marks, steps = labels_apart(model.graph, steps)
    rows = [name for name in (*samples, *(node.output[0] for node in marks)) if is_used(name, steps)]
    size, value = inputs["theta"].type.tensor_type.shape.dim[0].dim_value, helper.make_tensor_value_info
    given = [
        value("epoch.start", TensorProto.FLOAT, [size]),
        *(all_samples(inputs[name]) for name in samples),
        value("epoch.order", TensorProto.INT64, ["S", "B"]),
        *([inputs["weights"]] if "weights" in inputs else []),
        value("epoch.eta", TensorProto.FLOAT, []),
        *([value("epoch.keep", TensorProto.FLOAT, [])] if DAMP in terms else []),
        *(value(f"epoch.{name}", TensorProto.FLOAT, [size]) for name in (BASE, PUSH) if name in terms),
    ]
    started, ended = ([f"{name}.{k}" for k in range(len(parts))] for name in ("start", "end"))
    body = make_body(parts, steps, rows, terms)
    nodes = [
        *(node for name in ("start", BASE, PUSH) if name == "start" or name in terms for node in cut(parts, name)),
        *once,
        *(of_all_samples(node) for node in marks),
        helper.make_node("Scan", [*started, "epoch.order"], [*ended, "epoch.losses"], body=body, num_scan_inputs=1),
        *join(parts, "end"),
    ]
    made = [value("epoch.end", TensorProto.FLOAT, [size]), value("epoch.losses", TensorProto.FLOAT, ["S"])]
    constants = [*model.graph.initializer, *shape_constants(parts)]
    graph = helper.make_graph(nodes, "epoch", given, made, initializer=constants)
    found = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=IR_VERSION, producer_name="auscult"
    )
    onnx.checker.check_model(found)
    return bytes(found.SerializeToString(deterministic=True))


def find_parts(model: onnx.ModelProto) -> tuple[list[ThetaPart], list[onnx.NodeProto]]:
    """The parts of theta that steps can take: its parameters, or theta as a whole; and the gradient graph without what
    cuts theta and joins the gradients."""
    graph = model.graph
    size = graph.output[1].type.tensor_type.shape.dim[0].dim_value
    whole = [ThetaPart("theta", "grad", (size,))], list(graph.node)
    made_by = {name: node for node in graph.node for name in node.output}
    cuts = [node for node in graph.node if "theta" in node.input]
    tail = [made_by["grad"]]
    while tail[-1].op_type == "Identity":
        tail.append(made_by[tail[-1].input[0]])
    if len(cuts) != 1 or cuts[0].op_type != "Split" or tail[-1].op_type != "Concat":
        return whole
    values = {one.name: one for one in graph.initializer}
    sizes = numpy_helper.to_array(values[cuts[0].input[1]]).tolist() if cuts[0].input[1] in values else []
    gradients = list(tail[-1].input)
    if [(size,) for size in sizes] != [reshaped(made_by[name], values) for name in gradients]:
        return whole
    nodes = [node for node in graph.node if node is not cuts[0] and not any(node is one for one in tail)]
    parts = [ThetaPart(*one) for one in zip(cuts[0].output, gradients, [(size,) for size in sizes], strict=True)]
    return in_their_shapes(parts, nodes, shapes_in(model), values)


def in_their_shapes(
    parts: Sequence[ThetaPart], nodes: list[onnx.NodeProto], known: Mapping[str, Shape], values: Constants
) -> tuple[list[ThetaPart], list[onnx.NodeProto]]:
    """The parts as the graph uses them, where it only reshapes them first, and their gradients last; and the other
    nodes. `known`: shapes of values, as far as they are known."""
    found, left_out = list[ThetaPart](), set[str]()
    for part in parts:
        (first, *others), last = [node for node in nodes if part.name in node.input], maker(part.gradient, nodes)
        shape = reshaped(first, values)
        if shape and not others and known.get(last.input[0]) == shape:
            part = ThetaPart(first.output[0], last.input[0], shape)
            left_out |= {first.output[0], last.output[0]}
        found.append(part)
    return found, [node for node in nodes if node.output[0] not in left_out]


def maker(name: str, nodes: Iterable[onnx.NodeProto]) -> onnx.NodeProto:
    """The node that makes a value."""
    return next(node for node in nodes if name in node.output)


def reshaped(node: onnx.NodeProto, values: Constants) -> Shape:
    """The shape that a node gives a value, if that is all it does and the graph says it; else ()."""
    if node.op_type != "Reshape" or node.input[1] not in values:
        return ()
    shape = tuple(numpy_helper.to_array(values[node.input[1]]).tolist())
    return shape if min(shape, default=0) > 0 else ()


def shapes_in(model: onnx.ModelProto) -> dict[str, Shape]:
    """Shapes of values that do not depend on the number of samples."""
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    found = {one.name: tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim) for one in inferred}
    return {name: shape for name, shape in found.items() if min(shape, default=0) > 0}


def labels_apart(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Nodes that write labels as zeros and a one, sample by sample, and the others: the former are done for all samples
    at once, and a step gathers their rows."""
    given, known = {i.name for i in graph.input}, {one.name for one in graph.initializer}
    marks, others = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for node in nodes:
        by_sample = node.op_type == "OneHot" and node.input[0] in given and known.issuperset(node.input[1:])
        axis = next((one.i for one in node.attribute if one.name == "axis"), -1)
        (marks if by_sample and axis in (1, -1) else others).append(node)
    return marks, others


def of_all_samples(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node of `labels_apart`, for all samples."""
    found = onnx.NodeProto()
    found.CopyFrom(node)
    found.input[0], found.output[0] = DATA + node.input[0], DATA + node.output[0]
    return found


def is_used(name: str, nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(name in node.input for node in nodes)


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


def make_body(
    parts: Sequence[ThetaPart], steps: Sequence[onnx.NodeProto], gathered: Sequence[str], terms: Collection[str]
) -> onnx.GraphProto:
    """One step: the gradient graph between the gathering of its samples and the change of each part."""
    nodes = [helper.make_node("Gather", [DATA + name, "epoch.rows"], [name], axis=0) for name in gathered]
    carried = [f"v.{part.name}" if BASE in terms else part.name for part in parts]
    if BASE in terms:
        added = zip(parts, carried, strict=True)
        nodes += [helper.make_node("Add", [f"{BASE}.{k}", at], [part.name]) for k, (part, at) in enumerate(added)]
    nodes += steps
    for k, (part, at) in enumerate(zip(parts, carried, strict=True)):
        nodes += change(k, at, part.gradient, terms)
    value = helper.make_tensor_value_info
    given = [value(at, TensorProto.FLOAT, part.shape) for part, at in zip(parts, carried, strict=True)]
    given.append(value("epoch.rows", TensorProto.INT64, ["B"]))
    after = [value(f"after.{k}", TensorProto.FLOAT, part.shape) for k, part in enumerate(parts)]
    return helper.make_graph(nodes, "step", given, [*after, value("loss", TensorProto.FLOAT, [])])


def change(k: int, at: str, gradient: str, terms: Collection[str]) -> list[onnx.NodeProto]:
    """The change of the k-th part by one step: `after.K`, from its value `at`."""
    kept, moved, after = f"kept.{k}" if DAMP in terms else at, f"moved.{k}", f"after.{k}"
    nodes = [helper.make_node("Mul", [at, "epoch.keep"], [kept])] if DAMP in terms else []
    nodes.append(helper.make_node("Mul", [gradient, "epoch.eta"], [f"change.{k}"]))
    nodes.append(helper.make_node("Sub", [kept, f"change.{k}"], [moved if PUSH in terms else after]))
    if PUSH in terms:
        nodes.append(helper.make_node("Add", [moved, f"{PUSH}.{k}"], [after]))
    return nodes


def cut(parts: Sequence[ThetaPart], name: str) -> list[onnx.NodeProto]:
    """What cuts the vector `epoch.NAME` of theta's size into parts `NAME.0`, `NAME.1` ..."""
    flat = [f"{name}.flat.{k}" for k in range(len(parts))]
    nodes = [helper.make_node("Split", [f"epoch.{name}", "epoch.sizes"], flat, axis=0)]
    return nodes + [helper.make_node("Reshape", [at, f"shape.{k}"], [f"{name}.{k}"]) for k, at in enumerate(flat)]


def join(parts: Sequence[ThetaPart], name: str) -> list[onnx.NodeProto]:
    """What makes such a vector of its parts."""
    flat = [f"{name}.flat.{k}" for k in range(len(parts))]
    nodes = [helper.make_node("Reshape", [f"{name}.{k}", "epoch.flat"], [at]) for k, at in enumerate(flat)]
    return [*nodes, helper.make_node("Concat", flat, [f"epoch.{name}"], axis=0)]


def shape_constants(parts: Sequence[ThetaPart]) -> list[onnx.TensorProto]:
    """What `cut` and `join` take: the parts' sizes and shapes, and the shape of any vector."""
    shapes = {f"shape.{k}": part.shape for k, part in enumerate(parts)}
    values = {"epoch.sizes": tuple(prod(part.shape) for part in parts), "epoch.flat": (-1,), **shapes}
    return [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()]


def all_samples(one: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The input with all samples of which a step gathers some."""
    found = onnx.ValueInfoProto()
    found.CopyFrom(one)
    found.name = DATA + one.name
    found.type.tensor_type.shape.dim[0].dim_param = "N"
    return found
