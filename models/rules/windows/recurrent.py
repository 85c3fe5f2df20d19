"""GRU, any number of steps, one or both directions; and what it shares with the LSTM (passes/scheduling/open_lstm.py).

The forward pass stays the runtime's fused operator. The backward pass computes the gates of all steps at once from the
saved hidden states (two matrix products), runs only dh through a Scan against time, and ends in one product per weight
matrix. Gate order and equations are those of the ONNX operator with linear_before_reset = 1, and of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.shapes import Dim, Shape, as_number, as_numbers, multiply, reshape_sizes
from edge_sdk.models.rules.table import Adjoints, Want, rule_of_all
from edge_sdk.models.rules.windows.native import describe_loop


@dataclass(frozen=True)
class Direction:
    """One direction of a GRU: names of its values and its sizes.

    Attributes:
        x: (T, B, I). w: (3 H, I). r: (3 H, H). bx, bh: (3 H,). h0: (B, H), the first hidden state.
        h, previous: (T, B, H), the hidden states after and before each step.
        backwards: True if time runs from the last step to the first.
    """

    x: str
    w: str
    r: str
    bx: str
    bh: str
    h: str
    previous: str
    h0: str
    steps: int
    batch: Dim
    inputs: int
    hidden: int
    backwards: bool


GATES = 3
Results = tuple[str, str, str, str, str]
"""Adjoints of x, w, r, b and h0."""


def list_backwards(n: OnnxNode) -> list[bool]:
    """The directions of a node: True for one whose time runs from the last step to the first.

    Raises:
        UnsupportedPattern: something that torch never exports, such as peepholes.
    """
    at, direction = n.attributes, n.attributes.get("direction", "forward")
    if "activations" in at or at.get("layout", 0) or at.get("clip") or at.get("input_forget", 0):
        raise UnsupportedPattern(f"{n.op} with other activations, layout or clipping", n.where)
    if len(n.inputs) > 4 and n.inputs[4]:
        raise UnsupportedPattern(f"{n.op} with sequence lengths", n.where, "mask the padding through weights")
    if len(n.inputs) > 7 and n.inputs[7]:
        raise UnsupportedPattern(f"{n.op} with peepholes", n.where)
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def read_direction(g: OnnxGraph, n: OnnxNode, d: int, backwards: bool) -> Direction:
    """Direction `d` of a node, cut out of values that hold all directions."""
    (steps, inputs), batch = as_numbers(g.shape(n.inputs[0])[::2]), g.shape(n.inputs[0])[1]
    hidden = n.attributes["hidden_size"]
    wide = GATES * hidden
    w = pick_direction(g, n.inputs[1], 0, d, (wide, inputs))
    r = pick_direction(g, n.inputs[2], 0, d, (wide, hidden))
    b = pick_direction(g, n.inputs[3], 0, d, (2 * wide,)) if has_input(n, 3) else g.zeros((2 * wide,))
    all_h = name_sequence(g, n)
    h = pick_direction(g, all_h, 1, d, (steps, batch, hidden))
    h0 = pick_direction(g, n.inputs[5], 0, d, (batch, hidden)) if has_input(n, 5) else write_still(g, n, hidden)
    previous = list_previous(g, h, h0, backwards)
    return Direction(
        x=n.inputs[0],
        w=w,
        r=r,
        bx=g.slice(b, 0, 0, wide),
        bh=g.slice(b, 0, wide, 2 * wide),
        h=h,
        previous=previous,
        h0=h0,
        steps=steps,
        batch=batch,
        inputs=inputs,
        hidden=hidden,
        backwards=backwards,
    )


def write_still(g: OnnxGraph, n: OnnxNode, hidden: int) -> str:
    """Zeros (B, H), for a first state that is not given."""
    batch = g.op("Shape", n.inputs[0], start=1, end=2, shape=(1,))
    shape = g.op("Concat", batch, g.ints([hidden]), axis=0, shape=(2,))
    return g.op("ConstantOfShape", shape, shape=(g.shape(n.inputs[0])[1], hidden))


def has_input(n: OnnxNode, i: int) -> bool:
    return len(n.inputs) > i and bool(n.inputs[i])


def name_sequence(g: OnnxGraph, n: OnnxNode) -> str:
    """The operator's first output; it gets a name here if the module only reads the last state."""
    if not n.outputs[0]:
        n.outputs[0] = g.new_name("sequence")
        steps, batch, _ = g.shape(n.inputs[0])
        directions = g.shape(n.inputs[1])[0]
        g.shapes[n.outputs[0]] = (steps, directions, batch, n.attributes["hidden_size"])
    return n.outputs[0]


