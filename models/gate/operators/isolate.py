"""Takes single torch calls out of a module, with the nodes that were written for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from edge_sdk.models.frontend.decomposition.decompose import DECOMPOSITIONS
from edge_sdk.models.frontend.tracing.export import TRACE_BATCH, Forward, export_forward
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.frontend.tracing.marks import WRITTEN, list_differentiated
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.ir.specification.layout import lay_out_parameters

# operators without a kink: a call that is written with these alone is compared in whole networks only
LINEAR = frozenset(
    {"Add", "Cast", "Concat", "Conv", "ConvTranspose", "Expand", "Flatten", "Gemm", "Identity", "MatMul", "Mul", "Neg"}
    | {"Pad", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze"}
)
# functions that only move, copy or drop values, or (batch_norm) have no kink; the exporter writes them as others
MOVES = frozenset(
    {
        "alias",
        "batch_norm",
        "chunk",
        "clone",
        "contiguous",
        "detach_",
        "dropout",
        "expand",
        "feature_dropout",
        "flatten",
        "getitem",
    }
    | {"lift_fresh_copy", "movedim", "permute", "reshape", "select", "split", "squeeze", "stack", "to", "transpose"}
    | {"unbind", "unflatten", "unsqueeze", "view", "zeros", "zeros_like", "ones_like", "arange", "full", "slice"}
)
DTYPES = {torch.bool: "bool", torch.int64: "int64", torch.int32: "int32"}
Node = torch.fx.Node


@dataclass
class IsolatedCall:
    """One call of a torch function, and the nodes that were written for it.

    Attributes:
        node: the call. names: tensor argument in the program -> its name in the graph.
        floats, integers: these names without constants; running statistics are among the latter.
        outputs: position of an output -> its name.
        graph: the nodes alone; its inputs are the arguments, and whatever only gives them a shape.
        untrained: those of `floats` that no parameter changes, such as the data: nobody reads their gradient.
    """

    node: Node
    names: dict[str, str]
    floats: list[str]
    integers: list[str]
    outputs: dict[int, str]
    graph: OnnxGraph
    untrained: frozenset[str] = frozenset()

    @property
    def trained(self) -> list[str]:
        """The float arguments whose gradient is read."""
        return [k for k in self.floats if k not in self.untrained]


def list_trained(program: torch.export.ExportedProgram, names: Sequence[str]) -> set[str]:
    """The values of a program that its parameters change, and whose gradient goes to them.

    Args:
        names: of the inputs in the graph, in the program's order; those of parameters begin with "p.".
    """
    given = zip(program.graph_signature.user_inputs, names, strict=True)
    return list_differentiated(program, [str(value) for value, name in given if name.startswith("p.")])


def isolate(g: OnnxGraph, names: Mapping[str, str], node: Node, trained: Collection[str]) -> IsolatedCall | None:
    """The call with its nodes; None if it is no call of tensors to tensors, has no kink, or nothing trained before it.

    Args:
        names: of a value in the program -> in the graph. trained: values of the program that parameters change.
    """
    if not is_compared(node, trained):
        return None
    outputs = {k: names.get(v, v) for k, v in list_outputs(node).items() if names.get(v, v) in g.makers}
    tensors = [a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor) and not is_constant(a)]
    own = {a.name: names.get(a.name, a.name) for a in tensors}
    given = {own[a.name]: DTYPES.get(a.meta["val"].dtype, "float") for a in tensors if own[a.name] not in g.constants}
    floats = [k for k, dtype in given.items() if dtype == "float" and not k.startswith("b.")]
    untrained = frozenset(own[a.name] for a in tensors if a.name not in trained)
    if not outputs or untrained.issuperset(floats) or any(k not in g.shapes for k in own.values()):
        return None
    part = cut_out(g, given, list(outputs.values()))
    if all(n.op in LINEAR for n in part.nodes):
        return None
    return IsolatedCall(node, own, floats, [k for k in given if k not in floats], outputs, part, untrained)


def is_compared(node: Node, trained: Collection[str]) -> bool:
    """True for a call of torch's whose gradient is read; what marks do is seen in whole networks only."""
    called = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return called and node.name in trained and node.target not in WRITTEN


def cut_out(g: OnnxGraph, given: Mapping[str, str], outputs: list[str]) -> OnnxGraph:
    """The nodes between some values and others, as a graph of its own."""
    part = g.empty_copy()
    for name, dtype in given.items():
        part.input(name, g.shape(name), dtype)
    part.nodes = [n for n in g.nodes if not set(n.outputs) & set(given)]
    part.nodes = select_needed(part, outputs)
    made = {o for n in part.nodes for o in n.outputs}
    for name in sorted({i for n in part.nodes for i in list_reads(n)} - made - set(g.constants) - set(given)):
        part.input(name, g.shape(name), g.dtypes.get(name, "float"))
    part.makers = {o: n for n in part.nodes for o in n.outputs}
    return part


def is_constant(node: Node) -> bool:
    """True for a tensor that is made of numbers alone."""
    return node.op == "call_function" and not node.all_input_nodes and isinstance(node.meta.get("val"), torch.Tensor)


def list_outputs(node: Node, any_position: bool = False) -> dict[int, str]:
    """Position -> name of each float output; with `any_position` also of those that nobody reads."""
    values = node.meta.get("val")
    if isinstance(values, torch.Tensor):
        return {0: node.name} if has_gradient(values) else {}
    if any_position and isinstance(values, (tuple, list)):
        return {k: node.name for k, v in enumerate(values) if has_gradient(v)}
    picked = {int(u.args[1]): u for u in node.users if "getitem" in str(u.target)}  # type: ignore[arg-type]
    return {k: u.name for k, u in picked.items() if has_gradient(u.meta["val"])}


