"""Float64 evaluation of a graph, independent of onnxruntime, by onnx's own reference evaluator.

Operators that it lacks, or computes slowly, are written here after the ONNX specification, with numpy and torch's
float64 kernels. Each class has the name of its operator, and `_run` the operator's attributes as keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.evaluation.padding import refuse_automatic, settle_window
from edge_sdk.models.ir.evaluation.reference_marks import OPERATORS as MARKS
from edge_sdk.models.ir.evaluation.reference_native import NATIVE
from edge_sdk.models.ir.evaluation.reference_products import MatMul, to_tensor
from edge_sdk.models.ir.evaluation.reference_windows import AveragePool, Resize
from edge_sdk.models.ir.evaluation.restore import restore_number

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
"""Direction of a recurrent operator -> for each whether it runs from the last step to the first."""


Arrays = dict[str, np.ndarray]


def restore_attributes(node: OpRun) -> None:
    """Give an operator the decimals of its attributes, which are float32 in every file; in place.

    Torch computes with the decimal. What is lost of a slope or an epsilon grows from layer to layer, and where few
    values are normalised even 3e-13 grows to more than the gate allows. SELU's are no short decimals.
    """
    if node.op_type != "Selu":
        numbers = {k: float(v) for k, v in vars(node).items() if isinstance(v, (float, np.floating))}
        vars(node).update({k: restore_number(v) for k, v in numbers.items()})


class Evaluator:
    """A graph, ready to run. Infinities and NaN are passed on without a warning."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.inner = ReferenceEvaluator(model, new_ops=[*OWN, *NATIVE, *MARKS])
        self.inputs = list(self.inner.input_names)
        for node in self.inner.rt_nodes_:
            restore_attributes(node)

    def __call__(self, feeds: Mapping[str, np.ndarray], everything: bool = False) -> Arrays:
        """Run the graph.

        Args:
            feeds: name -> value, for all inputs; others are ignored.
            everything: return every value of the graph, not only its outputs.

        Returns:
            name -> value.
        """
        given = {k: feeds[k] for k in self.inputs}
        with np.errstate(all="ignore"):
            if everything:
                return cast(Arrays, self.inner.run(None, given, intermediate=True))
            return dict(zip(self.inner.output_names, cast(list[np.ndarray], self.inner.run(None, given)), strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Run a graph once: output name -> value."""
    return Evaluator(model)(feeds)


def pad_positions(x: np.ndarray, pads: list[int], value: float = 0.0) -> torch.Tensor:
    """x padded along its positions; sizes as ONNX orders them: all before, then all after."""
    nd = len(pads) // 2
    flat = [v for i in reversed(range(nd)) for v in (pads[i], pads[nd + i])]
    return F.pad(to_tensor(x), flat, value=value)


class Conv(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, w: np.ndarray, b: Any = None, **at: Any) -> tuple[np.ndarray, ...]:
        pads, strides, dilations = settle_window(at, x.shape[2:], w.shape[2:])
        weights = to_tensor(w), None if b is None else to_tensor(b)
        how: Any = {"stride": strides, "dilation": dilations, "groups": at.get("group") or 1}
        return (CONVOLUTIONS[x.ndim - 2](pad_positions(x, pads), *weights, **how).numpy(),)


class ConvTranspose(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, w: np.ndarray, b: Any = None, **at: Any) -> tuple[np.ndarray, ...]:
        refuse_automatic("ConvTranspose", at.get("auto_pad"), at.get("output_shape"))
        nd = x.ndim - 2
        pads, strides, dilations = settle_window(at, x.shape[2:], w.shape[2:])
        weight = to_tensor(w)
        y = TRANSPOSED[nd](to_tensor(x), weight, stride=strides, dilation=dilations, groups=at.get("group") or 1)
        extra = list(at.get("output_padding") or [0] * nd)
        # grow by output_padding first, then cut the padding off: the other way round could leave nothing in between
        y = F.pad(y, [v for e in reversed(extra) for v in (0, e)])
        cut = tuple(slice(pads[i], y.shape[2 + i] - pads[nd + i]) for i in range(nd))
        y = y[(slice(None), slice(None), *cut)]
        if b is not None:
            y = y + to_tensor(b).reshape(-1, *[1] * nd)
        return (np.ascontiguousarray(y.numpy()),)


class MaxPool(OpRun):
    """The largest values, and their indices in the whole flattened input."""

    op_domain = ""

    def _run(self, x: np.ndarray, **at: Any) -> tuple[np.ndarray, ...]:
        nd = x.ndim - 2
        pads, strides, dilations = settle_window(at, x.shape[2:], at["kernel_shape"])
        source = pad_positions(x, pads, -np.inf)
        y, index = POOLS[nd](
            source, list(at["kernel_shape"]), strides, 0, dilations, bool(at.get("ceil_mode")), return_indices=True
        )
        plane = remove_padding(index.numpy(), tuple(source.shape[2:]), x.shape[2:], pads[:nd])
        size = int(np.prod(x.shape[2:]))
        offset = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * nd) * size
        return y.numpy(), (plane + offset).astype(np.int64)


def remove_padding(
    index: np.ndarray, padded: tuple[int, ...], shape: tuple[int, ...], before: Sequence[int]
) -> np.ndarray:
    """Indices in a flattened plane, from those in the padded plane.

    By division: numpy's `unravel_index` is wrong for large arrays of indices whose last axis has length 1.
    """
    rest, plane = index, np.zeros_like(index)
    for axis, size in enumerate(shape):
        at, rest = np.divmod(rest, int(np.prod(padded[axis + 1 :], dtype=np.int64)))
        plane = plane * size + np.clip(at - before[axis], 0, size - 1)
    return plane


class MaxUnpool(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, index: np.ndarray, output_shape: Any = None, **at: Any) -> tuple[np.ndarray, ...]:
        out = np.zeros(int(np.prod(output_shape)), x.dtype)
        out[index.reshape(-1)] = x.reshape(-1)
        return (out.reshape(tuple(int(d) for d in output_shape)),)


class Pad(OpRun):
    """Padding; negative sizes cut positions off."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, pads: np.ndarray, value: Any = None, axes: Any = None, mode: Any = None
    ) -> tuple[np.ndarray, ...]:
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

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (torch.erf(to_tensor(x)).numpy(),)


class LogSoftmax(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, axis: Any = None) -> tuple[np.ndarray, ...]:
        return (torch.log_softmax(to_tensor(x), -1 if axis is None else axis).numpy(),)


class GatherElements(OpRun):
    """Entries of x at places along one axis; a negative place counts from the end."""

    op_domain = ""

    def _run(self, x: np.ndarray, index: np.ndarray, axis: Any = 0) -> tuple[np.ndarray, ...]:
        places = torch.from_numpy(np.where(index < 0, index + x.shape[axis], index))
        return (torch.gather(to_tensor(x), axis, places).numpy(),)


class HardSigmoid(OpRun):
    """max(0, min(1, alpha x + beta)); an attribute is float32 in every file, and torch's slope is 1/6."""

    op_domain = ""

    def _run(self, x: np.ndarray, alpha: float = 0.2, beta: float = 0.5) -> tuple[np.ndarray, ...]:
        return (np.clip(restore_number(alpha) * x + restore_number(beta), 0, 1),)


class HardSwish(OpRun):
    """x max(0, min(1, x/6 + 1/2)); onnx's own evaluator has the 1/6 in float32."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x * np.clip(x / 6 + 0.5, 0, 1),)


class Scan(OpRun):
    """A loop over time in either direction; its body may read values of the outer graph."""

    op_domain = ""

    def need_context(self) -> bool:
        return True

    def _run(self, *args: Any, context: Any = None, **at: Any) -> tuple[np.ndarray, ...]:
        graph: Any = vars(self)["body"]
        names, made = graph.input_names, graph.output_names
        count = len(args) - at["num_scan_inputs"]
        ways_in = at.get("scan_input_directions") or [0] * at["num_scan_inputs"]
        ways_out = at.get("scan_output_directions") or [0] * (len(made) - count)
        sequences = [v[::-1] if way else v for v, way in zip(args[count:], ways_in, strict=True)]
        states, steps = list(args[:count]), []
        for now in zip(*sequences, strict=True):
            values = graph.run(None, {**(context or {}), **dict(zip(names, [*states, *now], strict=True))})
            states = values[:count]
            steps.append(values[count:])
        outs = [np.stack(v) for v in zip(*steps, strict=True)]
        return (*states, *(o[::-1].copy() if way else o for o, way in zip(outs, ways_out, strict=True)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


class RecurrentOperator(OpRun):
    """A recurrent operator in one or both directions; sequence lengths and peepholes are refused before."""

    op_domain = ""
    states = 1
    step: ClassVar[Callable[..., list[np.ndarray]]]

    def _run(self, x: np.ndarray, w: np.ndarray, r: np.ndarray, *rest: Any, **at: Any) -> tuple[np.ndarray, ...]:
        b, _, *given = (*rest, *[None] * 4)[:4]
        outs, ends = [], []
        for d, against in enumerate(DIRECTIONS[at.get("direction") or "forward"]):
            still = np.zeros((x.shape[1], at["hidden_size"]), x.dtype)
            states, steps = [still if s is None else s[d] for s in given[: self.states]], []
            for t in reversed(range(len(x))) if against else range(len(x)):
                states = self.step(x[t], w[d].T, r[d].T, None if b is None else b[d], *states)
                steps.append(states[0])
            outs.append(np.stack(steps[::-1] if against else steps))
            ends.append(states)
        return np.stack(outs, 1), *(np.stack(last) for last in zip(*ends, strict=True))


class GRU(RecurrentOperator):
    @staticmethod
    def step(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: Any, h: np.ndarray) -> list[np.ndarray]:
        """h after a step."""
        wb, rb = (0.0, 0.0) if b is None else np.split(b, 2)
        zx, rx, mx = np.split(x @ w + wb, 3, axis=1)
        zh, rh, mh = np.split(h @ r + rb, 3, axis=1)
        z, reset = sigmoid(zx + zh), sigmoid(rx + rh)
        return [(1 - z) * np.tanh(mx + reset * mh) + z * h]


class LSTM(RecurrentOperator):
    states = 2

    @staticmethod
    def step(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: Any, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
        """h and c after a step."""
        i, o, f, m = np.split(x @ w + h @ r + (0.0 if b is None else b.reshape(2, -1).sum(0)), 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(m)
        return [sigmoid(o) * np.tanh(c), c]


OWN: list[type[OpRun]] = [
    Conv, ConvTranspose, MaxPool, AveragePool, MaxUnpool, Resize, Pad, Erf, GatherElements, HardSigmoid, HardSwish,
    LogSoftmax, MatMul, Scan, GRU, LSTM,
]  # fmt: skip
