"""Float64 evaluation of a graph, independent of onnxruntime: onnx's own reference evaluator.

Operators that it lacks, or is slow at, are written here after the ONNX specification, with numpy and torch's
float64 kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Evaluator:
    """A graph, ready to run. Values that are not finite come out as such, without a warning on the way."""

    def __init__(self, model: onnx.ModelProto) -> None:
        operators = [Conv, ConvTranspose, MaxPool, MaxUnpool, Pad, Erf, LogSoftmax, Scan, GRU, LSTM]
        self.inner = ReferenceEvaluator(model, new_ops=operators)
        self.inputs = list(self.inner.input_names)

    def __call__(self, feeds: Mapping[str, np.ndarray], everything: bool = False) -> dict[str, np.ndarray]:
        """Output name (or, with `everything`, name of any value) -> value. Feeds that are no inputs are left out."""
        given = {k: feeds[k] for k in self.inputs}
        with np.errstate(all="ignore"):
            if everything:
                return self.inner.run(None, given, intermediate=True)
            return dict(zip(self.inner.output_names, self.inner.run(None, given), strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Output name -> value, once."""
    return Evaluator(model)(feeds)


def read_window(
    nd: int, pads: Any, strides: Any, dilations: Any, auto_pad: Any
) -> tuple[list[int], list[int], list[int]]:
    if auto_pad not in (None, "NOTSET", "VALID"):
        raise NotImplementedError(f"auto_pad {auto_pad} in the reference evaluator")
    return list(pads or [0] * 2 * nd), list(strides or [1] * nd), list(dilations or [1] * nd)


def pad_positions(x: np.ndarray, pads: list[int], value: float = 0.0) -> torch.Tensor:
    """x with spatial padding in ONNX's order."""
    nd = len(pads) // 2
    flat = [v for i in reversed(range(nd)) for v in (pads[i], pads[nd + i])]
    return F.pad(torch.from_numpy(np.array(x, order="C")), flat, value=value)


class Conv(OpRun):
    op_domain = ""

    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None):
        nd = x.ndim - 2
        pads, strides, dilations = read_window(nd, pads, strides, dilations, auto_pad)
        bias = None if b is None else torch.from_numpy(np.array(b))
        weight = torch.from_numpy(np.array(w, order="C"))
        y = CONVOLUTIONS[nd](
            pad_positions(x, pads), weight, bias, stride=strides, dilation=dilations, groups=group or 1
        )
        return (y.numpy(),)


class ConvTranspose(OpRun):
    op_domain = ""

    def _run(
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        nd = x.ndim - 2
        pads, strides, dilations = read_window(nd, pads, strides, dilations, auto_pad)
        weight = torch.from_numpy(np.array(w, order="C"))
        y = TRANSPOSED[nd](
            torch.from_numpy(np.array(x, order="C")), weight, stride=strides, dilation=dilations, groups=group or 1
        )
        extra = list(output_padding or [0] * nd)
        # the transposed map has no minimum size: grow by output_padding first, then cut the pads off
        y = F.pad(y, [v for e in reversed(extra) for v in (0, e)])
        cut = tuple(slice(pads[i], y.shape[2 + i] - pads[nd + i]) for i in range(nd))
        y = y[(slice(None), slice(None), *cut)]
        if b is not None:
            y = y + torch.from_numpy(np.array(b)).reshape(-1, *[1] * nd)
        return (np.ascontiguousarray(y.numpy()),)


class MaxPool(OpRun):
    """Values, and indices into the whole flattened input."""

    op_domain = ""

    def _run(
        self,
        x,
        auto_pad=None,
        ceil_mode=None,
        dilations=None,
        kernel_shape=None,
        pads=None,
        storage_order=None,
        strides=None,
    ):
        nd = x.ndim - 2
        pads, strides, dilations = read_window(nd, pads, strides, dilations, auto_pad)
        source = pad_positions(x, pads, -np.inf)
        y, index = POOLS[nd](source, list(kernel_shape), strides, 0, dilations, bool(ceil_mode), return_indices=True)
        inner = np.stack(np.unravel_index(index.numpy(), source.shape[2:])) - np.reshape(
            pads[:nd], (nd,) + (1,) * x.ndim
        )
        plane = np.ravel_multi_index(tuple(inner), x.shape[2:], mode="clip")
        size = int(np.prod(x.shape[2:]))
        offset = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * nd) * size
        return y.numpy(), (plane + offset).astype(np.int64)


