"""A graph that makes the steps of SGD of many clients in one call, for networks that are a chain of dense layers.

The first layer of such a network has nearly all of its parameters, and its input does not change. A step of SGD changes
its weights by a product of few rows, so they need not be written in each step:

    W_k = keep^k W_0 - D_k^T X + (1 + keep + ... + keep^(k-1)) P,     D_(k+1) = keep D_k + eta G_k

X (N, d) are a client's samples, P its push, and G_k (N, h) the gradients at the layer's outputs, each in the row of its
sample. What the layer gives in a step then needs two products that are made once, X W_0^T and X X^T; the latter does
not depend on the model, and who calls the graph keeps it. The weights are written once, at the end. The other layers
are written in each step, those of all clients by one operator. The result differs from that of single steps by
rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_sdk.models.derive.dense import DenseLayer
from edge_sdk.models.derive.epoch import BASE, DAMP, PUSH
from edge_sdk.models.ir.proto import IR_VERSION

OPSET = 17
Nodes = list[onnx.NodeProto]
Shape = list[str | int | None]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def write_dense_steps(layers: Sequence[DenseLayer], terms: Collection[str] = ()) -> bytes:
    """The graph of S steps v <- keep v - eta gradient(base + v) + push of C clients with N samples each.

    Inputs: `start` (C, n); `x` (C, N, d), `gram` (C, N, N) = x x^T, `targets` (C, N, K), shares of classes; `order`
    int64 (S, C, B, 2), client and row of each sample of each step, and `weights` (S, C, B, 1); `eta` (C, 1, 1). By
    `terms` also DAMP: `keep` (C, 1, 1) and `kept`, its S-th power; PUSH: `push` (C, n) and `pushed` (C, 1, 1), the
    sum of keep^k for k < S; BASE: `base` (C, n).
    Outputs: `end` (C, n), `losses` (S, C).
    """
    return DenseStepsWriter(layers, frozenset(terms)).write()


class DenseStepsWriter:
    """What writes the graph: the body, which is one step, and what comes before and behind it."""

    def __init__(self, layers: Sequence[DenseLayer], terms: frozenset[str]) -> None:
        self.layers, self.terms = layers, terms
        self.constants: dict[str, onnx.TensorProto] = {}
        spans = [(f"w{k}", layer.weight_span, (layer.outputs, layer.inputs)) for k, layer in enumerate(layers)]
        spans += [(f"b{k}", layer.bias_span, (1, layer.outputs)) for k, layer in enumerate(layers)]
        self.parts = sorted(spans, key=lambda one: one[1].start)
        self.written = [name for name, _, _ in self.parts if name != "w0"]
        self.carried = [*self.written, "d", *(["z"] if terms & {DAMP, PUSH} else [])]

    def write(self) -> bytes:
        size, value = self.parts[-1][1].stop, helper.make_tensor_value_info
        first, last = self.layers[0], self.layers[-1]
        one: Shape = ["C", 1, 1]
        vectors: Shape = ["C", size]
        given = [
            value("start", FLOAT, vectors),
            value("x", FLOAT, ["C", "N", first.inputs]),
            value("gram", FLOAT, ["C", "N", "N"]),
            value("targets", FLOAT, ["C", "N", last.outputs]),
            value("order", INT64, ["S", "C", "B", 2]),
            value("weights", FLOAT, ["S", "C", "B", 1]),
            value("eta", FLOAT, one),
            *([value(name, FLOAT, one) for name in ("keep", "kept")] if DAMP in self.terms else []),
            *([value(PUSH, FLOAT, vectors), value("pushed", FLOAT, one)] if PUSH in self.terms else []),
            *([value(BASE, FLOAT, vectors)] if BASE in self.terms else []),
        ]
        nodes = self.before()
        begun, ended = [f"start.{n}" for n in self.carried], [f"end.{n}" for n in self.carried]
        scan = helper.make_node(
            "Scan", [*begun, "order", "weights"], [*ended, "losses"], body=self.step(), num_scan_inputs=2
        )
        nodes += [scan, *self.behind()]
        made = [value("end", FLOAT, vectors), value("losses", FLOAT, ["S", "C"])]
        graph = helper.make_graph(nodes, "dense steps", given, made, initializer=list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="auscult")
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))

    def before(self) -> Nodes:
        """Cuts all vectors into parts, and makes what the first layer gives for all samples."""
        vectors = [name for name in ("start", BASE, PUSH) if name == "start" or name in self.terms]
        nodes = [node for name in vectors for node in self.cut(name)]
        for name in vectors:
            nodes += self.product("x", f"{name}.w0", f"{name}.z")
        shape = helper.make_node("Shape", ["start.z"], ["shape of z"])
        return [*nodes, shape, helper.make_node("ConstantOfShape", ["shape of z"], ["start.d"])]

    def cut(self, vector: str) -> Nodes:
        sizes = self.constant("sizes", [span.stop - span.start for _, span, _ in self.parts])
        flat = [f"{vector}.{name}.flat" for name, _, _ in self.parts]
        nodes = [helper.make_node("Split", [vector, sizes], flat, axis=1)]
        for name, _, shape in self.parts:
            to = self.constant(f"shape of {name}", [-1, *shape])
            nodes.append(helper.make_node("Reshape", [f"{vector}.{name}.flat", to], [f"{vector}.{name}"]))
        return nodes

    def product(self, left: str, weights: str, out: str) -> Nodes:
        """left W^T."""
        turned = f"{out}.turned"
        return [
            helper.make_node("Transpose", [weights], [turned], perm=[0, 2, 1]),
            helper.make_node("MatMul", [left, turned], [out]),
        ]

    def step(self) -> onnx.GraphProto:
        """The body of the Scan."""
        value = helper.make_tensor_value_info
        nodes = [*self.forward(), *self.loss()]
        for k in range(len(self.layers) - 1, -1, -1):
            nodes += self.backward(k)
        shapes: dict[str, Shape] = {name: ["C", *shape] for name, _, shape in self.parts}
        shapes |= {name: ["C", "N", self.layers[0].outputs] for name in ("d", "z")}
        given = [value(name, FLOAT, shapes[name]) for name in self.carried]
        given += [value("at", INT64, ["C", "B", 2]), value("weight", FLOAT, ["C", "B", 1])]
        made = [value(f"after.{name}", FLOAT, shapes[name]) for name in self.carried]
        return helper.make_graph(nodes, "step", given, [*made, value("loss", FLOAT, ["C"])])

    def forward(self) -> Nodes:
        z = "z" if "z" in self.carried else "start.z"
        nodes = [
            helper.make_node("GatherND", ["gram", "at"], ["gram.at"]),
            helper.make_node("GatherND", [z, "at"], ["z.at"]),
            helper.make_node("MatMul", ["gram.at", "d"], ["moved"]),
            helper.make_node("Sub", ["z.at", "moved"], ["out0"]),
        ]
        if BASE in self.terms:
            nodes.append(helper.make_node("GatherND", ["base.z", "at"], ["base.z.at"]))
            nodes[-2].output[0] = "out0.own"
            nodes.append(helper.make_node("Add", ["out0.own", "base.z.at"], ["out0"]))
        for k, layer in enumerate(self.layers):
            for name in [f"b{k}", *([f"w{k}"] if k else [])]:
                op, more = ("Add", [f"base.{name}"]) if BASE in self.terms else ("Identity", [])
                nodes.append(helper.make_node(op, [name, *more], [f"{name}.at"]))
            if k:
                nodes += self.product(f"act{k - 1}", f"w{k}.at", f"out{k}")
            nodes.append(helper.make_node("Add", [f"out{k}", f"b{k}.at"], [f"sum{k}"]))
            nodes.append(helper.make_node("Relu" if layer.relu else "Identity", [f"sum{k}"], [f"act{k}"]))
        return nodes

    def loss(self) -> Nodes:
        last = len(self.layers) - 1
        axes = self.constant("both", [1, 2])
        return [
            helper.make_node("GatherND", ["targets", "at"], ["wanted"]),
            helper.make_node("LogSoftmax", [f"act{last}"], ["log"], axis=2),
            helper.make_node("Mul", ["wanted", "weight"], ["weighted"]),
            helper.make_node("Mul", ["log", "weighted"], ["each"]),
            helper.make_node("ReduceSum", ["each", axes], ["minus loss"], keepdims=0),
            helper.make_node("Neg", ["minus loss"], ["loss"]),
            helper.make_node("Exp", ["log"], ["shares"]),
            helper.make_node("Sub", ["shares", "wanted"], ["apart"]),
            helper.make_node("Mul", ["apart", "weight"], [f"g{last}"]),
        ]

    def backward(self, k: int) -> Nodes:
        """The change of layer k by the gradient `gK` at its outputs, and the gradient at those of the layer below."""
        nodes = [helper.make_node("ReduceSum", [f"g{k}", self.constant("samples", [1])], [f"grad.b{k}"], keepdims=1)]
        nodes += self.change(f"b{k}", f"grad.b{k}")
        if k == 0:
            return nodes + self.change_first()
        nodes.append(helper.make_node("Transpose", [f"g{k}"], [f"g{k}.turned"], perm=[0, 2, 1]))
        nodes.append(helper.make_node("MatMul", [f"g{k}.turned", f"act{k - 1}"], [f"grad.w{k}"]))
        nodes += self.change(f"w{k}", f"grad.w{k}")
        nodes.append(helper.make_node("MatMul", [f"g{k}", f"w{k}.at"], [f"back{k}"]))
        if not self.layers[k - 1].relu:
            return [*nodes, helper.make_node("Identity", [f"back{k}"], [f"g{k - 1}"])]
        nodes.append(helper.make_node("Sign", [f"act{k - 1}"], [f"on{k}"]))
        return [*nodes, helper.make_node("Mul", [f"back{k}", f"on{k}"], [f"g{k - 1}"])]

    def change(self, name: str, gradient: str) -> Nodes:
        """`after.NAME` = keep NAME - eta gradient + push."""
        kept, moved = f"kept.{name}" if DAMP in self.terms else name, f"moved.{name}"
        nodes = [helper.make_node("Mul", [name, "keep"], [kept])] if DAMP in self.terms else []
        nodes.append(helper.make_node("Mul", [gradient, "eta"], [f"change.{name}"]))
        out = moved if PUSH in self.terms else f"after.{name}"
        nodes.append(helper.make_node("Sub", [kept, f"change.{name}"], [out]))
        if PUSH in self.terms:
            nodes.append(helper.make_node("Add", [moved, f"push.{name}"], [f"after.{name}"]))
        return nodes

    def change_first(self) -> Nodes:
        """What the first layer is to be moved by, and what it gives without that."""
        kept = "kept.d" if DAMP in self.terms else "d"
        nodes = [helper.make_node("Mul", ["d", "keep"], [kept])] if DAMP in self.terms else []
        nodes.append(helper.make_node("Mul", ["g0", "eta"], ["change.d"]))
        nodes.append(helper.make_node("ScatterND", [kept, "at", "change.d"], ["after.d"], reduction="add"))
        if "z" not in self.carried:
            return nodes
        kept = "kept.z" if DAMP in self.terms else "z"
        nodes += [helper.make_node("Mul", ["z", "keep"], [kept])] if DAMP in self.terms else []
        op, more = ("Add", ["push.z"]) if PUSH in self.terms else ("Identity", [])
        return [*nodes, helper.make_node(op, [kept, *more], ["after.z"])]

    def behind(self) -> Nodes:
        """The first layer's weights, and all parts as one vector for each client."""
        kept, moved = "kept.w0" if DAMP in self.terms else "start.w0", "end.w0.own"
        nodes = [helper.make_node("Mul", ["start.w0", "kept"], [kept])] if DAMP in self.terms else []
        nodes += [
            helper.make_node("Transpose", ["end.d"], ["end.d.turned"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["end.d.turned", "x"], ["moved.w0"]),
            helper.make_node("Sub", [kept, "moved.w0"], [moved if PUSH in self.terms else "end.w0"]),
        ]
        if PUSH in self.terms:
            nodes.append(helper.make_node("Mul", ["push.w0", "pushed"], ["pushed.w0"]))
            nodes.append(helper.make_node("Add", [moved, "pushed.w0"], ["end.w0"]))
        rows = self.constant("rows", [0, -1])
        flat = [f"end.{name}.flat" for name, _, _ in self.parts]
        nodes += [helper.make_node("Reshape", [f"end.{name}", rows], [f"end.{name}.flat"]) for name, _, _ in self.parts]
        return [*nodes, helper.make_node("Concat", flat, ["end"], axis=1)]

    def constant(self, name: str, values: Sequence[int]) -> str:
        self.constants[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name
