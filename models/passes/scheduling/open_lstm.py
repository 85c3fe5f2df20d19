"""Writes LSTMs that are to be differentiated as a loop which also gives what happens inside.

onnxruntime's operator keeps its gates and cell states for itself, so a backward pass would have to compute all of them
again: two large products and a loop over time. Here the products with the inputs are one ordinary Gemm, and a Scan does
the rest and gives the gates of each step; it costs about as much as the operator. Every LSTM of a graph is written so,
even one that this gradient does not reach: then the gradients of some layers are those of all, bit for bit.

With gates in the order of the operator: i, o, f = sigmoid; m = tanh; c = f c_before + i m; h = o tanh(c).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.shapes import Dim, as_number, multiply
from edge_sdk.models.rules.windows.native import describe_loop
from edge_sdk.models.rules.windows.recurrent import (
    has_input,
    list_backwards,
    list_previous,
    pick_direction,
    run_scan,
    write_still,
)

GATES = 4
OPENED = frozenset({"LSTM"})


@dataclass(frozen=True)
class LstmLoop:
    """One direction of an LSTM: names of what its loop is given, and its sizes.

    Attributes:
        gx: (T, B, 4 H), the products with the inputs, and the biases. r: (4 H, H). h0, c0: (B, H), the first states.
        backwards: True if time runs from the last step to the first.
    """

    gx: str
    r: str
    h0: str
    c0: str
    steps: int
    batch: Dim
    hidden: int
    backwards: bool


@dataclass(frozen=True)
class Inside:
    """What the loop gives: the last states (B, H), then of each step (T, B, ...) i, o and f (3 H), m, tanh(c), c before
    the step, and h (H)."""

    last_h: str
    last_c: str
    iof: str
    m: str
    tanh_c: str
    before: str
    h: str


def open_lstms(g: OnnxGraph) -> None:
    """Rewrite all LSTMs of a graph, in place."""
    if not any(n.op in OPENED for n in g.nodes):
        return
    for n in g.take_nodes():
        if n.op in OPENED:
            g.where = n.where
            write_open(g, n)
        else:
            g.put_back(n)
    g.where = ""


def write_open(g: OnnxGraph, n: OnnxNode) -> None:
    """Append what gives the outputs of an LSTM."""
    loops = [read_loop(g, n, d, b) for d, b in enumerate(list_backwards(n))]
    found = [write_loop(g, p) for p in loops]
    size = (loops[0].batch, loops[0].hidden)
    made = (
        ([v.h for v in found], (loops[0].steps, 1, *size), 1),
        ([v.last_h for v in found], (1, *size), 0),
        ([v.last_c for v in found], (1, *size), 0),
    )
    for name, (parts, shape, axis) in zip(n.outputs, made, strict=False):
        if name:
            whole = g.concat([g.reshape(v, shape) for v in parts], axis)
            g.op("Identity", whole, shape=g.shape(whole), output=name)


def read_loop(g: OnnxGraph, n: OnnxNode, d: int, backwards: bool) -> LstmLoop:
    """Direction `d` of an LSTM; its products with the inputs are written."""
    steps, batch, inputs = g.shape(n.inputs[0])
    hidden, rows = n.attributes["hidden_size"], multiply((steps, batch))
    wide = GATES * hidden
    w = pick_direction(g, n.inputs[1], 0, d, (wide, as_number(inputs)))
    r = pick_direction(g, n.inputs[2], 0, d, (wide, hidden))
    bias = []
    if has_input(n, 3):
        b = pick_direction(g, n.inputs[3], 0, d, (2 * wide,))
        bias = [g.add(g.slice(b, 0, 0, wide), g.slice(b, 0, wide, 2 * wide))]
    gx = g.op("Gemm", g.reshape(n.inputs[0], (rows, inputs)), w, *bias, transB=1, shape=(rows, wide))
    h0, c0 = (
        pick_direction(g, n.inputs[k], 0, d, (batch, hidden)) if has_input(n, k) else write_still(g, n, hidden)
        for k in (5, 6)
    )
    return LstmLoop(g.reshape(gx, (steps, batch, wide)), r, h0, c0, as_number(steps), batch, hidden, backwards)


def write_loop(g: OnnxGraph, p: LstmLoop) -> Inside:
    """Append the loop over time, with its backward pass."""
    made = run_scan(g, write_step(g, p), [p.h0, p.c0], [p.gx], against=p.backwards)
    given = [p.h0, p.c0, p.gx, p.r]
    g.native.append((describe_loop(g, "LstmLoop", given, made, p.backwards),))
    found = Inside(*made)

    def backward(g: OnnxGraph, *given: str | Sequence[bool]) -> list[str]:
        last_h, last_c, *_, h = (str(v) for v in given[:-1])
        return differentiate_loop(g, p, found, last_h, last_c, h)

    g.custom_gradients[found.last_h] = CustomGradient((p.gx, p.r, p.h0, p.c0), backward)
    return found


def write_step(g: OnnxGraph, p: LstmLoop) -> ScanBody:
    """The step (h, c) -> (h', c'), which also gives i, o and f, m, tanh(c'), c and h'."""
    b = g.new_name("lstm") + "."
    sizes = g.ints([3 * p.hidden, p.hidden])
    nodes = (
        OnnxNode("Gemm", [b + "h", p.r, b + "gx"], [b + "gates"], {"transB": 1}),
        OnnxNode("Split", [b + "gates", sizes], [b + "three", b + "fourth"], {"axis": 1}),
        OnnxNode("Sigmoid", [b + "three"], [b + "iof"]),
        OnnxNode("Tanh", [b + "fourth"], [b + "m"]),
        OnnxNode("Split", [b + "iof"], [b + "i", b + "o", b + "f"], {"axis": 1, "num_outputs": 3}),
        OnnxNode("Mul", [b + "i", b + "m"], [b + "written"]),
        OnnxNode("Mul", [b + "f", b + "c"], [b + "kept"]),
        OnnxNode("Add", [b + "written", b + "kept"], [b + "c_next"]),
        OnnxNode("Tanh", [b + "c_next"], [b + "tanh_c"]),
        OnnxNode("Mul", [b + "o", b + "tanh_c"], [b + "h_next"]),
        OnnxNode("Identity", [b + "c"], [b + "before"]),
        OnnxNode("Identity", [b + "h_next"], [b + "h_out"]),
    )
    state, three, wide = (p.batch, p.hidden), (p.batch, 3 * p.hidden), (p.batch, GATES * p.hidden)
    inputs = ((b + "h", state), (b + "c", state), (b + "gx", wide))
    made = {"h_next": state, "c_next": state, "iof": three, "m": state, "tanh_c": state, "before": state}
    return ScanBody(nodes, inputs, tuple((b + k, s) for k, s in {**made, "h_out": state}.items()))


# -- backward --------------------------------------------------------------------------------------------------------


def differentiate_loop(g: OnnxGraph, p: LstmLoop, v: Inside, dh: str, dc: str, dy: str) -> list[str]:
    """The adjoints of gx, r, h0 and c0 from those of the last states and of all h; "" for one that nobody reads.

    `slope` is what a step's adjoints of c and h are multiplied with to give those of its gates.
    """
    one, size = g.scalar(1), p.hidden
    i, o, f = (g.slice(v.iof, 2, k * size, (k + 1) * size) for k in range(3))

    def write_slope(gate: str) -> str:
        return g.mul(gate, g.sub(one, gate))

    ai, ao, af = g.mul(v.m, write_slope(i)), g.mul(v.tanh_c, write_slope(o)), g.mul(v.before, write_slope(f))
    am = g.mul(i, g.sub(one, g.mul(v.m, v.m)))
    to_cell = g.mul(o, g.sub(one, g.mul(v.tanh_c, v.tanh_c)))
    slope = g.concat([ai, ao, af, am], 2)
    states = [s or g.zeros(g.shape(p.h0), like=p.h0) for s in (dh, dc)]
    dy = dy or g.zeros(g.shape(v.h), like=v.h)
    dh0, dc0, gates = run_scan(
        g, write_step_back(g, p), states, [dy, to_cell, slope, f], against=not p.backwards
    )  # fmt: skip
    given = [*states, dy, v.iof, v.m, v.tanh_c, v.before, p.r]
    g.native.append((describe_loop(g, "LstmLoopGradient", given, [dh0, dc0, gates], not p.backwards),))
    rows = multiply((p.steps, p.batch))
    previous = g.reshape(list_previous(g, v.h, p.h0, p.backwards), (rows, size))
    dr = g.gemm(g.reshape(gates, (rows, GATES * size)), previous, ta=True)
    return [gates, dr, dh0, dc0]


def write_step_back(g: OnnxGraph, p: LstmLoop) -> ScanBody:
    """The step (dh, dc) -> (dh', dc'), one step earlier.

    total = dh + dy; u = dc + total to_cell; gates = [u, total, u, u] slope; dh' = gates r; dc' = u f.
    """
    b = g.new_name("lstm") + "."
    state, wide = (p.batch, p.hidden), (p.batch, GATES * p.hidden)
    nodes = (
        OnnxNode("Add", [b + "dh", b + "dy"], [b + "total"]),
        OnnxNode("Mul", [b + "total", b + "to_cell"], [b + "part"]),
        OnnxNode("Add", [b + "dc", b + "part"], [b + "u"]),
        OnnxNode("Concat", [b + "u", b + "total", b + "u", b + "u"], [b + "four"], {"axis": 1}),
        OnnxNode("Mul", [b + "four", b + "slope"], [b + "gates"]),
        OnnxNode("MatMul", [b + "gates", p.r], [b + "next"]),
        OnnxNode("Mul", [b + "u", b + "f"], [b + "dc_next"]),
    )
    inputs = (
        (b + "dh", state), (b + "dc", state), (b + "dy", state), (b + "to_cell", state), (b + "slope", wide),
        (b + "f", state),
    )  # fmt: skip
    return ScanBody(nodes, inputs, ((b + "next", state), (b + "dc_next", state), (b + "gates", wide)))