class MaxUnpool(OpRun):
    op_domain = ""

    def _run(self, x, index, output_shape=None, kernel_shape=None, pads=None, strides=None):
        out = np.zeros(int(np.prod(output_shape)), x.dtype)
        out[index.reshape(-1)] = x.reshape(-1)
        return (out.reshape(tuple(int(d) for d in output_shape)),)


class Pad(OpRun):
    """Negative sizes cut off."""

    op_domain = ""

    def _run(self, x, pads, value=None, axes=None, mode=None):
        axes = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes]
        before, after = np.zeros(x.ndim, int), np.zeros(x.ndim, int)
        before[axes], after[axes] = pads[: len(axes)], pads[len(axes) :]
        cut = tuple(slice(max(0, -b), d - max(0, -a)) for b, a, d in zip(before, after, x.shape, strict=True))
        grow = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
        if mode not in (None, "constant"):
            return (np.pad(x[cut], grow, mode=mode),)
        return (np.pad(x[cut], grow, constant_values=0 if value is None else value.reshape(()).item()),)


class Erf(OpRun):
    op_domain = ""

    def _run(self, x):
        return (torch.erf(torch.from_numpy(np.array(x))).numpy(),)


class LogSoftmax(OpRun):
    op_domain = ""

    def _run(self, x, axis=None):
        return (torch.log_softmax(torch.from_numpy(np.array(x)), -1 if axis is None else axis).numpy(),)


class Scan(OpRun):
    """In both directions of time. The body may read values of the outer graph."""

    op_domain = ""

    def need_context(self) -> bool:
        return True

    def _run(
        self,
        *args,
        context=None,
        body=None,
        num_scan_inputs=None,
        scan_input_directions=None,
        scan_output_directions=None,
        **rest,
    ):
        names, made = self.body.input_names, self.body.output_names
        count = len(args) - num_scan_inputs
        ways_in = scan_input_directions or [0] * num_scan_inputs
        ways_out = scan_output_directions or [0] * (len(made) - count)
        sequences = [v[::-1] if way else v for v, way in zip(args[count:], ways_in, strict=True)]
        states, steps = list(args[:count]), []
        for now in zip(*sequences, strict=True):
            values = self.body.run(None, {**(context or {}), **dict(zip(names, [*states, *now], strict=True))})
            states = values[:count]
            steps.append(values[count:])
        outs = [np.stack(v) for v in zip(*steps, strict=True)]
        return (*states, *(o[::-1].copy() if way else o for o, way in zip(outs, ways_out, strict=True)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def list_directions(direction: str | None) -> list[bool]:
    return {"reverse": [True], "bidirectional": [False, True]}.get(direction or "forward", [False])


class GRU(OpRun):
    op_domain = ""

    def _run(
        self, x, w, r, b=None, lengths=None, h0=None, direction=None, hidden_size=None, linear_before_reset=None, **rest
    ):
        outs, last = [], []
        for d, against in enumerate(list_directions(direction)):
            wb, rb = np.split(b[d], 2) if b is not None else (0.0, 0.0)
            h = np.zeros((x.shape[1], hidden_size), x.dtype) if h0 is None else h0[d]
            steps = []
            for t in reversed(range(len(x))) if against else range(len(x)):
                zx, rx, mx = np.split(x[t] @ w[d].T + wb, 3, axis=1)
                zh, rh, mh = np.split(h @ r[d].T + rb, 3, axis=1)
                z, reset = sigmoid(zx + zh), sigmoid(rx + rh)
                h = (1 - z) * np.tanh(mx + reset * mh) + z * h
                steps.append(h)
            outs.append(np.stack(steps[::-1] if against else steps))
            last.append(h)
        return np.stack(outs, 1), np.stack(last)


class LSTM(OpRun):
    op_domain = ""

    def _run(self, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, direction=None, hidden_size=None, **rest):
        outs, last, cells = [], [], []
        for d, against in enumerate(list_directions(direction)):
            bias = b[d].reshape(2, -1).sum(0) if b is not None else 0.0
            h = np.zeros((x.shape[1], hidden_size), x.dtype) if h0 is None else h0[d]
            c = np.zeros_like(h) if c0 is None else c0[d]
            steps = []
            for t in reversed(range(len(x))) if against else range(len(x)):
                i, o, f, m = np.split(x[t] @ w[d].T + h @ r[d].T + bias, 4, axis=1)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(m)
                h = sigmoid(o) * np.tanh(c)
                steps.append(h)
            outs.append(np.stack(steps[::-1] if against else steps))
            last.append(h)
            cells.append(c)
        return np.stack(outs, 1), np.stack(last), np.stack(cells)
