"""A torch module -> a bundle: export, differentiate, gate, pack. Either the whole of it or an error and no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

from models import container, targets
from models.errors import CompileError, ParityError
from models.export import TRACE_BATCH, export_forward
from models.gate import DataInput, Truth, check_float32, check_semantics
from models.golden import TOLERANCE, golden, packed
from models.graph import Batch, Shape
from models.layout import Slot, buffer_slots, flatten, parameter_slots
from models.losses import LOSSES
from models.proto import IR_VERSION, OPSET
from models.targets import Source, Target

RUNTIME = {
    "opset": OPSET,
    "ir": IR_VERSION,
    "onnxruntime": {"minimum": "1.20.0", "blocked": ["1.21.0"]},  # 1.21.0 crashes at import on a Raspberry Pi 4
    "session": {"optimisation": "extended", "arena": True, "memory_pattern": False, "spinning": False},
}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Spec:
    """What to compile.

    Attributes:
        name: of the model, in the manifest.
        input: shape of one sample. classes: number of outputs that are classes; 0 for other losses than cross entropy.
        loss: a key of LOSSES.
        below: the input holds integers in [0, below), for embeddings.
        groups: group name -> comma-separated prefixes of parameter names; None: the module's top-level parts.
        partial: groups that get a gradient graph of their own; None: all of them, if there are at least two.
        features: path of the layer whose result is offered as features; "" for none.
        max_batch: the largest batch that a device puts through at once.
    """

    name: str
    input: tuple[int, ...]
    classes: int = 0
    loss: str = "cross_entropy"
    below: int | None = None
    groups: Mapping[str, str] | None = None
    partial: Sequence[str] | None = None
    features: str = ""
    max_batch: int = 64

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise CompileError(f"loss {self.loss!r}: there are {', '.join(LOSSES)}")
        if not self.input or any(d < 1 for d in self.input):
            raise CompileError(f"input {self.input}: the shape of one sample, without the batch, e.g. 3,64")


@dataclass
class Compiled:
    """A bundle in memory. `data` is the file."""

    spec: Spec
    data: bytes
    parameters: int
    nodes: dict[str, int] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        container.write(path, self.data)


def compile_module(net: nn.Module, spec: Spec, progress: Progress = lambda text: None) -> Compiled:
    """Compile `net` (in evaluation mode) with its present parameters as theta0.

    Raises:
        CompileError: the module cannot be compiled, or its graphs are not right; see models/errors.py.
    """
    slots, buffers = parameter_slots(net, spec.groups), buffer_slots(net)
    inputs = [DataInput("x", spec.input, spec.below)]
    progress(f"{spec.name}: {sum(s.size for s in slots):,} parameters in {len(slots)} tensors")
    forward = export_forward(net, slots, ["x"], [example(i) for i in inputs])
    source = Source(forward, slots, buffers)
    spec = with_classes(spec, source.output_shape)
    graphs = make_graphs(source, spec)
    progress("graphs: " + ", ".join(f"{k} {len(t.model().graph.node)} nodes" for k, t in graphs.items()))
    fixed = vectors(net, slots, buffers)
    truth = Truth(net, inputs, spec.loss)
    y_shape = target_shape(spec, source.output_shape)
    models = {k: t.model() for k, t in graphs.items()}
    runs = {k: Session(m) for k, m in models.items()}
    errors = check(graphs, runs, truth, fixed, y_shape, progress)
    vector = golden(lambda feeds: answers(runs, fixed, feeds), truth, slots, y_shape)
    data = pack(spec, slots, buffers, graphs, models, fixed, vector, errors, source.output_shape)
    progress(f"bundle: {len(data):,} bytes")
    return Compiled(spec, data, sum(s.size for s in slots), {k: len(m.graph.node) for k, m in models.items()}, errors)


def example(i: DataInput) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if i.below:
        return torch.randint(0, i.below, (TRACE_BATCH, *i.shape), generator=generator)
    return torch.randn(TRACE_BATCH, *i.shape, generator=generator)


def with_classes(spec: Spec, output: Shape) -> Spec:
    """The number of classes, checked against the module's output."""
    made = output[1] if len(output) == 2 else 0
    if spec.loss != "cross_entropy":
        return replace(spec, classes=0)
    if spec.classes and spec.classes != made:
        raise CompileError(f"classes = {spec.classes}, but the module returns {made or output[1:]} per sample")
    return replace(spec, classes=made)


def make_graphs(source: Source, spec: Spec) -> dict[str, Target]:
    graphs = {
        "predict": targets.predict(source),
        "loss_grad": targets.loss_grad(source, spec.loss),
        "vjp": targets.vjp(source),
    }
    if spec.features:
        graphs["features"] = targets.features(source, spec.features)
    named = sorted({s.group for s in source.parameters} - {""})
    wanted = spec.partial if spec.partial is not None else (named if len(named) > 1 else [])
    return graphs | {f"loss_grad@{group}": targets.loss_grad(source, spec.loss, [group]) for group in wanted}


def vectors(net: nn.Module, slots: Sequence[Slot], buffers: Sequence[Slot]) -> dict[str, np.ndarray]:
    """theta0 and, where there are any, the running statistics; float64 numbers that are exact in float32."""
    state = dict(net.named_parameters()) | dict(net.named_buffers())
    named = {"theta": list(slots), "buffers": list(buffers)}
    return {k: flatten(state, v).float().double().numpy() for k, v in named.items() if v}


