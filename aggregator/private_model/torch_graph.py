"""The forward graph of a bundle in torch: the devices' model on the aggregator, with gradients, on a GPU where there is
one, from the one file that everybody has. onnxruntime on a device and this agree within rounding; that is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle

Tensor = torch.Tensor
Values = Sequence[Any]
Operator = Callable[[Values, Mapping[str, Any]], Any]

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
LINEAR = ("Gemm", "MatMul")
CASTS = {onnx.TensorProto.INT64: torch.int64, onnx.TensorProto.INT32: torch.int32, onnx.TensorProto.BOOL: torch.bool}
"""To numbers of which there is one kind; floats stay of the kind that this graph has."""


# Operators ------------------------------------------------------------------------------------------------------
def ints(value: Any) -> list[int]:
    return [int(v) for v in value.reshape(-1).tolist()]


def padding(x: Tensor, a: Mapping[str, Any], value: float = 0.0) -> Tensor:
    """ONNX pads all starts, then all ends; torch from the last axis on."""
    pads, nd = list(a.get("pads") or []), x.ndim - 2
    if not any(pads):
        return x
    return F.pad(x, [p for i in reversed(range(nd)) for p in (pads[i], pads[nd + i])], value=value)


def conv(v: Values, a: Mapping[str, Any]) -> Tensor:
    nd = v[0].ndim - 2
    bias = v[2] if len(v) > 2 else None
    strides, dilations = a.get("strides") or [1] * nd, a.get("dilations") or [1] * nd
    convolve: Callable[..., Tensor] = CONVOLUTIONS[nd]
    return convolve(padding(v[0], a), v[1], bias, strides, 0, dilations, a.get("group", 1))


def max_pool(v: Values, a: Mapping[str, Any]) -> Tensor:
    nd = v[0].ndim - 2
    strides, dilations = a.get("strides") or [1] * nd, a.get("dilations") or [1] * nd
    x = padding(v[0], a, -torch.inf)
    pool: Callable[..., Tensor] = MAX_POOLS[nd]
    return pool(x, list(a["kernel_shape"]), strides, 0, dilations, bool(a.get("ceil_mode")))


def average_pool(v: Values, a: Mapping[str, Any]) -> Tensor:
    nd = v[0].ndim - 2
    if any(a.get("pads") or []) and not a.get("count_include_pad"):
        raise UsageError("AveragePool that leaves its padding out of the mean")
    pool: Callable[..., Tensor] = AVERAGE_POOLS[nd]
    return pool(padding(v[0], a), list(a["kernel_shape"]), a.get("strides") or [1] * nd)


def gemm(v: Values, a: Mapping[str, Any]) -> Tensor:
    left, right = v[0].mT if a.get("transA") else v[0], v[1].mT if a.get("transB") else v[1]
    y: Tensor = a.get("alpha", 1.0) * (left @ right)
    return y + a.get("beta", 1.0) * v[2] if len(v) > 2 else y


def batch_normalization(v: Values, a: Mapping[str, Any]) -> Tensor:
    # torch's own refuses an epsilon of 0, which compiled norms have
    x = v[0]
    scale, bias, mean, variance = (each.view(-1, *[1] * (x.ndim - 2)) for each in v[1:])
    y: Tensor = (x - mean) * (scale * torch.rsqrt(variance + a.get("epsilon", 1e-5))) + bias
    return y


def layer_normalization(v: Values, a: Mapping[str, Any]) -> Tensor:
    shape = v[0].shape[a.get("axis", -1) :]
    bias = v[2].expand(shape) if len(v) > 2 else None
    return F.layer_norm(v[0], shape, v[1].expand(shape), bias, a.get("epsilon", 1e-5))


def reshape(v: Values, a: Mapping[str, Any]) -> Tensor:
    x: Tensor = v[0]
    shape = ints(v[1])
    if not a.get("allowzero"):
        shape = [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return x.reshape(shape)


def unsqueeze(v: Values, a: Mapping[str, Any]) -> Tensor:
    x: Tensor = v[0]
    axes = ints(v[1])
    rank = x.ndim + len(axes)
    for axis in sorted(i % rank for i in axes):
        x = x.unsqueeze(axis)
    return x


def reduced(of: Callable[..., Tensor]) -> Operator:
    def call(v: Values, a: Mapping[str, Any]) -> Tensor:
        axes = ints(v[1]) if len(v) > 1 else list(a.get("axes") or range(v[0].ndim))
        return of(v[0], dim=axes, keepdim=bool(a.get("keepdims", 1)))

    return call


def sliced(v: Values, a: Mapping[str, Any]) -> Tensor:
    starts, ends = ints(v[1]), ints(v[2])
    axes = ints(v[3]) if len(v) > 3 else list(range(len(starts)))
    steps = ints(v[4]) if len(v) > 4 else [1] * len(starts)
    index = [slice(None)] * v[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0:
            raise UsageError("Slice that runs backwards")
        index[axis] = slice(start, end, step)
    x: Tensor = v[0]
    return x[tuple(index)]


def gather(v: Values, a: Mapping[str, Any]) -> Tensor:
    x: Tensor = v[0]
    axis = a.get("axis", 0) % x.ndim
    index = v[1].long() % x.shape[axis]
    return x.index_select(axis, index.reshape(-1)).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def elementwise(of: Callable[..., Tensor]) -> Operator:
    return lambda v, a: of(*v)


OPERATORS: Mapping[str, Operator] = {
    "Conv": conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda v, a: v[0].mean(dim=tuple(range(2, v[0].ndim)), keepdim=True),
    "Gemm": gemm,
    "MatMul": elementwise(torch.matmul),
    "BatchNormalization": batch_normalization,
    "LayerNormalization": layer_normalization,
    "Reshape": reshape,
    "Flatten": lambda v, a: v[0].flatten(a.get("axis", 1)),
    "Unsqueeze": unsqueeze,
    "Squeeze": lambda v, a: v[0].squeeze(tuple(ints(v[1]))) if len(v) > 1 else v[0].squeeze(),
    "Transpose": lambda v, a: v[0].permute(*a.get("perm", tuple(reversed(range(v[0].ndim))))),
    "Concat": lambda v, a: torch.cat(list(v), a["axis"]),
    "Split": lambda v, a: torch.split(v[0], ints(v[1]), a.get("axis", 0)),
    "Slice": sliced,
    "Gather": gather,
    "Tile": lambda v, a: v[0].repeat(ints(v[1])),
    "Expand": lambda v, a: v[0].expand(np.broadcast_shapes(v[0].shape, tuple(ints(v[1])))),
    "Shape": lambda v, a: torch.tensor(v[0].shape),
    "ReduceMean": reduced(torch.mean),
    "ReduceSum": reduced(torch.sum),
    "Softmax": lambda v, a: v[0].softmax(a.get("axis", -1)),
    "LogSoftmax": lambda v, a: v[0].log_softmax(a.get("axis", -1)),
    "LeakyRelu": lambda v, a: F.leaky_relu(v[0], a.get("alpha", 0.01)),
    "Elu": lambda v, a: F.elu(v[0], a.get("alpha", 1.0)),
    "Clip": lambda v, a: v[0].clamp(*(x if x is None else float(x) for x in [*v[1:], None, None][:2])),
    "Identity": lambda v, a: v[0],
    "Add": elementwise(torch.add),
    "Sub": elementwise(torch.sub),
    "Mul": elementwise(torch.mul),
    "Div": elementwise(torch.div),
    "Pow": elementwise(torch.pow),
    "Neg": elementwise(torch.neg),
    "Abs": elementwise(torch.abs),
    "Relu": elementwise(torch.relu),
    "Sigmoid": elementwise(torch.sigmoid),
    "Tanh": elementwise(torch.tanh),
    "Softplus": elementwise(F.softplus),
    "Exp": elementwise(torch.exp),
    "Log": elementwise(torch.log),
    "Sqrt": elementwise(torch.sqrt),
    "Reciprocal": elementwise(torch.reciprocal),
    "Erf": elementwise(torch.erf),
    "HardSigmoid": lambda v, a: (a.get("alpha", 0.2) * v[0] + a.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": elementwise(F.hardswish),
    "Mish": elementwise(F.mish),
    "Where": elementwise(torch.where),
    "Greater": elementwise(torch.gt),
    "GreaterOrEqual": elementwise(torch.ge),
    "Less": elementwise(torch.lt),
    "LessOrEqual": elementwise(torch.le),
    "Equal": elementwise(torch.eq),
    "Not": elementwise(torch.logical_not),
    "And": elementwise(torch.logical_and),
    "Or": elementwise(torch.logical_or),
    "Max": lambda v, a: reduce(torch.maximum, v),
    "Min": lambda v, a: reduce(torch.minimum, v),
    "Cast": lambda v, a: v[0].to(CASTS[a["to"]]) if a["to"] in CASTS else v[0],
}


# Graph ----------------------------------------------------------------------------------------------------------
class TorchGraph:
    """A bundle's model.

    Args:
        bundle: with one input; its running statistics, if any, stay as they are.
        device: "cpu" or "cuda". dtype: float32, or float64 to check.

    Raises:
        UsageError: it has an operator that is not here, or a gradient of its own, or does not give what the bundle's
            golden vectors say.
    """

    def __init__(self, bundle: Bundle, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.bundle, self.device, self.dtype = bundle, device, dtype
        if bundle.own_gradient:
            told = "stops gradients, or brings its own: an aggregator cannot train it, choose another network"
            raise UsageError(f"{bundle.manifest['name']} {told}")
        graph = onnx.load_from_string(bytes(bundle.parts["predict.onnx"])).graph
        self.nodes = [
            (n.op_type, list(n.input), list(n.output), {a.name: attribute(a) for a in n.attribute}) for n in graph.node
        ]
        self.constants = {i.name: self.constant(numpy_helper.to_array(i)) for i in graph.initializer}
        if len(bundle.buffers.slots):
            self.constants["buffers"] = self.constant(bundle.buffers0)
        self.output = graph.output[0].name
        self.inputs = [i.name for i in graph.input if i.name not in ("theta", "buffers")]
        if strange := sorted({kind for kind, *_ in self.nodes} - set(OPERATORS)):
            raise UsageError(f"{bundle.manifest['name']}: an aggregator cannot differentiate {', '.join(strange)} yet")
        last = [inputs for kind, inputs, *_ in self.nodes if kind in LINEAR]
        self.features = last[-1][0] if last else self.output
        self.check()

    def constant(self, value: np.ndarray) -> Tensor:
        """Shapes and indices stay on the CPU, where they are read."""
        found = torch.tensor(value)
        return found.to(self.device, self.dtype) if found.is_floating_point() else found

    def __call__(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, d), which is what goes into the last linear layer, and outputs (B, ...)."""
        values = {**self.constants, "theta": theta, self.inputs[0]: x}
        for kind, inputs, outputs, attributes in self.nodes:
            made = OPERATORS[kind]([values[i] if i else None for i in inputs], attributes)
            values.update(zip(outputs, made if isinstance(made, tuple) else (made,), strict=False))
        return values[self.features].flatten(1), values[self.output]

    def check(self) -> None:
        golden = self.bundle.golden()
        x, wanted = self.constant(golden[f"in.{self.inputs[0]}"]), golden["out.logits"]
        found = self(self.constant(self.bundle.theta0), x)[1].cpu().numpy()
        off = float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-30))
        limit = float(self.bundle.manifest["golden"]["tolerance"]["logits"])
        if not off <= limit:
            name = self.bundle.manifest["name"]
            raise UsageError(f"{name}: its golden vectors fail on torch {torch.__version__}: off by {off:.1e}")


def attribute(a: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(a)
    return value.decode() if isinstance(value, bytes) else value
