"""Check (d) of the gate: every torch call of a module on its own, at ties, zeros, constants and bounds.

Whole networks are compared at random inputs, where an inner value is never exactly 0, at a bound, or equal to its
neighbour, and a rule may differ from torch just there. Inputs that bring a whole network to such points do not exist
in general, and where they do, the rounding of the layers before decides on which side a value falls. So each call is
taken out of the network, with the nodes that were written for it, and is given such values as its direct inputs. A call
that the exporter has rewritten as others is exported once more on its own, and compared as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from models.derive.reverse import write_gradient
from models.frontend.decompose import DECOMPOSITIONS
from models.frontend.export import TRACE_BATCH, Forward, export_forward
from models.frontend.forward import read_forward
from models.gate.gate import SEMANTIC_LIMIT
from models.ir.errors import ParityError, UnsupportedPattern
from models.ir.graph import OnnxGraph
from models.ir.layout import lay_out_parameters
from models.ir.proto import list_reads, select_needed, write_model
from models.ir.reference import Evaluator
from models.ir.shapes import at_batch

BATCH = 2
# operators without a kink: a call that is written with these alone is compared in whole networks only
LINEAR = frozenset(
    {"Add", "Cast", "Concat", "Conv", "ConvTranspose", "Expand", "Flatten", "Gemm", "Identity", "MatMul", "Mul", "Neg"}
    | {"Pad", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze"}
)
# functions that ONNX writes like others, with another gradient at ties or bounds
KINKED = frozenset({"hardtanh", "relu6", "clamp", "clamp_min", "clamp_max", "amax", "amin", "max", "min"})
STYLES = ("zeros", "ones", "ties", "bounds", "fractions", "huge")
POINTS = (-6.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0)

DTYPES = {torch.bool: "bool", torch.int64: "int64", torch.int32: "int32"}

Node = torch.fx.Node


@dataclass
class IsolatedCall:
    """One call of a torch function, and the nodes that were written for it.

    Attributes:
        node: the call. names: tensor argument in the program -> its name in the graph.
        floats, integers: these names, without constants. outputs: position of an output -> its name.
        graph: the nodes alone; its inputs are the arguments, and whatever only gives them a shape.
    """

    node: Node
    names: dict[str, str]
    floats: list[str]
    integers: list[str]
    outputs: dict[int, str]
    graph: OnnxGraph


def check_calls(forward: Forward) -> int:
    """Compare every distinct call with torch; the number of calls that were compared.

    Raises:
        ParityError: a gradient differs from torch's where torch's is finite.
    """
    if forward.program is None:
        return 0
    g, names, seen = read_forward(forward), name_values(forward), set[str]()
    refuse_merged(forward.program, g, names)
    for call in chain(
        (isolate(g, names, n) for n in forward.program.graph.nodes),
        (export_again(n) for n in list_rewritten(forward, seen)),
    ):
        if call is not None and (key := describe(call)) not in seen:
            seen.add(key)
            check_call(call)
    return len(seen)


def name_values(forward: Forward) -> dict[str, str]:
    """Name of a value in the program -> its name in the graph."""
    assert forward.program is not None
    signature = forward.program.graph_signature
    names = {str(a): i.name for a, i in zip(signature.user_inputs, forward.model.graph.input, strict=True)}
    return names | {str(a): forward.output for a in signature.user_outputs}


def refuse_merged(program: torch.export.ExportedProgram, g: OnnxGraph, names: Mapping[str, str]) -> None:
    """Refuse two functions of one value that the exporter has merged, although they differ at ties or bounds.

    Raises:
        UnsupportedPattern
    """
    calls = [n for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    kinked = [n for n in calls if n.target._opname in KINKED]
    there = {n.name: any(names.get(o, o) in g.makers for o in list_outputs(n).values()) for n in kinked}
    for lost in (n for n in kinked if list_outputs(n) and not there[n.name]):
        for other in (n for n in kinked if there[n.name] and n.all_input_nodes == lost.all_input_nodes):
            if other.target != lost.target:
                both = f"{lost.target._opname} and {other.target._opname} of the same value"
                raise UnsupportedPattern(both, "", "use one of them, they differ where values are equal")


def describe(call: IsolatedCall) -> str:
    """A text that is equal for calls that need to be compared once only."""
    numbers = [a for a in call.node.args if not isinstance(a, Node)]
    shapes = [call.graph.shape(v) for v in (*call.floats, *call.integers)]
    return f"{call.node.target} {numbers} {call.node.kwargs} {shapes} {[n.op for n in call.graph.nodes]}"


# -- taking a call out of the network --------------------------------------------------------------------------------


def isolate(g: OnnxGraph, names: Mapping[str, str], node: Node) -> IsolatedCall | None:
    """The call with its nodes; None if it is no call of tensors to tensors, or has no kink."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    outputs = {k: names.get(v, v) for k, v in list_outputs(node).items() if names.get(v, v) in g.makers}
    tensors = [a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
    own = {a.name: names.get(a.name, a.name) for a in tensors}
    given = {own[a.name]: DTYPES.get(a.meta["val"].dtype, "float") for a in tensors if own[a.name] not in g.constants}
    floats = [k for k, dtype in given.items() if dtype == "float"]
    if not outputs or not floats or any(k not in g.shapes for k in own.values()):
        return None
    part = cut_out(g, given, list(outputs.values()))
    if all(n.op in LINEAR for n in part.nodes):
        return None
    return IsolatedCall(node, own, floats, [k for k in given if k not in floats], outputs, part)


def list_outputs(node: Node, any_position: bool = False) -> dict[int, str]:
    """Position -> name of each float output; with `any_position` also of those that nobody reads."""
    values = node.meta.get("val")
    if isinstance(values, torch.Tensor):
        return {0: node.name} if values.is_floating_point() else {}
    if any_position and isinstance(values, (tuple, list)):
        return {k: node.name for k, v in enumerate(values) if v.is_floating_point()}
    picked = {int(u.args[1]): u for u in node.users if "getitem" in str(u.target)}  # type: ignore[arg-type]
    return {k: u.name for k, u in picked.items() if u.meta["val"].is_floating_point()}


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


# -- exporting a call once more --------------------------------------------------------------------------------------

# functions that only move, copy or drop values; the exporter writes them under other names
MOVES = frozenset(
    {"alias", "chunk", "clone", "contiguous", "detach_", "dropout", "expand", "feature_dropout", "flatten", "getitem"}
    | {"lift_fresh_copy", "movedim", "permute", "reshape", "select", "split", "squeeze", "stack", "to", "transpose"}
    | {"unbind", "unflatten", "unsqueeze", "view", "zeros", "zeros_like", "ones_like", "arange", "full", "slice"}
)


class CallNet(nn.Module):
    """One call as a module: tensors with a batch are its inputs, the others its parameters."""

    def __init__(self, node: Node, fixed: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.node, self.names = node, [a.name for a in node.all_input_nodes if a.name not in fixed]
        for name, value in fixed.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = dict(self.named_parameters()) | dict(zip(self.names, inputs, strict=True))
        args = torch.fx.node.map_arg(self.node.args, lambda n: given[n.name])
        kwargs = torch.fx.node.map_arg(self.node.kwargs, lambda n: given[n.name])
        made = self.node.target(*args, **kwargs)  # type: ignore[operator]
        first: torch.Tensor = made[0] if isinstance(made, (tuple, list)) else made
        return first


def list_rewritten(forward: Forward, seen: set[str]) -> Iterator[Node]:
    """The distinct calls of the module that are no longer in the program that was written."""
    if forward.traced is None or forward.program is None:
        return
    kept = {n.name for n in forward.program.graph.nodes}
    spelled = {n.name for n in forward.traced.graph.nodes if n.target in DECOMPOSITIONS}
    for node in forward.traced.graph.nodes:
        lost = node.op == "call_function" and (node.name not in kept or node.name in spelled)
        shapes = [a.meta["val"].shape for a in node.all_input_nodes if hasattr(a.meta.get("val"), "shape")]
        key = f"{node.target} {node.args} {shapes}" if lost else ""
        if lost and isinstance(node.target, torch._ops.OpOverload) and key not in seen:
            if node.target._opname not in MOVES:
                yield node
            seen.add(key)


def export_again(node: Node) -> IsolatedCall | None:
    """The call with the nodes that are written for it alone; None if it is no call of floats to floats."""
    values = {a.name: a.meta.get("val") for a in node.all_input_nodes}
    tensors = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim()}
    if not tensors or len(tensors) < len(values) or 0 not in list_outputs(node, any_position=True):
        return None
    moving = [k for k, v in tensors.items() if isinstance(v.shape[0], torch.SymInt)]
    fixed = {k: torch.ones(tuple(v.shape)) for k, v in tensors.items() if k not in moving}
    examples = [torch.rand(tuple(read_size(d, TRACE_BATCH) for d in tensors[k].shape)) for k in moving]
    net = CallNet(node, fixed).eval()
    if not moving or any(e.shape[0] != TRACE_BATCH for e in examples):
        return None
    forward = export_forward(net, lay_out_parameters(net), moving, examples)
    g = read_forward(forward)
    names = {k: k if k in moving else f"p.{k}" for k in tensors}
    return IsolatedCall(node, names, list(names.values()), [], {0: forward.output}, g)


def read_size(d: int | torch.SymInt, batch: int) -> int:
    """A dimension of a traced value for another batch size."""
    size = int(d.node.hint) if isinstance(d, torch.SymInt) else d
    return size // TRACE_BATCH * batch if size % TRACE_BATCH == 0 else size


# -- comparing it ----------------------------------------------------------------------------------------------------


def check_call(call: IsolatedCall) -> None:
    """Compare outputs and gradients of one call in every style."""
    g, where = call.graph, call.graph.nodes[-1].where or "the module"
    seeds = {name: g.input(f"cotangent.{name}", g.shape(name)) for name in call.outputs.values()}
    adjoints = write_gradient(g, seeds, call.floats)
    wanted = {k: v for k, v in adjoints.items() if v}
    ready = Evaluator(write_model(g, [*wanted.values()], double=True)) if wanted else None
    for style in STYLES:
        feeds = draw_feeds(call, style)
        want = differentiate(call, feeds)
        if want is None:
            return
        values = ready(feeds) if ready else {}
        for k in call.floats:
            got = values[wanted[k]] if k in wanted else np.zeros_like(want[k])
            error = compare(got, want[k])
            if not error <= SEMANTIC_LIMIT:
                kind = f"{where}: {call.node.target}"
                raise ParityError(kind, style, f"the gradient of input {call.floats.index(k)}", error, SEMANTIC_LIMIT)


def compare(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference where torch's gradient is finite, relative to its largest entry."""
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    difference = np.abs(np.where(finite, got, 0) - np.where(finite, want, 0)).max()
    return float(difference) / max(float(np.abs(want[finite]).max()), 1.0)


def draw_feeds(call: IsolatedCall, style: str) -> dict[str, np.ndarray]:
    """Inputs of one style, and a cotangent that tells all outputs apart."""
    g, rng = call.graph, np.random.default_rng(STYLES.index(style))
    points = [*POINTS, *list_numbers(call)]
    feeds = {}
    for name in g.inputs:
        shape = at_batch(g.shape(name), BATCH)
        if g.dtypes[name] != "float":
            feeds[name] = draw_integers(call, name, shape, rng)
        elif name in call.floats:
            feeds[name] = draw_floats(style, points, shape, rng)
        else:
            feeds[name] = rng.integers(1, 9, shape) / 4
    return feeds


def draw_floats(style: str, points: list[float], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Floats of one style; all but "fractions" are exact in every order of summation."""
    if style in ("zeros", "ones"):
        return np.full(shape, float(style == "ones"))
    if style == "huge":
        return rng.choice([-1000.0, 0.0, 1000.0], shape)
    if style == "ties":
        return rng.integers(-1, 2, shape).astype(np.float64)
    return rng.choice(points, shape) if style == "bounds" else rng.standard_normal(shape)


def draw_integers(call: IsolatedCall, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Truth values, or indices of an embedding: its first, second, last and padding row."""
    if "embedding" not in str(call.node.target):
        return rng.integers(0, 2, shape).astype(call.graph.dtypes[name])
    rows = call.graph.numbers(call.floats[0])[0]
    padding = [a % rows for a in call.node.args[2:3] if isinstance(a, int)]
    return rng.choice([0, min(1, rows - 1), rows - 1, *padding], shape)


def list_numbers(call: IsolatedCall) -> list[float]:
    """The numbers among the arguments of a call: the bounds of a clamp, a threshold."""
    plain = [a for a in (*call.node.args, *call.node.kwargs.values()) if isinstance(a, (int, float))]
    read = {i for n in call.graph.nodes for i in n.inputs}
    single = [v for k, v in call.graph.constants.items() if k in read and v.size == 1]
    numbers = [float(v) for v in [*plain, *(s.reshape(()) for s in single)]]
    return [v for v in numbers if abs(v) < 1e3]


def differentiate(call: IsolatedCall, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Torch's gradients in float64; None if torch cannot differentiate this call alone."""
    tensors = {k: torch.from_numpy(np.array(feeds[k])) for k in (*call.floats, *call.integers)}
    leaves = [tensors[k].requires_grad_() for k in call.floats]
    constants = {k: torch.from_numpy(np.array(v)) for k, v in call.graph.constants.items()}
    given = {**constants, **tensors}
    args = torch.fx.node.map_arg(call.node.args, lambda n: fill(call, given, n))
    kwargs = torch.fx.node.map_arg(call.node.kwargs, lambda n: fill(call, given, n))
    try:
        made = call.node.target(*args, **kwargs)  # type: ignore[operator]
        outs = made if isinstance(made, (tuple, list)) else (made,)
        total = sum((outs[i] * torch.from_numpy(feeds[f"cotangent.{v}"])).sum() for i, v in call.outputs.items())
        assert isinstance(total, torch.Tensor)
        grads = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    except (RuntimeError, NotImplementedError):
        return None
    return {k: v.numpy() for k, v in zip(call.floats, grads, strict=True)}


def fill(call: IsolatedCall, tensors: Mapping[str, torch.Tensor], node: Node) -> Any:
    """The value of one argument: a tensor by its name, or a size, which follows the batch."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return tensors[call.names[node.name]]
    return read_size(value or 0, BATCH)
