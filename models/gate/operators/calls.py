"""Check (d) of the gate: every torch call of a module on its own, at ties, zeros, constants and bounds.

Whole networks are compared at random inputs, where an inner value is never exactly 0, at a bound, or equal to its
neighbour, and a rule may differ from torch just there. Inputs that bring a whole network to such points do not exist
in general, and where they do, the rounding of the layers before decides on which side a value falls. So each call is
taken out of the network, with the nodes that were written for it, and is given such values as its direct inputs. A call
that the exporter has rewritten as others is exported once more on its own, and compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch

from edge_sdk.models.derive.reverse import write_gradient
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.gate.operators.digits import check_digits
from edge_sdk.models.gate.operators.isolate import (
    IsolatedCall,
    describe_shapes,
    export_again,
    is_constant,
    isolate,
    list_outputs,
    list_rewritten,
    list_trained,
    read_size,
)
from edge_sdk.models.gate.references.as_on_devices import STABLE, StableOrder
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern
from edge_sdk.models.ir.evaluation.reference import Evaluator
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.shapes import at_batch

BATCH = 2
# functions of torch's innermost set, which have no derivative there, and the same functions where they have one; and
# functions that leave open which of equal elements they choose, with stable choices
SAME: dict[Any, Callable[..., Any]] = {
    torch.ops.prims.sum.default: lambda x, dims, **rest: torch.sum(x, dims),
    torch.ops.prims.div.default: torch.div,
    torch.ops.prims.sub.default: torch.sub,
    torch.ops.prims.mul.default: torch.mul,
    torch.ops.prims.var.default: lambda x, dims, correction=1.0, **rest: torch.var(x, dims, correction=correction),
    **STABLE,
}
# functions that ONNX writes like others, with another gradient at ties or bounds
KINKED = frozenset({"hardtanh", "relu6", "clamp", "clamp_min", "clamp_max", "amax", "amin", "max", "min"})
STYLES = ("zeros", "ones", "ties", "bounds", "fractions", "huge")
POINTS = (-6.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0)


def check_calls(forward: Forward) -> int:
    """Compare every distinct call with torch; the number of calls that were compared.

    Raises:
        ParityError: a gradient differs from torch's where torch's is finite.
        UnsupportedPattern: torch cannot differentiate a call alone.
    """
    if forward.program is None:
        return 0
    g, names, seen = read_forward(forward), name_values(forward), set[str]()
    refuse_merged(forward.program, g, names)
    inputs = [i.name for i in forward.model.graph.input]
    trained = list_trained(forward.program, inputs)
    before = list_trained(forward.traced, inputs) if forward.traced else set()
    for call in chain(
        (isolate(g, names, n, trained) for n in forward.program.graph.nodes),
        (export_again(n, before) for n in list_rewritten(forward, seen)),
    ):
        if call is not None and (key := describe(call)) not in seen:
            seen.add(key)
            check_call(call)
            check_digits(call)
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
    numbers = [a for a in call.node.args if not isinstance(a, torch.fx.Node)]
    shapes = describe_shapes(call.node, [call.graph.shape(v) for v in (*call.floats, *call.integers)])
    read = [k in call.untrained for k in call.floats]
    return f"{call.node.target} {numbers} {call.node.kwargs} {shapes} {read} {[n.op for n in call.graph.nodes]}"


def check_call(call: IsolatedCall) -> None:
    """Compare the gradients of one call in every style; raises as `check_calls` does."""
    g, where = call.graph, call.graph.nodes[-1].where or "the module"
    seeds = {name: g.input(f"cotangent.{name}", g.shape(name)) for name in call.outputs.values()}
    adjoints = write_gradient(g, seeds, call.trained)
    wanted = {k: v for k, v in adjoints.items() if v}
    ready = Evaluator(write_model(g, [*wanted.values()], double=True)) if wanted else None
    for style in STYLES:
        feeds = draw_feeds(call, style)
        want = differentiate(call, feeds)
        values = ready(feeds) if ready else {}
        for k in call.trained:
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
            feeds[name] = np.asarray(draw_integers(call, name, shape, rng))
        elif name in call.floats:
            feeds[name] = np.asarray(draw_floats(style, points, shape, rng))
        else:
            feeds[name] = np.asarray(rng.integers(1, 9, shape) / 4)
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


def differentiate(call: IsolatedCall, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Torch's gradients in float64; zeros where the result does not depend on the inputs in a differentiable way.

    Raises:
        UnsupportedPattern: torch cannot run or differentiate this call alone, so nobody knows what is right.
    """
    tensors = {k: torch.from_numpy(np.array(feeds[k])) for k in (*call.floats, *call.integers)}
    leaves = [tensors[k].requires_grad_() for k in call.floats]
    constants = {k: torch.from_numpy(np.array(v)) for k, v in call.graph.constants.items()}
    # a function that writes into its argument, such as relu_, cannot be given a leaf
    given = {**constants, **{k: v.clone() for k, v in tensors.items()}}
    args = torch.fx.node.map_arg(call.node.args, lambda n: fill(call, given, n))
    kwargs = torch.fx.node.map_arg(call.node.kwargs, lambda n: fill(call, given, n))
    if "rms_norm" in str(call.node.target) and (len(args) < 4 or args[3] is None):
        args = (*(*args, None)[:3], torch.finfo(torch.float32).eps)  # torch takes that of the type
    try:
        target: Any = call.node.target
        with StableOrder():
            made = SAME.get(target, target)(*args, **kwargs)
        outs = made if isinstance(made, (tuple, list)) else (made,)
        pairs = {i: torch.view_as_real(o) if o.is_complex() else o for i, o in enumerate(outs) if i in call.outputs}
        total = sum((pairs[i] * torch.from_numpy(feeds[f"cotangent.{v}"])).sum() for i, v in call.outputs.items())
        assert isinstance(total, torch.Tensor)
        if not total.requires_grad:
            return {k: np.zeros(feeds[k].shape) for k in call.floats}
        grads = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        what = f"{call.node.target}, which torch does not differentiate alone ({reason})"
        raise UnsupportedPattern(
            what, call.graph.nodes[-1].where, "it cannot be compared; use other functions"
        ) from error
    return {k: v.detach().numpy() for k, v in zip(call.floats, grads, strict=True)}


def fill(call: IsolatedCall, tensors: Mapping[str, torch.Tensor], node: torch.fx.Node) -> Any:
    """The value of one argument: a tensor by its name, or a size, which follows the batch."""
    value = node.meta.get("val")
    if is_constant(node) and node.name not in call.names:  # of a call that is exported alone it is an input
        made: torch.Tensor = node.target(*node.args, **node.kwargs)  # type: ignore[operator]
        return made.double() if made.is_floating_point() else made
    if isinstance(value, torch.Tensor):
        given = tensors[call.names[node.name]]
        return torch.view_as_complex(given) if value.is_complex() else given
    return read_size(value or 0, BATCH)