def pick_direction(g: OnnxGraph, v: str, axis: int, d: int, shape: Shape) -> str:
    """Direction `d` of a value that holds all directions along `axis`."""
    if as_number(g.shape(v)[axis]) > 1:
        v = g.slice(v, axis, d, d + 1)
    return g.reshape(v, shape)


def list_previous(g: OnnxGraph, h: str, h0: str, backwards: bool) -> str:
    """The state that each step starts from."""
    steps, (batch, hidden) = as_number(g.shape(h)[0]), g.shape(h)[1:]
    first = g.reshape(h0, (1, batch, hidden))
    if steps == 1:
        return first
    return g.concat([g.slice(h, 0, 1, steps), first] if backwards else [first, g.slice(h, 0, 0, steps - 1)], 0)


def apply_linear(g: OnnxGraph, x: str, w: str, b: str) -> str:
    """x w' + b for all steps at once."""
    return g.add(g.matmul(x, g.transpose(w, [1, 0])), b)


def take_gate(g: OnnxGraph, v: str, k: int, hidden: int) -> str:
    return g.slice(v, 2, k * hidden, (k + 1) * hidden)


def add_sequence_adjoints(g: OnnxGraph, outs: Adjoints, d: int, p: Direction) -> str:
    """The adjoint of the hidden states of all steps: from readers of the sequence and of the last state."""
    shape = (p.steps, p.batch, p.hidden)
    parts = [pick_direction(g, outs[0], 1, d, shape)] if outs[0] else []
    if len(outs) > 1 and outs[1]:
        last = pick_direction(g, outs[1], 0, d, (1, p.batch, p.hidden))
        rest = [p.steps - 1, 0, 0]
        parts.append(g.pad(last, [0] * 3, rest) if p.backwards else g.pad(last, rest, [0] * 3))
    if not parts:
        return g.scale(p.h, 0.0)
    return parts[0] if len(parts) == 1 else g.add(*parts)


def run_scan(
    g: OnnxGraph, body: ScanBody, states: Sequence[str], sequences: Sequence[str], against: bool
) -> tuple[str, ...]:
    """Run `body` over time, from the last step to the first if `against`. Returns final states, then sequences."""
    steps = g.shape(sequences[0])[0]
    shapes = [s for _, s in body.outputs[: len(states)]]
    shapes += [(steps, *s) for _, s in body.outputs[len(states) :]]
    way, made = int(against), len(body.outputs) - len(states)
    return g.ops(
        "Scan", *states, *sequences, shapes=shapes, outputs=[g.new_name("scan") for _ in shapes], body=body,
        num_scan_inputs=len(sequences), scan_input_directions=[way] * len(sequences),
        scan_output_directions=[way] * made,
    )  # fmt: skip


def write_weight_adjoints(g: OnnxGraph, p: Direction, dgx: str, dgh: str) -> tuple[str, str, str, str]:
    """Adjoints of x, w, r and b from those of the gates' input and hidden parts, (T, B, 3 H) each."""
    wide = g.shape(dgx)[2]
    rows = multiply((p.steps, p.batch))
    flat_x, flat_h = g.reshape(dgx, (rows, wide)), g.reshape(dgh, (rows, wide))
    gw = g.gemm(flat_x, g.reshape(p.x, (rows, p.inputs)), ta=True)
    gr = g.gemm(flat_h, g.reshape(p.previous, (rows, p.hidden)), ta=True)
    gb = g.concat([g.sum(flat_x, [0]), g.sum(flat_h, [0])], 0)
    return g.matmul(dgx, p.w), gw, gr, gb


def collect_directions(g: OnnxGraph, n: OnnxNode, results: Sequence[Results]) -> Adjoints:
    """Put the directions together: adjoints of x add up, all others are stacked."""
    gx = results[0][0]
    for other in results[1:]:
        gx = g.add(gx, other[0])
    out: list[str | None] = [None] * len(n.inputs)
    out[0] = gx
    for position, k in ((1, 1), (2, 2), (3, 3), (5, 4)):
        if position < len(out):
            out[position] = g.concat([g.reshape(r[k], (1, *g.shape(r[k]))) for r in results], 0)
    return out


# -- GRU -------------------------------------------------------------------------------------------------------------


@rule_of_all("GRU")
def gru(g: OnnxGraph, n: OnnxNode, outs: Adjoints, want: Want) -> Adjoints:
    """z, r = sigmoid; m = tanh(gx_m + r gh_m); h = (1 - z) m + z h_previous."""
    if n.attributes.get("linear_before_reset", 0) != 1:
        raise UnsupportedPattern("GRU with the reset gate before the product", n.where, "torch's GRU has it after")
    found = [read_direction(g, n, d, b) for d, b in enumerate(list_backwards(n))]
    loops: list[OnnxNode] = []
    results = [differentiate_gru(g, p, add_sequence_adjoints(g, outs, d, p), loops) for d, p in enumerate(found)]
    g.native.append((*loops, *join_loops(g, n, found, loops)))
    return collect_directions(g, n, results)


