"""Reads an exported ONNX model as an `OnnxGraph` with the shape of every value.

Shapes are observed, not inferred: the graph runs at two batch sizes, and a dimension must either be the same in both or
proportional to the batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from traceback import walk_tb
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edge_sdk.models.frontend.decomposition.fixed_values import compute_fixed, take_fixed
from edge_sdk.models.frontend.decomposition.fourier import EXACT
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.ir.errors import (
    BatchSpecialised,
    CompileError,
    UnknownShape,
    UnsupportedOperator,
    UnsupportedPattern,
)
from edge_sdk.models.ir.evaluation.restore import TORCHS_OWN, restore, restore_number
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.marks import MARK_DOMAIN
from edge_sdk.models.ir.nodes import OnnxNode, TorchCall
from edge_sdk.models.ir.shapes import BatchDim, Dim, Shape, reshape_sizes
from edge_sdk.models.rules.advice import ADVICE

PROBES = (2, 3)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
DTYPES = {TensorProto.INT64: "int64", TensorProto.INT32: "int32", TensorProto.BOOL: "bool"}
SMALL = (np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
"""Types of whole numbers that bundles do not have; they are int64 there, which overflows elsewhere."""
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def read_forward(forward: Forward) -> OnnxGraph:
    """The graph of an exported forward pass; constants are float64.

    Raises:
        UnsupportedOperator: it has control flow or operators of other domains.
        BatchSpecialised, UnknownShape: a shape is neither fixed nor proportional to the batch.
    """
    source = forward.model.graph
    g = OnnxGraph()
    truths = {v.name for v in (*source.input, *source.value_info) if v.type.tensor_type.elem_type == TensorProto.BOOL}
    for node in source.node:
        refuse_unknown_domain(node)
        refuse_conversion(node, truths)
    exact, fixed = list_exact(forward), compute_fixed(forward.program)
    factors = {n.input[2] for n in source.node if n.op_type == "Resize" and len(n.input) > 2}
    for initializer in source.initializer:
        name = initializer.name
        array = take_fixed(numpy_helper.to_array(initializer), fixed.get(name))
        g.constants[name] = restore(array) if name in factors else widen(array, exact)
    observed = observe_shapes(forward)
    for value in source.input:
        g.input(value.name, observed[value.name], DTYPES.get(value.type.tensor_type.elem_type, "float"))
    for node in source.node:
        if node.op_type == "Constant":
            array = numpy_helper.to_array(node.attribute[0].t)
            g.constants[node.output[0]] = restore(array) if node.output[0] in factors else widen(array, exact)
        else:
            made = OnnxNode(
                node.op_type, list(node.input), list(node.output), read_attributes(node), "", read_path(node)
            )
            made.call = read_call(node)
            g.nodes.append(made)
    g.shapes.update(observed)
    g.shapes.update({k: v.shape for k, v in g.constants.items()})
    if not isinstance(g.shapes[forward.output][0], BatchDim):
        raise BatchSpecialised(f"the output has shape {g.shapes[forward.output]}: its first dimension is not the batch")
    g.makers.update({o: n for n in g.nodes for o in n.outputs})
    fix_reshapes(g)
    return g


def refuse_unknown_domain(node: onnx.NodeProto) -> None:
    """Raise UnsupportedOperator for control flow and for operators that are not ONNX's own."""
    if node.domain not in ("", "ai.onnx", MARK_DOMAIN) or node.op_type in ("If", "Loop"):
        call = read_call(node)
        known = call is not None and call.name in ADVICE
        name = call.name if call and known else node.op_type
        raise UnsupportedOperator(f"{name} (of torch)" if known else name, read_path(node), ADVICE.get(name, ""))


def refuse_conversion(node: onnx.NodeProto, truths: Collection[str]) -> None:
    """Raise UnsupportedPattern for a conversion to a type that bundles do not have, but of truth values to integers."""
    to = helper.get_node_attr_value(node, "to") if node.op_type == "Cast" else TensorProto.FLOAT
    if to in FLOATS or to in DTYPES or (to not in HALVES and node.input[0] in truths):
        return
    call, kind = read_call(node), TensorProto.DataType.Name(to).lower()
    advice = "use .long(), with % 256 or clamp for its limits, or * 2 ** n and // 2 ** n for shifts"
    if to in HALVES:
        advice = "leave out .half(), .bfloat16() and torch.autocast: devices compute in float32"
    raise UnsupportedPattern(
        f"a conversion to {kind}{f' (for {call.name} of torch)' if call else ''}", read_path(node), advice
    )


