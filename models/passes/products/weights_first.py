"""Dense layers of few rows as products in which the weights come first: y' = weight x' in place of y = x weight'.

onnxruntime copies the second matrix of a product into panels before it multiplies, whatever the first one is. Of few
rows and many weights that takes longer than to multiply: 32 rows with 768 x 768 weights 1.35 times as long, 16 rows 1.5
times (a Xeon with AMX). With the weights first, it copies the few rows; what comes out is transposed. Adjoints of x
have nothing to gain: there the weights would have to be transposed.
"""

from __future__ import annotations

from math import prod

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim

MANY_WEIGHTS = 1 << 18
MOST_ROWS = 64
"""Of a step: with 100 rows, the transposition costs what the panels did."""
PLAIN = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
"""What a Gemm does where its attributes say nothing."""


def put_weights_first(g: OnnxGraph, samples: int) -> None:
    """Rewrite all dense layers that gain by it, in place. For graphs that have their gradient.

    Args:
        samples: of the largest step.
    """
    for n in g.take_nodes():
        if gains(g, n, samples):
            write_weights_first(g, n)
        else:
            g.put_back(n)
    g.where = ""


def gains(g: OnnxGraph, n: OnnxNode, samples: int) -> bool:
    """True for x weight' (+ bias) of few rows and many weights."""
    if n.op != "Gemm" or n.domain or {**PLAIN, **n.attributes} != {**PLAIN, "transB": 1}:
        return False
    (rows, _), weights, biases = g.shape(n.inputs[0]), g.shape(n.inputs[1]), [g.shape(b) for b in n.inputs[2:] if b]
    few = isinstance(rows, BatchDim) and rows.times * samples <= MOST_ROWS
    fixed = all(isinstance(size, int) for size in weights)
    one_each = all(shape in ((weights[0],), (1, weights[0])) for shape in biases)  # others spread over rows or units
    return few and fixed and one_each and prod(g.numbers(n.inputs[1])) >= MANY_WEIGHTS


def write_weights_first(g: OnnxGraph, n: OnnxNode) -> None:
    """Append the product with its weights first, its bias, and the transposition."""
    g.where, (x, weight, *bias), y = n.where, n.inputs, n.outputs[0]
    (rows, _), (units, _) = g.shape(x), g.numbers(weight)
    made = g.gemm(weight, x, tb=True)
    if bias and bias[0]:
        made = g.add(made, g.reshape(bias[0], (units, 1)))
        g.op("Transpose", made, shape=(rows, units), output=y, perm=[1, 0])
        return
    made = g.reshape(made, (units, 1, rows))  # onnxruntime would turn a product and its transposition back
    turned = g.op("Transpose", made, shape=(1, rows, units), perm=[1, 2, 0])
    g.op("Reshape", turned, g.ints([-1, units]), shape=(rows, units), output=y)
