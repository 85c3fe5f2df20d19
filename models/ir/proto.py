"""Writes a graph as an ONNX model: pruned, renamed in order, in float32 for devices or float64 for the gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.shapes import Dim, Shape

OPSET = 18
IR_VERSION = 9
SHARED = 1024  # numbers; of smaller constants a second copy takes less than 4 kB
PRIVATE = {"com.microsoft": 1, "com.microsoft.nchwc": 1, NATIVE_DOMAIN: 1}
KINDS = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


def write_model(g: OnnxGraph, outputs: Sequence[str], double: bool = False, name: str = "graph") -> onnx.ModelProto:
    """The ONNX model that computes `outputs`, and nothing else.

    Equal graphs give equal bytes: names follow the order of execution.

    Args:
        double: floats are float64 instead of float32.
    """
    kept = select_needed(g, outputs)
    names = choose_names(g, kept, outputs)
    writer = ProtoWriter(names, TensorProto.DOUBLE if double else TensorProto.FLOAT)
    used = {i for n in kept for i in list_reads(n)}
    constants = {names[k]: k for k in g.constants if k in used}
    graph = helper.make_graph(
        [writer.write_node(n) for n in kept],
        name,
        [writer.write_value(i, g.shapes[i], g.dtypes[i]) for i in g.inputs if i in used or i in outputs],
        [writer.write_value(o, g.shapes[o], g.dtypes.get(o, "float")) for o in outputs],
        initializer=[writer.write_constant(k, g.constants[k]) for k in constants.values()],
    )
    domains = sorted({n.domain for n in kept} - {""})
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(d, PRIVATE[d]) for d in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="auscult")
    onnx.checker.check_model(model)
    return model


def select_needed(g: OnnxGraph, outputs: Iterable[str]) -> list[OnnxNode]:
    """The nodes that the outputs depend on, in order."""
    need, kept = set(outputs), []
    for node in reversed(g.nodes):
        if any(o in need for o in node.outputs):
            kept.append(node)
            need.update(list_reads(node))
    return kept[::-1]


def list_reads(node: OnnxNode) -> set[str]:
    """The values that a node reads, also inside the body of a Scan."""
    found = {i for i in node.inputs if i}
    for value in node.attributes.values():
        if isinstance(value, ScanBody):
            inner = {o for m in value.nodes for o in m.outputs} | {name for name, _ in value.inputs}
            found |= {i for m in value.nodes for i in m.inputs if i} - inner
    return found


def choose_names(g: OnnxGraph, kept: Sequence[OnnxNode], outputs: Sequence[str]) -> dict[str, str]:
    """Name of a value here -> its name in the file: inputs and outputs keep theirs, the rest is numbered.

    Equal constants of SHARED numbers or more have one name, so that they are in the file once.
    """
    names = {n: n for n in [*g.inputs, *outputs]} | {"": ""}
    used = {i for n in kept for i in list_reads(n)}
    written: dict[tuple[Any, ...], str] = {}
    for constant in (k for k in g.constants if k in used):
        array = g.constants[constant]
        same = (array.shape, array.dtype.str, array.tobytes()) if array.size >= SHARED else (constant,)
        names.setdefault(constant, written.setdefault(same, f"c{len(names)}"))
    for node in kept:
        bodies = [v for v in node.attributes.values() if isinstance(v, ScanBody)]
        inner = [o for b in bodies for o in [*(i for i, _ in b.inputs), *(o for m in b.nodes for o in m.outputs)]]
        for output in [*node.outputs, *inner]:
            names.setdefault(output, f"v{len(names)}")
    return names


class ProtoWriter:
    """Turns nodes, values and constants into protobuf, with one float type."""

    def __init__(self, names: dict[str, str], float_type: int) -> None:
        self.names, self.float_type = names, float_type
        self.float_dtype = np.float64 if float_type == TensorProto.DOUBLE else np.float32

    def write_node(self, n: OnnxNode) -> onnx.NodeProto:
        out = [self.names[o] for o in n.outputs]
        made = helper.make_node(n.op, [self.names[i] for i in n.inputs], out, domain=n.domain or None)
        attributes = dict(n.attributes)
        if n.op == "ConstantOfShape":
            attributes.setdefault("value", np.zeros(1))
        for key in sorted(attributes):
            made.attribute.append(self.write_attribute(key, attributes[key]))
        return made

    def write_attribute(self, key: str, value: Any) -> AttributeProto:
        if isinstance(value, ScanBody):
            return helper.make_attribute(key, self.write_body(value))
        if isinstance(value, np.ndarray):
            return helper.make_attribute(key, self.write_constant("", value))
        if key == "to":
            return helper.make_attribute(key, KINDS.get(value, self.float_type))
        return helper.make_attribute(key, value)

    def write_body(self, b: ScanBody) -> onnx.GraphProto:
        return helper.make_graph(
            [self.write_node(n) for n in b.nodes],
            "body",
            [self.write_value(n, s) for n, s in b.inputs],
            [self.write_value(n, s) for n, s in b.outputs],
        )

    def write_value(self, name: str, shape: Shape, dtype: str = "float") -> onnx.ValueInfoProto:
        dims = [write_dimension(d) for d in shape]
        return helper.make_tensor_value_info(self.names[name], KINDS.get(dtype, self.float_type), dims)

    def write_constant(self, name: str, array: np.ndarray) -> TensorProto:
        if np.issubdtype(array.dtype, np.floating):
            array = array.astype(self.float_dtype)
        return numpy_helper.from_array(np.asarray(array, order="C"), self.names[name] if name else "")


def write_dimension(d: Dim) -> int | str:
    """A dimension as ONNX has it: a number, or a symbol such as "B" or "32B"."""
    return d if isinstance(d, int) else ("B" if d.times == 1 else f"{d.times}B")
