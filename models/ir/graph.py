"""The graph that the rules write into: nodes, constants, and the shape of every value.

Floats are kept in float64 here: `proto.py` writes the same graph in float32 for devices and in float64 for the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_sdk.models.ir.errors import UnknownShape, UnsupportedPattern
from edge_sdk.models.ir.nodes import OnnxNode, write_key
from edge_sdk.models.ir.shapes import BatchDim, Dim, Shape, add_up, as_numbers, broadcast, multiply, reshape_sizes

Backward = Callable[..., Sequence[str | None]]


@dataclass(frozen=True)
class CustomGradient:
    """The backward pass of several forward nodes that are differentiated as one.

    Attributes:
        inputs: values that the nodes read. backward: (graph, the adjoint of each output of the last node, or "" where
            nobody reads that output, which inputs are wanted) -> adjoints of the inputs. steep: these may be infinite.
    """

    inputs: tuple[str, ...]
    backward: Backward
    steep: bool = False


class OnnxGraph:
    """Nodes in order of execution. Equal operators on equal inputs are written once.

    Attributes:
        constants: name -> array. shapes: value -> its shape. dtypes: graph input -> "float", "int64", ...
        custom_gradients: output of a group of nodes -> how that group is differentiated.
        makers: value -> the node that makes it, for values that were written here.
        where: path of the torch module that new nodes are written for.
        steep: values whose adjoint may be infinite; see derive/steep.py.
        native: nodes of the native step, which make what other nodes make here; see rules/windows/native.py.
    """

    def __init__(self) -> None:
        self.nodes: list[OnnxNode] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {}
        self.dtypes: dict[str, str] = {}
        self.inputs: list[str] = []
        self.custom_gradients: dict[str, CustomGradient] = {}
        self.makers: dict[str, OnnxNode] = {}
        self.where = ""
        self.steep: set[str] = set()
        self.native: list[tuple[OnnxNode, ...]] = []
        self._count = 0
        self._known: dict[Any, Any] = {}

    # -- values --------------------------------------------------------------------------------------------------

    def new_name(self, stem: str) -> str:
        """A name that neither the exporter nor this graph has used."""
        self._count += 1
        return f"ad.{stem}.{self._count}"

    def input(self, name: str, shape: Shape, dtype: str = "float") -> str:
        """Declare an input of the graph, once; its name."""
        if name not in self.inputs:
            self.inputs.append(name)
        self.shapes[name], self.dtypes[name] = shape, dtype
        return name

    def shape(self, name: str) -> Shape:
        """The shape of a value.

        Raises:
            UnknownShape: nobody has declared or observed it.
        """
        if name not in self.shapes:
            raise UnknownShape(f"{self.where or 'the graph'}: the shape of {name} is not known")
        return self.shapes[name]

    def numbers(self, name: str) -> tuple[int, ...]:
        """The shape of a value that does not depend on the batch.

        Raises:
            UnsupportedPattern: it does.
        """
        return as_numbers(self.shape(name), f"the shape of {name}", self.where)

    def sample_shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value without its first axis, which is usually the batch."""
        return as_numbers(self.shape(name)[1:], f"the shape of {name}", self.where)

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def constant(self, array: Any) -> str:
        """The name of a constant; equal ones are stored once."""
        array = np.asarray(array)
        if array.dtype == np.float32:
            array = array.astype(np.float64)
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = self.new_name("constant")
            self.constants[name], self.shapes[name] = array, array.shape
            self._known[key] = name
        return str(self._known[key])

    def scalar(self, x: float) -> str:
        """The name of a constant without axes."""
        return self.constant(np.float64(x))

    def ints(self, values: Iterable[int]) -> str:
        """The name of a constant vector of int64."""
        return self.constant(np.asarray(list(values), np.int64))

    def empty_copy(self) -> OnnxGraph:
        """A graph without nodes and inputs that knows the same constants and shapes, and no name twice."""
        other = OnnxGraph()
        other.constants, other.shapes, other._count = dict(self.constants), dict(self.shapes), self._count
        return other

    # -- nodes ---------------------------------------------------------------------------------------------------

    def take_nodes(self) -> list[OnnxNode]:
        """Remove and return all nodes, for a pass that appends them again one by one.

        What `op` remembers of them is forgotten too: it must not find a node that is no longer in the graph.
        """
        nodes, self.nodes, self.makers = self.nodes, [], {}
        self._known = {k: v for k, v in self._known.items() if k[0] == "constant"}
        return nodes

    def put_back(self, n: OnnxNode) -> None:
        """Append a node that was taken, as it is."""
        self.nodes.append(n)
        self.makers.update(dict.fromkeys(n.outputs, n))

    def op(
        self, kind: str, *inputs: str, shape: Shape | None = None, output: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """Append an operator with one output; the name of that output."""
        return self.ops(
            kind, *inputs, shapes=[shape], outputs=[output] if output else None, domain=domain, **attributes
        )[0]

    def ops(
        self,
        kind: str,
        *inputs: str,
        shapes: Sequence[Shape | None],
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append an operator with several outputs, or find the equal one that is there."""
        key = (kind, domain, inputs, len(shapes), tuple((k, write_key(v)) for k, v in sorted(attributes.items())))
        if outputs is None and key in self._known:
            return tuple(self._known[key])
        names = tuple(outputs or [self.new_name(kind.lower()) for _ in shapes])
        self.nodes.append(OnnxNode(kind, list(inputs), list(names), attributes, domain, self.where))
        self.makers.update(dict.fromkeys(names, self.nodes[-1]))
        self.shapes.update({n: tuple(s) for n, s in zip(names, shapes, strict=True) if s is not None})
        self._known[key] = names
        return names

    def binary(self, kind: str, a: str, b: str) -> str:
        """An operator on two values that are broadcast to each other."""
        return self.op(kind, a, b, shape=broadcast(self.shape(a), self.shape(b)))

    def unary(self, kind: str, a: str, **attributes: Any) -> str:
        """An operator on one value that keeps its shape."""
        return self.op(kind, a, shape=self.shape(a), **attributes)

    def add(self, a: str, b: str) -> str:
        return self.binary("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.binary("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.binary("Mul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.binary("Div", a, b)

    def neg(self, a: str) -> str:
        return self.unary("Neg", a)

    def scale(self, a: str, factor: float) -> str:
        """`a` times a number."""
        return a if factor == 1 else self.mul(a, self.scalar(factor))

    def as_float(self, mask: str) -> str:
        """Booleans as 0 and 1."""
        return self.unary("Cast", mask, to="float")

    def compare(self, kind: str, a: str, b: str) -> str:
        """1 where the comparison holds, else 0."""
        return self.as_float(self.binary(kind, a, b))

    def select(self, condition: str, a: str, b: str) -> str:
        """`a` where the condition holds, else `b`."""
        shape = broadcast(broadcast(self.shape(a), self.shape(b)), self.shape(condition))
        return self.op("Where", condition, a, b, shape=shape)

    # -- shapes --------------------------------------------------------------------------------------------------

    def reshape(self, x: str, shape: Sequence[Dim]) -> str:
        """`x` in another shape, of which one dimension at most depends on the batch."""
        shape = tuple(shape)
        if self.shapes.get(x) == shape:
            return x
        if sum(isinstance(d, BatchDim) for d in shape) > 1:
            raise UnsupportedPattern(f"reshape to {shape}: the batch in two dimensions", self.where)
        return self.op("Reshape", x, self.ints(reshape_sizes(shape)), shape=shape)

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Permute axes; two transpositions in a row become one, or none."""
        before = self.makers.get(x)
        if before is not None and before.op == "Transpose" and "perm" in before.attributes:
            x, perm = before.inputs[0], [before.attributes["perm"][p] for p in perm]
        if list(perm) == list(range(len(perm))):
            return x
        shape = self.shape(x)
        return self.op("Transpose", x, perm=list(perm), shape=tuple(shape[p] for p in perm))

    def swap_last(self, x: str) -> str:
        """The matrix transpose of the last two axes."""
        r = self.rank(x)
        return self.transpose(x, [*range(r - 2), r - 1, r - 2])

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """The positions start, start + step, ... before end of one axis."""
        return self.slices(x, [axis], [start], [end], [step])

    def slices(self, x: str, axes: Sequence[int], start: Sequence[int], end: Sequence[int], step: Sequence[int]) -> str:
        """The positions start, start + step, ... before end of several axes; `x` itself where that is all of it."""
        shape = list(self.shape(x))
        for a, i, j, s in zip(axes, start, end, step, strict=True):
            shape[a] = len(range(i, j, s))
        if not any(start) and tuple(shape) == self.shape(x) and all(s == 1 for s in step):
            return x
        return self.op(
            "Slice", x, self.ints(start), self.ints(end), self.ints(axes), self.ints(step), shape=tuple(shape)
        )

    def flip(self, x: str, axes: Sequence[int]) -> str:
        """Reversed along `axes`; axes of length 1 are left alone."""
        shape = self.shape(x)
        axes = [a for a in axes if shape[a] != 1]
        if not axes:
            return x
        before_first = np.iinfo(np.int64).min + 1
        ones = [-1] * len(axes)
        args = (self.ints(ones), self.ints([before_first] * len(axes)), self.ints(axes), self.ints(ones))
        return self.op("Slice", x, *args, shape=shape)

    def pad(self, x: str, before: Sequence[int], after: Sequence[int]) -> str:
        """Zeros around; the batch axis (and any other that is not known) must have none."""
        if not any(before) and not any(after):
            return x
        shape = tuple(
            d if isinstance(d, BatchDim) else d + b + a for d, b, a in zip(self.shape(x), before, after, strict=True)
        )
        return self.op("Pad", x, self.ints([*before, *after]), shape=shape)

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """The parts one after the other along an axis."""
        if len(parts) == 1:
            return parts[0]
        shape = list(self.shape(parts[0]))
        shape[axis] = add_up(self.shape(p)[axis] for p in parts)
        return self.op("Concat", *parts, axis=axis, shape=tuple(shape))

    def expand_like(self, x: str, like: str) -> str:
        """`x` repeated to the shape of `like`, which is only known when the graph runs."""
        shape = self.shape(like)
        if self.shape(x) == shape:
            return x
        return self.op("Expand", x, self.op("Shape", like, shape=(len(shape),)), shape=shape)

    def zeros(self, shape: Shape, like: str = "") -> str:
        """Zeros; `like` has that shape, and is needed where it depends on the batch."""
        if any(isinstance(d, BatchDim) for d in shape):
            return self.op("ConstantOfShape", self.op("Shape", like, shape=(len(shape),)), shape=shape)
        return self.op("ConstantOfShape", self.ints(as_numbers(shape)), shape=shape)

    def fill(self, count: Dim, value: float, like: str) -> str:
        """A vector of `count` equal numbers.

        A length that depends on the batch is read from an input, or else from axis 0 of `like`.
        """
        if not isinstance(count, BatchDim):
            return self.constant(np.full(count, value, np.float64))
        whole = next((i for i in self.inputs if self.shapes[i][:1] == (BatchDim(),)), "")
        size = self.op("Shape", whole or like, start=0, end=1, shape=(1,))
        if whole and count.times != 1:
            size = self.op("Mul", size, self.ints([count.times]), shape=(1,))
        return self.op("ConstantOfShape", size, value=np.full(1, value), shape=(count,))

    # -- sums and products ---------------------------------------------------------------------------------------

    def sum(self, x: str, axes: Iterable[int], keep: bool = False) -> str:
        """The sum over axes.

        Over leading axes it is written as a product with ones, up to four times as fast there as ReduceSum.
        """
        shape, axes = self.shape(x), sorted(a % self.rank(x) for a in axes)
        if axes and axes == list(range(len(axes))) and len(axes) < len(shape):
            rest = shape[len(axes) :]
            rows = self.reshape(x, (multiply(shape[: len(axes)]), multiply(rest)))
            ones = self.fill(self.shape(rows)[0], 1.0, like=rows)
            summed = self.matmul(self.reshape(ones, (1, self.shape(rows)[0])), rows)
            return self.reshape(summed, (*(1 for _ in axes if keep), *rest))
        return self._reduce("ReduceSum", x, axes, keep)

    def mean(self, x: str, axes: Iterable[int], keep: bool = False) -> str:
        return self._reduce("ReduceMean", x, axes, keep)

    def _reduce(self, kind: str, x: str, axes: Iterable[int], keep: bool) -> str:
        shape = self.shape(x)
        axes = sorted(a % len(shape) for a in axes)
        if not axes:
            return x
        kept = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
        return self.op(kind, x, self.ints(axes), keepdims=int(keep), shape=kept)

    def matmul(self, a: str, b: str) -> str:
        """The products of the matrices in the last two axes."""
        sa, sb = self.shape(a), self.shape(b)
        return self.op("MatMul", a, b, shape=(*broadcast(sa[:-2], sb[:-2]), sa[-2], sb[-1]))

    def gemm(self, a: str, b: str, ta: bool = False, tb: bool = False) -> str:
        """op(a) op(b) for two matrices."""
        sa, sb = self.shape(a), self.shape(b)
        return self.op("Gemm", a, b, transA=int(ta), transB=int(tb), shape=(sa[int(ta)], sb[1 - int(tb)]))

    def unbroadcast(self, gradient: str, shape: Shape) -> str:
        """Sum over the axes along which a value of `shape` was repeated."""
        have = self.shape(gradient)
        if have == shape:
            return gradient
        lead = len(have) - len(shape)
        axes = [*range(lead), *(lead + i for i, d in enumerate(shape) if d == 1 and have[lead + i] != 1)]
        return self.reshape(self.sum(gradient, axes), shape)
