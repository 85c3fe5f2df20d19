"""Dense layers of a network, as its forward graph has them: for those who train many such networks in one call.

A network of dense layers is a chain: x W^T + b, perhaps ReLU, then the next layer. Only graphs that are such a chain
and nothing else are read; of any other it is said what is in the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from edge_sdk.errors import UsageError

PLAIN_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
"""What the attributes of a dense layer's product are: x W^T + b."""
KEEP_VALUES = ("Identity", "Flatten", "Reshape")
"""Operators that give the data another form, as they stand before the first layer."""


@dataclass(frozen=True)
class DenseLayer:
    """One layer, by its places in theta.

    Attributes:
        weight: where W (outputs, inputs) begins.
        bias: where b (outputs,) begins.
        outputs, inputs: sizes.
        relu: its outputs go through a ReLU.
    """

    weight: int
    bias: int
    outputs: int
    inputs: int
    relu: bool

    @property
    def weight_span(self) -> slice:
        return slice(self.weight, self.weight + self.outputs * self.inputs)

    @property
    def bias_span(self) -> slice:
        return slice(self.bias, self.bias + self.outputs)


def read_dense_layers(predict: bytes) -> list[DenseLayer]:
    """The layers of a bundle's graph `predict`, first to last.

    Raises:
        UsageError: the graph is no chain of dense layers; says what it has.
    """
    return DenseChain(onnx.load_from_string(predict).graph).layers()


class DenseChain:
    """A graph that is read as a chain of dense layers, node by node."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.starts: dict[str, int] = {}  # value that is a part of theta -> its place
        self.sizes: dict[str, int] = {}
        self.size = 0
        self.found: list[DenseLayer] = []

    def layers(self) -> list[DenseLayer]:
        """The layers. Raises UsageError for any other graph."""
        given = [one.name for one in self.graph.input if one.name != "theta"]
        if len(given) != 1:
            raise UsageError(f"its inputs are {', '.join(given)}, a chain has one")
        value = given[0]
        for node in self.graph.node:
            if node.op_type == "Split" and node.input[0] == "theta":
                self.cut(node)
            elif node.input[0] in self.starts and node.op_type in ("Reshape", "Identity"):
                self.starts[node.output[0]] = self.starts[node.input[0]]
                self.sizes[node.output[0]] = self.sizes[node.input[0]]
            else:
                value = self.follow(node, value)
        if not self.found or self.found[-1].relu or value != self.graph.output[0].name:
            raise UsageError("its graph ends in more than a chain of dense layers")
        if sum(one.outputs * (one.inputs + 1) for one in self.found) != self.size:
            raise UsageError("it has parameters that are in no dense layer")
        return self.found

    def cut(self, node: onnx.NodeProto) -> None:
        sizes = self.constants[node.input[1]].tolist()
        starts, self.size = np.cumsum([0, *sizes[:-1]]).tolist(), sum(sizes)
        self.starts |= zip(node.output, starts, strict=True)
        self.sizes |= zip(node.output, sizes, strict=True)

    def follow(self, node: onnx.NodeProto, value: str) -> str:
        """The value behind a node that takes `value`."""
        if node.input[0] != value:
            raise UsageError(f"its graph branches at {node.op_type}")
        if node.op_type in KEEP_VALUES and not self.found:
            return str(node.output[0])
        if node.op_type == "Relu" and self.found and not self.found[-1].relu:
            last = self.found.pop()
            self.found.append(DenseLayer(last.weight, last.bias, last.outputs, last.inputs, True))
            return str(node.output[0])
        if node.op_type != "Gemm" or len(node.input) != 3 or attributes_of(node) != PLAIN_GEMM:
            raise UsageError(f"its graph has {node.op_type}, which is no part of a chain of dense layers")
        weight, bias = node.input[1:]
        if weight not in self.starts or bias not in self.starts:
            raise UsageError("a dense layer of it has weights that are computed or frozen")
        outputs = self.sizes[bias]
        inputs = self.sizes[weight] // outputs
        self.found.append(DenseLayer(self.starts[weight], self.starts[bias], outputs, inputs, False))
        return str(node.output[0])


def attributes_of(node: onnx.NodeProto) -> dict[str, float]:
    """Attributes of a product; what is not said is what ONNX says of it."""
    said = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **said}