def read_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as plain values: text as str, tensors as float64, types as names."""
    found = {}
    for a in node.attribute:
        value = helper.get_attribute_value(a)
        if isinstance(value, bytes):
            value = value.decode()
        elif a.type == AttributeProto.TENSOR:
            value = widen(numpy_helper.to_array(value))
        elif a.type == AttributeProto.FLOAT:
            value = restore_number(value)
        elif a.name == "to":
            value = "float" if value in FLOATS else DTYPES.get(value, "int64")
        elif isinstance(value, (list, tuple)):
            value = [v.decode() if isinstance(v, bytes) else v for v in value]
        found[a.name] = value
    return found


def list_exact(forward: Forward) -> dict[float, float]:
    """Number in float32 -> the number that it was rounded from, for those in a module's formulas and torch's own."""
    program = forward.program
    numbers = [a for n in program.graph.nodes for a in (*n.args, *n.kwargs.values())] if program else []
    plain = [float(a) for a in numbers if isinstance(a, float)]
    return {float(np.float32(v)): v for v in (*TORCHS_OWN, *plain, *(1 / v for v in plain if v)) if abs(v) < 1e30}


def widen(array: np.ndarray, exact: Mapping[float, float] | None = None) -> np.ndarray:
    """A float32 array as float64; a matrix of a transform, or a single number, as what it was rounded from."""
    if array.dtype != np.float32:
        return array.astype(np.int64) if array.dtype in SMALL else array
    if array.size != 1:
        known = EXACT.get((array.shape, array.tobytes()))
        return array.astype(np.float64) if known is None else known
    number = float(array.reshape(()))
    return np.full(array.shape, (exact or {}).get(number, restore_number(number)))


def read_path(node: onnx.NodeProto) -> str:
    """Path of the torch module that an exported node came from."""
    for prop in node.metadata_props:
        if prop.key == "pkg.torch.onnx.name_scopes":
            scopes = ast.literal_eval(prop.value)
            inner = scopes[-2] if len(scopes) > 1 else ""
            return inner.removeprefix("net").removeprefix(".") or "the module"
    return ""


CALL = re.compile(r"target=torch\.ops\.\w+\.(\w+)\.(\w+)\]\(args = \((.*?)\), kwargs")


def read_call(node: onnx.NodeProto) -> TorchCall | None:
    """The torch function that an exported node was written for."""
    for prop in node.metadata_props:
        found = CALL.search(prop.value) if prop.key == "pkg.torch.onnx.fx_node" else None
        if found:
            return TorchCall(found[1], found[2], tuple(a.strip() for a in found[3].split(",") if a.strip()))
    return None


def observe_shapes(forward: Forward) -> dict[str, Shape]:
    """The shape of every value, from runs of the forward pass at two batch sizes."""
    first, second = (run_at_batch(forward, b) for b in PROBES)
    return {name: tuple(find_dim(name, a, b) for a, b in zip(first[name], second[name], strict=True)) for name in first}


def find_dim(name: str, a: int, b: int) -> Dim:
    """The dimension that is `a` and `b` at the two batch sizes.

    Raises:
        UnknownShape: it is neither fixed nor proportional to the batch.
    """
    if a == b:
        return a
    if a % PROBES[0] == 0 and a // PROBES[0] * PROBES[1] == b:
        return BatchDim(a // PROBES[0])
    raise UnknownShape(f"{name}: a dimension is {a} for batch {PROBES[0]} and {b} for batch {PROBES[1]}")


def run_at_batch(forward: Forward, batch: int) -> dict[str, Sequence[int]]:
    """The shape of every value for one batch size.

    Raises:
        CompileError: the graph does not run; of the kind that says whether that is for this batch size only.
    """
    try:
        return measure_shapes(forward, batch)
    except Exception as error:
        raise explain_run(error, batch, does_run(forward, len(forward.examples[0]))) from error


def does_run(forward: Forward, batch: int) -> bool:
    """True if the graph runs with this many samples."""
    try:
        measure_shapes(forward, batch)
    except Exception:
        return False
    return True


def measure_shapes(forward: Forward, batch: int) -> dict[str, Sequence[int]]:
    """The shape of every value for one batch size; whatever the evaluation raises."""
    from edge_sdk.models.ir.evaluation.reference import Evaluator

    feeds = {}
    for value in forward.model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [d.dim_value if d.HasField("dim_value") else batch for d in dims]
        feeds[value.name] = np.ones(shape, helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    for name, example in zip(forward.inputs, forward.examples, strict=True):
        feeds[name] = example[:batch].numpy()
    return {name: np.shape(v) for name, v in Evaluator(forward.model)(feeds, everything=True).items()}


def explain_run(error: Exception, batch: int, runs_as_traced: bool) -> CompileError:
    """The error of a run as one that names the layer and the operator.

    Args:
        runs_as_traced: the graph runs with the batch that the module was traced with, so that it is the batch size
            that it does not suit; otherwise it is the operator that cannot be evaluated.
    """
    if isinstance(error, CompileError) and not isinstance(error, UnsupportedPattern):
        return error
    first = str(error).strip().split("\n")[0][:200]
    node = find_node(error)
    if node is None:
        return BatchSpecialised(f"the exported graph does not run with a batch of {batch}: {first}")
    call, path = read_call(node), read_path(node)
    if isinstance(error, UnsupportedPattern):
        return UnsupportedPattern(error.what, error.where or path, error.advice)
    if node.op_type in ADVICE:
        return UnsupportedOperator(node.op_type, path, ADVICE[node.op_type])
    made = f"{node.op_type} (for {call.name} of torch)" if call else node.op_type
    if not runs_as_traced:
        return UnsupportedPattern(f"{made} cannot be evaluated ({first})", path, "use other functions in its place")
    return BatchSpecialised(
        f"{path or 'the module'}: {made} does not run with a batch of {batch} ({first}); "
        "use shapes that do not depend on values, and other functions where they do not"
    )


def find_node(error: Exception) -> onnx.NodeProto | None:
    """The innermost node that was run, or looked up among the evaluator's operators, when an error was raised."""
    frames = [f.f_locals for f, _ in walk_tb(error.__traceback__)]
    found = [v for f in frames for v in (getattr(f.get("self"), "onnx_node", None), f.get("node"))]
    nodes = [v for v in found if isinstance(v, onnx.NodeProto)]
    return nodes[-1] if nodes else None


def fix_reshapes(g: OnnxGraph) -> None:
    """Replace the computed shapes of Reshapes by constants, where one dimension at most is the batch."""
    for node in g.nodes:
        if node.op == "Reshape":
            shape = g.shape(node.outputs[0])
            if sum(isinstance(d, BatchDim) for d in shape) <= 1:
                node.inputs[1] = g.ints(reshape_sizes(shape))
                node.attributes.pop("allowzero", None)