def differentiate_gru(g: OnnxGraph, p: Direction, dy: str, loops: list[OnnxNode]) -> Results:
    """The adjoints of one direction of a GRU.

    `slope` is d(hidden part of the gates)/dh, so that the Scan has one product per step.

    Args:
        loops: is given the native loop of the forward pass, which makes the gates as well.
    """
    one, size = g.scalar(1), p.hidden
    gx, gh = apply_linear(g, p.x, p.w, p.bx), apply_linear(g, p.previous, p.r, p.bh)
    zr = g.unary("Sigmoid", g.add(g.slice(gx, 2, 0, 2 * size), g.slice(gh, 2, 0, 2 * size)))
    z, r, ghm = take_gate(g, zr, 0, size), take_gate(g, zr, 1, size), take_gate(g, gh, 2, size)
    m = g.unary("Tanh", g.add(take_gate(g, gx, 2, size), g.mul(r, ghm)))
    am = g.mul(g.sub(one, z), g.sub(one, g.mul(m, m)))
    az = g.mul(g.sub(p.previous, m), g.mul(z, g.sub(one, z)))
    ar = g.mul(g.mul(am, ghm), g.mul(r, g.sub(one, r)))
    slope = g.concat([az, ar, g.mul(am, r)], 2)
    start = g.scale(p.h0, 0.0)
    dh0, dgh, dh = run_scan(g, write_gru_body(g, p), [start], [dy, slope, z], against=not p.backwards)
    dgx = g.concat([g.slice(dgh, 2, 0, 2 * size), g.mul(dh, am)], 2)
    loops.append(describe_loop(g, "GruLoop", [p.h0, gx, p.r, p.bh], [new_state(g, p), zr, m, ghm, p.h], p.backwards))
    given = [start, dy, zr, m, ghm, p.previous, p.r]
    g.native.append((describe_loop(g, "GruLoopGradient", given, [dh0, dgh, dgx], not p.backwards),))
    return (*write_weight_adjoints(g, p, dgx, dgh), dh0)


def write_gru_body(g: OnnxGraph, p: Direction) -> ScanBody:
    """The step dh -> dh', one step earlier: total = dh + dy; gates = total slope; dh' = gates r + total z."""
    b = g.new_name("gru") + "."
    state, wide = (p.batch, p.hidden), (p.batch, 3 * p.hidden)
    nodes = (
        OnnxNode("Add", [b + "dh", b + "dy"], [b + "total"]),
        OnnxNode("Concat", [b + "total"] * 3, [b + "three"], {"axis": 1}),
        OnnxNode("Mul", [b + "three", b + "slope"], [b + "gates"]),
        OnnxNode("MatMul", [b + "gates", p.r], [b + "through"]),
        OnnxNode("Mul", [b + "total", b + "z"], [b + "kept"]),
        OnnxNode("Add", [b + "through", b + "kept"], [b + "next"]),
        OnnxNode("Identity", [b + "total"], [b + "out"]),
    )
    inputs = ((b + "dh", state), (b + "dy", state), (b + "slope", wide), (b + "z", state))
    return ScanBody(nodes, inputs, ((b + "next", state), (b + "gates", wide), (b + "out", state)))


# -- native ----------------------------------------------------------------------------------------------------------


def new_state(g: OnnxGraph, p: Direction) -> str:
    """The name of a last state, (B, H), that no other node makes."""
    name = g.new_name("last")
    g.shapes[name] = (p.batch, p.hidden)
    return name


def join_loops(g: OnnxGraph, n: OnnxNode, found: Sequence[Direction], loops: Sequence[OnnxNode]) -> list[OnnxNode]:
    """Nodes that make the outputs of a GRU from those of the loops of its directions."""
    size = (found[0].batch, found[0].hidden)
    made = (
        ([p.h for p in found], (found[0].steps, 1, *size), 1),
        ([loop.outputs[0] for loop in loops], (1, *size), 0),
    )
    nodes = []
    for name, (parts, shape, axis) in zip(n.outputs, made, strict=False):
        if name:
            shaped = [g.new_name("direction") for _ in parts]
            g.shapes.update(dict.fromkeys(shaped, shape))
            sizes = g.ints(reshape_sizes(shape))
            nodes += [OnnxNode("Reshape", [i, sizes], [o], where=n.where) for i, o in zip(parts, shaped, strict=True)]
            nodes.append(OnnxNode("Concat", shaped, [name], {"axis": axis}, where=n.where))
    return nodes