def target_shape(spec: Spec, output: Shape) -> tuple[int, ...]:
    """(-classes,) for labels, else the shape of y per sample."""
    return (-spec.classes,) if spec.loss == "cross_entropy" else tuple(int(d) for d in output[1:])


class Session:
    """A float32 graph on onnxruntime, with the options that devices use."""

    def __init__(self, model) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.enable_mem_pattern, options.log_severity_level = False, 3
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs = [i.name for i in self.session.get_inputs()]

    def __call__(self, *sources: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for s in sources:
            values.update(s)
        return self.session.run(None, {n: as_single(values[n]) for n in self.inputs})


def as_single(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float32) if a.dtype == np.float64 else a


def answers(runs: Mapping[str, Session], *sources: Mapping[str, np.ndarray]):
    """(output, loss, gradient) for one batch."""
    loss, grad = runs["loss_grad"](*sources)[:2]
    return runs["predict"](*sources)[0], loss, grad


def check(graphs, runs, truth: Truth, fixed, y_shape, progress: Progress) -> dict[str, float]:
    """The parity gate over all graphs."""
    slots = graphs["loss_grad"].slots
    errors = {"float64": check_semantics(graphs["loss_grad"], slots, truth, fixed, y_shape)}
    progress(f"parity in float64: {errors['float64']:.1e} (limit 1e-06)")
    errors["float32"] = check_float32(lambda data: runs["loss_grad"](fixed, data)[1], truth, y_shape)
    progress(f"parity in float32: {errors['float32']:.1e}")
    check_consistency(graphs, runs, truth, fixed, y_shape)
    progress("the other graphs agree with loss_grad")
    return errors


def check_consistency(graphs, runs, truth: Truth, fixed, y_shape) -> None:
    """Partial gradients equal the slice of the whole one bit for bit; vjp pulls the loss's cotangent back to
    its gradient.
    """
    from models.gate import Case, draw

    data = {k: v.numpy() for k, v in draw(Case("consistency", 400, 3), truth.inputs, y_shape).items()}
    whole = runs["loss_grad"](fixed, data)[1]
    for name, target in graphs.items():
        if name.startswith("loss_grad@"):
            part = runs[name](fixed, data)[1]
            want = np.concatenate([whole[s.offset : s.offset + s.size] for s in target.slots])
            if not np.array_equal(part, want):
                raise ParityError(name, "bit for bit", name.split("@")[1], float(np.abs(part - want).max()), 0.0)
    output = runs["predict"](fixed, data)[0]
    cotangent = loss_cotangent(truth.loss, output, data)
    again, grad = runs["vjp"](fixed, data, {"cotangent": cotangent})[:2]
    error = np.linalg.norm(grad - whole) / max(np.linalg.norm(whole), 1e-30)
    if not np.array_equal(again, output) or not error <= 1e-4:
        raise ParityError("vjp", "the loss's cotangent", "the gradient", float(error), 1e-4)


def loss_cotangent(loss: str, output: np.ndarray, data: Mapping[str, np.ndarray]) -> np.ndarray:
    """dloss/doutput by autograd on the output alone."""
    from models.gate import TORCH_LOSSES

    z = torch.from_numpy(output.astype(np.float64)).requires_grad_()
    value = (torch.from_numpy(data["weights"]) * TORCH_LOSSES[loss](z, torch.from_numpy(data["y"]))).sum()
    return torch.autograd.grad(value, z)[0].numpy()


def pack(spec: Spec, slots, buffers, graphs, models, fixed, vector, errors, output: Shape) -> bytes:
    index, golden_bytes = packed(vector)
    parts = {
        "layout.json": container.json_bytes([s.as_json() for s in slots]),
        "theta0": fixed["theta"].astype("<f4").tobytes(),
    }
    if buffers:
        parts["buffers.json"] = container.json_bytes([s.as_json() for s in buffers])
        parts["buffers0"] = fixed["buffers"].astype("<f4").tobytes()
    parts |= {f"{name}.onnx": model.SerializeToString(deterministic=True) for name, model in models.items()}
    parts["golden"] = golden_bytes
    parts["report.json"] = container.json_bytes(report(errors))
    manifest = {
        "name": spec.name,
        "parameters": sum(s.size for s in slots),
        "buffers": sum(s.size for s in buffers),
        "input": {"shape": list(spec.input), "dtype": "int64" if spec.below else "float32", "below": spec.below},
        "output": [int(d) for d in output[1:]],
        "classes": spec.classes,
        "loss": spec.loss,
        "max_batch": spec.max_batch,
        "graphs": {k: graph_entry(graphs[k], models[k]) for k in graphs},
        "golden": {"arrays": index, "tolerance": TOLERANCE},
        "runtime": RUNTIME,
    }
    return container.bundle_bytes(manifest, parts)


def graph_entry(target: Target, model) -> dict:
    return {
        "inputs": [{"name": i.name, "shape": dims(target, i.name)} for i in model.graph.input],
        "outputs": [{"name": o.name, "shape": dims(target, o.name)} for o in model.graph.output],
        "groups": sorted({s.group for s in target.slots}),
    }


def dims(target: Target, name: str) -> list:
    return ["B" if isinstance(d, Batch) else d for d in target.graph.shapes[name]]


def report(errors: Mapping[str, float]) -> dict:
    """What the gate measured, rounded up to a power of ten. Not part of the bundle's identity."""
    rounded = {k: 10.0 ** int(np.ceil(np.log10(max(v, 1e-17)))) for k, v in errors.items()}
    return {"parity": rounded, "limits": {"float64": 1e-6, "float32": 1e-4}}
