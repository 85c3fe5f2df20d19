"""Check (d) of the gate: every torch call of a module on its own, at ties, zeros, constants and bounds.

Whole networks are compared at random inputs, where an inner value is never exactly 0, at a bound, or equal to its
neighbour, and a rule may differ from torch just there. Inputs that bring a whole network to such points do not exist
in general, and where they do, the rounding of the layers before decides on which side a value falls. So each call is
taken out of the network, with the nodes that were written for it, and is given such values as its direct inputs. A call
that the exporter has rewritten as others is exported once more on its own, and compared as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch

from models.derive.reverse import write_gradient
from models.frontend.export import Forward
from models.frontend.forward import read_forward
from models.gate.gate import SEMANTIC_LIMIT
from models.gate.isolate import (
    IsolatedCall,
    export_again,
    is_constant,
    isolate,
    list_outputs,
    list_rewritten,
    read_size,
)
from models.ir.errors import ParityError, UnsupportedPattern
from models.ir.graph import OnnxGraph
from models.ir.proto import write_model
from models.ir.reference import Evaluator
from models.ir.shapes import at_batch

BATCH = 2
# functions that ONNX writes like others, with another gradient at ties or bounds
KINKED = frozenset({"hardtanh", "relu6", "clamp", "clamp_min", "clamp_max", "amax", "amin", "max", "min"})
STYLES = ("zeros", "ones", "ties", "bounds", "fractions", "huge")
POINTS = (-6.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0)


def check_calls(forward: Forward, skipped: list[str] | None = None) -> int:
    """Compare every distinct call with torch; the number of calls that were compared.

    Args:
        skipped: is given the names of calls that torch cannot differentiate alone. They are compared within the whole
            network only, at random inputs; whoever compiles is told so.

    Raises:
        ParityError: a gradient differs from torch's where torch's is finite.
    """
    if forward.program is None:
        return 0
    g, names, seen, alone = read_forward(forward), name_values(forward), set[str](), list[str]()
    refuse_merged(forward.program, g, names)
    for call in chain(
        (isolate(g, names, n) for n in forward.program.graph.nodes),
        (export_again(n) for n in list_rewritten(forward, seen)),
    ):
        if call is not None and (key := describe(call)) not in seen:
            seen.add(key)
            if not check_call(call):
                alone.append(f"{call.node.target}")
    if skipped is not None:
        skipped += dict.fromkeys(alone)
    return len(seen) - len(alone)


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
    numbers = [a for a in call.node.args if not isinstance(a, torch.fx.Node)]
    shapes = [call.graph.shape(v) for v in (*call.floats, *call.integers)]
    return f"{call.node.target} {numbers} {call.node.kwargs} {shapes} {[n.op for n in call.graph.nodes]}"


def check_call(call: IsolatedCall) -> bool:
    """Compare outputs and gradients of one call in every style; False if torch cannot differentiate it alone."""
    g, where = call.graph, call.graph.nodes[-1].where or "the module"
    seeds = {name: g.input(f"cotangent.{name}", g.shape(name)) for name in call.outputs.values()}
    adjoints = write_gradient(g, seeds, call.floats)
    wanted = {k: v for k, v in adjoints.items() if v}
    ready = Evaluator(write_model(g, [*wanted.values()], double=True)) if wanted else None
    for style in STYLES:
        feeds = draw_feeds(call, style)
        want = differentiate(call, feeds)
        if want is None:
            return False
        values = ready(feeds) if ready else {}
        for k in call.floats:
            got = values[wanted[k]] if k in wanted else np.zeros_like(want[k])
            error = compare(got, want[k])
            if not error <= SEMANTIC_LIMIT:
                kind = f"{where}: {call.node.target}"
                raise ParityError(kind, style, f"the gradient of input {call.floats.index(k)}", error, SEMANTIC_LIMIT)
    return True


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
    if "rms_norm" in str(call.node.target) and (len(args) < 4 or args[3] is None):
        args = (*(*args, None)[:3], torch.finfo(torch.float32).eps)  # torch takes that of the type
    try:
        made = call.node.target(*args, **kwargs)  # type: ignore[operator]
        outs = made if isinstance(made, (tuple, list)) else (made,)
        total = sum((outs[i] * torch.from_numpy(feeds[f"cotangent.{v}"])).sum() for i, v in call.outputs.items())
        assert isinstance(total, torch.Tensor)
        grads = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    except (RuntimeError, NotImplementedError):
        return None
    return {k: v.numpy() for k, v in zip(call.floats, grads, strict=True)}


def fill(call: IsolatedCall, tensors: Mapping[str, torch.Tensor], node: torch.fx.Node) -> Any:
    """The value of one argument: a tensor by its name, or a size, which follows the batch."""
    value = node.meta.get("val")
    if is_constant(node):
        made: torch.Tensor = node.target(*node.args, **node.kwargs)  # type: ignore[operator]
        return made.double() if made.is_floating_point() else made
    if isinstance(value, torch.Tensor):
        return tensors[call.names[node.name]]
    return read_size(value or 0, BATCH)
