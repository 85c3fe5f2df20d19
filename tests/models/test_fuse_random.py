"""Random graphs of elementwise operators, products and Reshapes: both forms give the same values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import BatchDim, broadcast
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from tests.models.fused import compare, draw

B = BatchDim()
WHOLE = [(B, 4, 4), (BatchDim(4), 4), (B, 16), (B, 2, 8)]
SMALL = [(), (4,), (4, 1), (B, 1, 1), (B, 1), (16,), (8,), (BatchDim(4), 1), (2, 1)]
UNARY = ["Neg", "Abs", "Tanh", "Relu", "Sigmoid", "Sign", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Softplus"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
KINDS = [
    "unary",
    "unary",
    "binary",
    "binary",
    "binary",
    "select",
    "compare",
    "reshape",
    "matmul",
    "sum",
    "last",
    "norm",
]


def fits(a, b):
    """True if `b` can be repeated to `a`."""
    padded = (1,) * (len(a) - len(b)) + b
    return len(b) <= len(a) and all(y in (1, x) for x, y in zip(a, padded, strict=True))


class Builder:
    """A graph that grows by one node at a time, each as the draw says."""

    def __init__(self, data):
        self.g, self.data = OnnxGraph(), data
        self.values = [self.g.input(f"x{i}", shape) for i, shape in enumerate(WHOLE)]
        self.values += [self.g.input(f"s{i}", shape) for i, shape in enumerate(SMALL)]
        self.values += [self.g.scalar(x) for x in (0.0, 0.5, -2.0)]

    def choose(self, values):
        return self.data.draw(st.sampled_from(values))

    def other(self, x):
        return self.choose([v for v in self.values if fits(self.g.shape(x), self.g.shape(v))])

    def add(self):
        g, kind = self.g, self.choose(KINDS)
        x = self.choose([v for v in self.values if v not in g.constants])
        shape = g.shape(x)
        if kind == "unary":
            op = self.choose(UNARY)
            made = g.unary(op, x, **({"alpha": 0.25} if op == "LeakyRelu" else {}))
        elif kind == "binary":
            pair = [x, self.other(x)]
            made = g.op(self.choose(BINARY), *self.data.draw(st.permutations(pair)), shape=shape)
        elif kind == "select":
            condition = g.binary(self.choose(["Greater", "LessOrEqual", "Equal"]), x, self.other(x))
            made = g.select(condition, x, self.other(x))
        elif kind == "compare":
            made = g.compare("Less", x, self.other(x))
        elif kind == "reshape":
            targets = [s for s in WHOLE if s != shape] if shape in WHOLE else [shape]
            made = g.reshape(x, self.choose(targets))
        elif kind == "matmul":
            square = g.reshape(x, (B, 4, 4)) if shape in WHOLE else ""
            made = g.unary("Tanh", g.reshape(g.matmul(square, square), shape)) if square else x
        elif kind == "last":
            axes = list(range(self.data.draw(st.integers(1, len(shape) - 1)), len(shape))) if len(shape) > 1 else []
            made = g.mean(x, axes, keep=self.data.draw(st.booleans()))
        elif kind == "norm" and len(shape) > 1 and isinstance(shape[1], int):
            vectors = [
                g.constant(np.full(shape[1], c)) for c in self.choose([(1, 0, 0, 1), (2, 1, 0, 3), (1, 0, 4, 1)])
            ]
            made = g.op("BatchNormalization", x, *vectors, epsilon=0.0, shape=shape)
        else:
            made = g.sum(x, [len(shape) - 1], keep=True) if shape in WHOLE else x
        assert broadcast(g.shape(made), ()) == g.shape(made)
        self.values.append(made)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_both_forms_give_the_same_values(data):
    builder = Builder(data)
    for _ in range(data.draw(st.integers(3, 25))):
        builder.add()
    g, made = builder.g, [v for v in builder.values if v in builder.g.makers]
    kept = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True)) if made else []
    if not kept:
        return
    target = Target(g, kept)
    fused = fuse_elementwise(target)
    if fused is not None:
        compare(target, fused, draw(g, 2), limit=1e-9)
        assert fuse_elementwise(target).model().SerializeToString() == fused.model().SerializeToString()