def has_gradient(t: torch.Tensor) -> bool:
    """True for floats, and for complex numbers, which a graph holds as pairs of floats in a last axis."""
    return t.is_floating_point() or t.is_complex()


FIXED = "fixed_"


class CallNet(nn.Module):
    """One call as a module: tensors with a batch are its inputs, the others its parameters."""

    def __init__(self, node: Node, fixed: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.node, self.names = node, [a.name for a in node.all_input_nodes if a.name not in fixed]
        for name, value in fixed.items():  # with a prefix: a value may have the name of a method, as `to` does
            self.register_parameter(FIXED + name, nn.Parameter(value))

    def read_fixed(self) -> dict[str, torch.Tensor]:
        """Name of a value -> the parameter in its place."""
        return {k.removeprefix(FIXED): p for k, p in self.named_parameters()}

    def __deepcopy__(self, memo: dict[int, Any]) -> CallNet:
        """A copy that shares the call, which holds tensors of the tracer that cannot be copied."""
        return CallNet(self.node, {k: p.detach().clone() for k, p in self.read_fixed().items()})

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = self.read_fixed() | dict(zip(self.names, inputs, strict=True))
        args = torch.fx.node.map_arg(self.node.args, lambda n: given[n.name])
        kwargs = torch.fx.node.map_arg(self.node.kwargs, lambda n: given[n.name])
        made = self.node.target(*args, **kwargs)  # type: ignore[operator]
        first: torch.Tensor = made[0] if isinstance(made, (tuple, list)) else made
        return first


def list_rewritten(forward: Forward, seen: set[str]) -> Iterator[Node]:
    """The distinct calls of the module that are no longer in the program that was written."""
    if forward.traced is None or forward.program is None:
        return
    kept = {n.target for n in forward.program.graph.nodes}
    kept_names = {t._opname for t in kept if isinstance(t, torch._ops.OpOverload)}
    for node in forward.traced.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._opname
        # relu_ is written as relu, which is compared in its place
        there = node.target in kept or (name.endswith("_") and name[:-1] in kept_names)
        key = describe_rewritten(node)
        moves = not MOVES.isdisjoint((name, name.removesuffix("_")))  # the function, or that in place
        if (not there or node.target in DECOMPOSITIONS) and not moves and key not in seen:
            seen.add(key)
            yield node


def describe_rewritten(node: Node) -> str:
    """A text that is equal for calls that are written alike: values by their shapes, not by their names."""
    values = [a.meta.get("val") for a in node.all_input_nodes]
    shapes = describe_shapes(node, [v.shape for v in values if isinstance(v, torch.Tensor)])
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: "value")
    return f"{node.target} {args} {kwargs} {shapes}"


def describe_shapes(node: Node, shapes: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """The shapes of what a call reads.

    For a function that acts on each element alone they say only which sizes are equal, and which are 1 or the batch: it
    is written alike for all shapes that are broadcast in the same way.
    """
    texts = [tuple(map(str, s)) for s in shapes]
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return texts
    sizes = list(dict.fromkeys(d for s in texts for d in s if d.isdecimal() and d != "1"))
    return [tuple(f"n{sizes.index(d)}" if d in sizes else d for d in s) for s in texts]


def export_again(node: Node, trained: Collection[str]) -> IsolatedCall | None:
    """The call with the nodes that are written for it alone; None if it is no call of trained floats to floats."""
    made, values = node.meta.get("val"), {a.name: a.meta.get("val") for a in node.all_input_nodes}
    first = made[0] if isinstance(made, (tuple, list)) else made
    if not is_compared(node, trained):
        return None
    if not isinstance(first, torch.Tensor) or not first.dim() or not isinstance(first.shape[0], torch.SymInt):
        return None  # its results have the batch elsewhere
    tensors = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim()}
    if (
        not any(k in trained for k in tensors)
        or len(tensors) < len(values)
        or 0 not in list_outputs(node, any_position=True)
    ):
        return None
    moving = [k for k, v in tensors.items() if isinstance(v.shape[0], torch.SymInt)]
    if any(isinstance(d, torch.SymInt) for k, v in tensors.items() if k not in moving for d in v.shape):
        return None  # the batch lies elsewhere, as in the state of a recurrence: what it is written as is compared
    fixed = {k: torch.ones(tuple(v.shape)) for k, v in tensors.items() if k not in moving}
    examples = [torch.rand(tuple(read_size(d, TRACE_BATCH) for d in tensors[k].shape)) for k in moving]
    net = CallNet(node, fixed).eval()
    if not moving or any(e.shape[0] != TRACE_BATCH for e in examples):
        return None
    slots = lay_out_parameters(net) if fixed else []  # all that the call reads may come from a batch
    # with a prefix: a value that the call is written with may have the name that its argument had in the module
    forward = export_forward(net, slots, [f"given.{k}" for k in moving], examples, dropout="off")
    g = read_forward(forward)
    names = {k: f"given.{k}" if k in moving else f"p.{FIXED}{k}" for k in tensors}
    untrained = frozenset(names[k] for k in tensors if k not in trained)
    return IsolatedCall(node, names, list(names.values()), [], {0: forward.output}, g, untrained)


def read_size(d: int | torch.SymInt, batch: int) -> int:
    """A dimension of a traced value for another batch size."""
    size = int(d.node.hint) if isinstance(d, torch.SymInt) else d
    return size // TRACE_BATCH * batch if size % TRACE_BATCH == 0 else size
