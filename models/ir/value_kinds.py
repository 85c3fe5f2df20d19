"""The type of the numbers in each value of a graph, as far as it follows from the nodes that make them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.marks import MARKS
from edge_sdk.models.ir.nodes import OnnxNode

FLOAT, TRUTH, OTHER, UNKNOWN = "float", "bool", "other", ""
COMPARISONS = frozenset({"Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"})
LOGIC = frozenset({"And", "Or", "Not"})
TRUTHS = COMPARISONS | LOGIC | {"Xor", "IsNaN", "IsInf"}
NUMBERS = frozenset({"Shape", "Size", "ArgMax", "ArgMin", "NonZero"})
FLOATS = frozenset({NATIVE_DOMAIN, "com.microsoft.nchwc"})
"""Domains of operators that make nothing but floats: those of auscult-native, and of onnxruntime's blocked layout."""
LIKE_FIRST = frozenset(
    [
        "Abs",
        "Add",
        "AveragePool",
        "BatchNormalization",
        "Ceil",
        "Celu",
        "Clip",
        "Concat",
        "Conv",
        "ConvTranspose",
        "Cos",
        "CumSum",
        "Div",
        "Einsum",
        "Elu",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Floor",
        "GRU",
        "Gather",
        "GatherElements",
        "GatherND",
        "Gemm",
        "GlobalAveragePool",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "MatMul",
        "Max",
        "MaxUnpool",
        "Min",
        "Mul",
        "Neg",
        "PRelu",
        "Pad",
        "Pow",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Reshape",
        "Resize",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Slice",
        "Softmax",
        "Softplus",
        "Softsign",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
    ]
)
"""Operators whose results are all of the type of their first input."""


def list_kinds(g: OnnxGraph) -> dict[str, str]:
    """The kind of every value: FLOAT, TRUTH, OTHER (whole numbers, text), or UNKNOWN. Nodes are in order."""
    kinds = {name: name_kind(array.dtype) for name, array in g.constants.items()}
    kinds |= {name: g.dtypes[name] if g.dtypes[name] in (FLOAT, TRUTH) else OTHER for name in g.inputs}
    for n in g.nodes:
        kinds |= dict(zip(n.outputs, infer(n, kinds), strict=True))
    return kinds


def name_kind(dtype: np.dtype) -> str:
    """The kind of an array's numbers."""
    return FLOAT if dtype.kind == "f" else (TRUTH if dtype.kind == "b" else OTHER)


def infer(n: OnnxNode, kinds: dict[str, str]) -> Iterable[str]:
    """The kinds of a node's outputs."""
    first = kinds.get(n.inputs[0], UNKNOWN) if n.inputs else UNKNOWN
    if n.domain:
        kind = FLOAT if n.domain in FLOATS else UNKNOWN
    elif n.op in ("MaxPool", "TopK"):
        return [first, *(OTHER for _ in n.outputs[1:])]
    elif n.op == "Cast":
        kind = {"int64": OTHER, "int32": OTHER, "bool": TRUTH, "float": FLOAT}.get(n.attributes["to"], UNKNOWN)
    elif n.op == "ConstantOfShape":
        kind = name_kind(np.asarray(n.attributes.get("value", 0.0)).dtype)
    elif n.op in ("Where", "OneHot"):
        kind = kinds.get(n.inputs[1 if n.op == "Where" else 2], UNKNOWN)
    elif n.op in TRUTHS:
        kind = TRUTH
    elif n.op in NUMBERS:
        kind = OTHER
    elif n.op == "Scan":  # its states and sequences are written as floats
        kind = FLOAT
    else:
        kind = first if n.op in LIKE_FIRST or n.op in MARKS else UNKNOWN
    return [kind for _ in n.outputs]
