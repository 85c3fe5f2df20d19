"""Matrix products."""

from __future__ import annotations

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import multiply
from edge_sdk.models.rules.table import Adjoints, Want, rule


@rule("Gemm")
def gemm(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Y = A op(B) + C, the form in which torch exports a linear layer."""
    at = n.attributes
    if at.get("transA", 0) or at.get("alpha", 1.0) != 1.0 or at.get("beta", 1.0) != 1.0:
        raise UnsupportedPattern("Gemm with alpha, beta or a transposed input", n.where, "use matmul")
    a, b = n.inputs[:2]
    turned = bool(at.get("transB", 0))
    ga = g.gemm(gy, b, tb=not turned) if want[0] else None
    gb = None
    if want[1]:
        gb = g.gemm(gy, a, ta=True) if turned else g.gemm(a, gy, ta=True)
    gc = g.unbroadcast(gy, g.shape(n.inputs[2])) if len(n.inputs) > 2 and want[2] else None
    return ga, gb, gc


@rule("MatMul")
def matmul(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """dA = dY B' and dB = A' dY, summed over broadcast axes."""
    a, b = n.inputs
    sa, sb = g.shape(a), g.shape(b)
    if len(sa) < 2 or len(sb) < 2:
        return differentiate_vector_product(g, n, gy, want)
    ga = g.unbroadcast(g.matmul(gy, g.swap_last(b)), sa) if want[0] else None
    gb = write_right_adjoint(g, a, b, gy) if want[1] else None
    return ga, gb


def write_right_adjoint(g: OnnxGraph, a: str, b: str, gy: str) -> str:
    """A' dY. If all samples share the matrix B, it is one product over all rows of the batch."""
    sa, sb, sy = g.shape(a), g.shape(b), g.shape(gy)
    if len(sb) == 2 and len(sa) > 2:
        rows = multiply(sa[:-1])
        return g.gemm(g.reshape(a, (rows, sa[-1])), g.reshape(gy, (rows, sy[-1])), ta=True)
    return g.unbroadcast(g.matmul(g.swap_last(a), gy), sb)


def differentiate_vector_product(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Products with a vector, which is treated as a matrix of one row or one column."""
    a, b = n.inputs
    sa, sb = g.shape(a), g.shape(b)
    ma = g.reshape(a, (1, *sa)) if len(sa) == 1 else a
    mb = g.reshape(b, (*sb, 1)) if len(sb) == 1 else b
    rows = (*g.shape(ma)[:-1], g.shape(mb)[-1]) if len(sb) <= 2 else (*sb[:-2], 1, sb[-1])
    gm = g.reshape(gy, rows)
    ga = g.reshape(g.unbroadcast(g.matmul(gm, g.swap_last(mb)), g.shape(ma)), sa) if want[0] else None
    gb = g.reshape(g.unbroadcast(g.matmul(g.swap_last(ma), gm), g.shape(mb)), sb) if want[1] else None
    return ga, gb


@rule("Einsum")
def einsum(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Products of two operands in which no index is repeated: each adjoint is an Einsum of gy and the other operand."""
    equation = n.attributes["equation"].replace(" ", "")
    if "->" not in equation or "..." in equation or len(n.inputs) != 2:
        raise UnsupportedPattern(f"Einsum {equation!r}", n.where, "two operands and an explicit output")
    (ta, tb), ty = equation.split("->")[0].split(","), equation.split("->")[1]
    for mine, other in ((ta, tb), (tb, ta)):
        if len(set(mine)) != len(mine) or not set(mine) <= set(other) | set(ty):
            raise UnsupportedPattern(f"Einsum {equation!r} is no matrix product", n.where, "use matmul and sums")
    a, b = n.inputs
    ga = g.op("Einsum", gy, b, equation=f"{ty},{tb}->{ta}", shape=g.shape(a)) if want[0] else None
    gb = g.op("Einsum", gy, a, equation=f"{ty},{ta}->{tb}", shape=g.shape(b)) if want[1] else None
    return ga, gb
