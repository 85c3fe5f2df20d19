"""The recurrent loops of domain "auscult" in numpy: all steps of a layer, or of its adjoints (passes/native).

States are (N, H), sequences (T, N, ...), the recurrent weights (gates H, H). With gates in the order of ONNX:
    LSTM  i, o, f = sigmoid, m = tanh of gx + h r'; c = f c_before + i m; h = o tanh(c)
    GRU   gh = h r' + bh; z, r = sigmoid(gx + gh); m = tanh(gx_m + r gh_m); h = (1 - z) m + z h_before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from edge_sdk.model.forms import NATIVE_DOMAIN

Values = dict[str, np.ndarray]
Step = Callable[[Mapping[str, np.ndarray], int, Values], Values]


@dataclass(frozen=True)
class TimeLoop:
    """One operator.

    Attributes:
        inputs, outputs: their names.
        step: (inputs, number of the step, states, which it changes) -> what the step gives of each sequence.
        states: name of a state -> the input that it starts as, and the output that it ends as.
        widths: output that is a sequence -> how many times H it is wide.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    step: Step
    states: Mapping[str, tuple[str, str]]
    widths: Mapping[str, int]

    def run(self, given: Sequence[np.ndarray], backwards: bool) -> list[np.ndarray]:
        """The outputs, in order."""
        values = dict(zip(self.inputs, given, strict=True))
        states = {name: values[first] for name, (first, _) in self.states.items()}
        steps, rows, _ = values["dy" if "dy" in values else "gx"].shape
        hidden, dtype = values["r"].shape[1], values["r"].dtype
        made = {name: np.zeros((steps, rows, width * hidden), dtype) for name, width in self.widths.items()}
        for t in range(steps)[:: -1 if backwards else 1]:
            for name, value in self.step(values, t, states).items():
                made[name][t] = value
        made |= {last: states[name] for name, (_, last) in self.states.items()}
        return [made[name].astype(dtype) for name in self.outputs]


def sigmoid(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-x))
    return found


def split(gates: np.ndarray, count: int) -> list[np.ndarray]:
    return np.split(gates, count, -1)


def step_lstm(v: Mapping[str, np.ndarray], t: int, states: Values) -> Values:
    i, o, f, m = split(v["gx"][t] + states["h"] @ v["r"].T, 4)
    i, o, f, m, before = sigmoid(i), sigmoid(o), sigmoid(f), np.tanh(m), states["c"]
    c = i * m + f * before
    h = o * np.tanh(c)
    states |= {"h": h, "c": c}
    return {"iof": np.concatenate([i, o, f], -1), "m": m, "tanh_c": np.tanh(c), "before": before, "h": h}


def step_lstm_back(v: Mapping[str, np.ndarray], t: int, states: Values) -> Values:
    (i, o, f), m, tanh_c, before = split(v["iof"][t], 3), v["m"][t], v["tanh_c"][t], v["before"][t]
    total = states["dh"] + v["dy"][t]
    u = states["dc"] + total * (o * (1 - tanh_c**2))
    parts = [u * (m * (i * (1 - i))), total * (tanh_c * (o * (1 - o))), u * (before * (f * (1 - f)))]
    gates = np.concatenate([*parts, u * (i * (1 - m**2))], -1)
    states |= {"dh": gates @ v["r"], "dc": u * f}
    return {"gates": gates}


def step_gru(v: Mapping[str, np.ndarray], t: int, states: Values) -> Values:
    (xz, xr, xm), (hz, hr, ghm) = split(v["gx"][t], 3), split(states["h"] @ v["r"].T + v["bh"], 3)
    z, r = sigmoid(xz + hz), sigmoid(xr + hr)
    m = np.tanh(xm + r * ghm)
    states["h"] = (1 - z) * m + z * states["h"]
    return {"zr": np.concatenate([z, r], -1), "m": m, "ghm": ghm, "h": states["h"]}


def step_gru_back(v: Mapping[str, np.ndarray], t: int, states: Values) -> Values:
    (z, r), m, ghm = split(v["zr"][t], 2), v["m"][t], v["ghm"][t]
    total, am = states["dh"] + v["dy"][t], (1 - z) * (1 - m**2)
    first = [total * ((v["before"][t] - m) * (z * (1 - z))), total * ((am * ghm) * (r * (1 - r)))]
    dgh = np.concatenate([*first, total * (am * r)], -1)
    states["dh"] = dgh @ v["r"] + total * z
    return {"dgh": dgh, "dgx": np.concatenate([*first, total * am], -1)}


LOOPS = {
    "LstmLoop": TimeLoop(
        ("h0", "c0", "gx", "r"), ("last_h", "last_c", "iof", "m", "tanh_c", "before", "h"), step_lstm,
        {"h": ("h0", "last_h"), "c": ("c0", "last_c")}, {"iof": 3, "m": 1, "tanh_c": 1, "before": 1, "h": 1},
    ),
    "LstmLoopGradient": TimeLoop(
        ("dh", "dc", "dy", "iof", "m", "tanh_c", "before", "r"), ("dh0", "dc0", "gates"), step_lstm_back,
        {"dh": ("dh", "dh0"), "dc": ("dc", "dc0")}, {"gates": 4},
    ),
    "GruLoop": TimeLoop(
        ("h0", "gx", "r", "bh"), ("last_h", "zr", "m", "ghm", "h"), step_gru,
        {"h": ("h0", "last_h")}, {"zr": 2, "m": 1, "ghm": 1, "h": 1},
    ),
    "GruLoopGradient": TimeLoop(
        ("dh", "dy", "zr", "m", "ghm", "before", "r"), ("dh0", "dgh", "dgx"), step_gru_back,
        {"dh": ("dh", "dh0")}, {"dgh": 3, "dgx": 3},
    ),
}  # fmt: skip


class LoopOperator(OpRun):
    """An operator as onnx's reference evaluator runs it; its name is that of the class."""

    op_domain = NATIVE_DOMAIN

    def _run(self, *inputs: np.ndarray, backwards: Any = None) -> tuple[np.ndarray, ...]:
        return tuple(LOOPS[type(self).__name__].run(inputs, bool(backwards)))


OPERATORS = [type(name, (LoopOperator,), {}) for name in LOOPS]
