"""Puts a bundle together from its manifest and parts, which models/README.md describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, log10
from typing import Any

import numpy as np
import onnx

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.dropout import DropSite, write_sites
from edge_sdk.model.forms import NATIVE, native_part
from edge_sdk.model.manifest import FRONT
from edge_sdk.model.tasks.signal_spec import write_signal
from edge_sdk.model.theta_tensors import TENSORS, tensor_part
from edge_sdk.models.bundle import container
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import TensorGraph
from edge_sdk.models.gate.graphs.gate import FLOAT32_LIMIT
from edge_sdk.models.gate.graphs.golden import pack_arrays
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT
from edge_sdk.models.ir.proto import IR_VERSION, OPSET
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.ir.specification.spec import DataInput, Spec

RUNTIME = {
    "opset": OPSET,
    "ir": IR_VERSION,
    "onnxruntime": {"minimum": "1.20.0", "blocked": ["1.21.0"]},  # 1.21.0 crashes at import on a Raspberry Pi 4
    "session": {"optimisation": "extended", "arena": True, "memory_pattern": False, "spinning": False},
}

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class BundleState:
    """The tensors of a bundle, and the values that the model starts from.

    Attributes:
        slots, buffers: where each tensor of theta, and of the buffers, lies.
        fixed: "theta" (and "buffers").
    """

    slots: Sequence[Slot]
    buffers: Sequence[Slot] = ()
    fixed: Arrays


@dataclass(frozen=True, kw_only=True)
class BundleGraphs:
    """The graphs of a bundle, by name.

    Attributes:
        graphs: as they were derived. models: as they are written.
        tensors: second forms of graphs, that take the tensors of theta one by one.
        native: forms with operators of auscult-native, made of the second forms where there are such.
    """

    graphs: Mapping[str, Target]
    models: Mapping[str, onnx.ModelProto]
    tensors: Mapping[str, TensorGraph] = field(default_factory=dict)
    native: Mapping[str, Target] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BundleChecks:
    """What a device checks a bundle by, and what the gate has measured.

    Attributes:
        golden: inputs, and what must come out.
        tolerance: errors that a device is allowed with them.
        errors: measured by the gate.
    """

    golden: Arrays
    tolerance: Mapping[str, float]
    errors: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BundleFacts:
    """What a device has to know of a model beside its graphs.

    Attributes:
        inputs: its data inputs.
        output: shape of the output for one sample.
        split: towers and parties, for split models.
        sites: places that drop values at random.
        least: samples that a training step needs at least.
        front: what a device keeps of a sample where it computes the front once.
        own_gradient: the gradient is not the derivative of what `predict` computes.
    """

    inputs: Sequence[DataInput]
    output: Sequence[int]
    split: Mapping[str, Any] | None = None
    sites: Sequence[DropSite] = ()
    least: int = 1
    front: Sequence[Mapping[str, Any]] = ()
    own_gradient: bool = False


def pack_bundle(
    spec: Spec, state: BundleState, graphs: BundleGraphs, checks: BundleChecks, facts: BundleFacts
) -> bytes:
    """The bytes of a bundle file."""
    index, golden_bytes = pack_arrays(dict(checks.golden))
    parts = {"layout.json": write_layout(state.slots), "theta0": to_little_endian(state.fixed["theta"])}
    if state.buffers:
        parts |= {"buffers.json": write_layout(state.buffers), "buffers0": to_little_endian(state.fixed["buffers"])}
    parts |= {f"{name}.onnx": model.SerializeToString(deterministic=True) for name, model in graphs.models.items()}
    for name, graph in graphs.tensors.items():
        parts[tensor_part(name)] = graph.target.model().SerializeToString(deterministic=True)
    for name, target in graphs.native.items():
        parts[native_part(name)] = target.model().SerializeToString(deterministic=True)
    report = write_report(checks.errors, graphs.models)
    parts |= {"golden": golden_bytes, "report.json": container.write_json(report)}
    manifest = {
        "name": spec.name,
        "parameters": sum(s.size for s in state.slots),
        "buffers": sum(s.size for s in state.buffers),
        "inputs": [describe_input(i) for i in facts.inputs],
        "output": [int(d) for d in facts.output],
        "classes": spec.classes,
        "loss": spec.loss,
        "norm": spec.norm,
        "max_batch": spec.max_batch,
        "split": facts.split,
        "graphs": {
            k: describe_graph(graph)
            | describe_tensors(graphs.tensors.get(k))
            | ({NATIVE: True} if k in graphs.native else {})
            for k, graph in graphs.graphs.items()
        },
        "golden": {"arrays": index, "tolerance": dict(checks.tolerance)},
        "runtime": RUNTIME,
    }
    return container.join_bundle(manifest | describe_extras(spec, facts), parts)


def describe_extras(spec: Spec, facts: BundleFacts) -> dict[str, Any]:
    """Entries of the manifest that only some bundles have: those without them stay the same to the byte."""
    found: dict[str, Any] = {}
    if spec.smoothing:
        found["smoothing"] = spec.smoothing
    if spec.augment.changes:
        found["augment"] = {name: amount for name, amount in asdict(spec.augment).items() if amount}
    if facts.least > 1:
        found["min_batch"] = facts.least
    if facts.sites:
        found["dropout"] = write_sites(facts.sites)
    if facts.own_gradient:
        found["own_gradient"] = True
    if facts.front:
        found[FRONT] = [*facts.front]
    if spec.class_names:
        found["class_names"] = list(spec.class_names)
    if spec.task is not None:
        found["task"] = spec.task.entry()
    if spec.signal is not None:
        found["signal"] = write_signal(spec.signal)
    return found


def write_layout(slots: Sequence[Slot]) -> bytes:
    """The part that says where each tensor lies."""
    return container.write_json([asdict(s) for s in slots])


def to_little_endian(values: np.ndarray) -> bytes:
    """Float32, little-endian."""
    return values.astype("<f4").tobytes()


def describe_input(i: DataInput) -> dict[str, Any]:
    """The manifest's entry for a data input."""
    return {"name": i.name, "shape": list(i.shape), "dtype": "int64" if i.below else "float32", "below": i.below}


def describe_graph(target: Target) -> dict[str, Any]:
    """The manifest's entry for a graph: inputs and outputs with shapes, and the groups whose gradient it gives."""
    model = target.model()
    return {
        "inputs": [{"name": i.name, "shape": list_dims(target, i.name)} for i in model.graph.input],
        "outputs": [{"name": o.name, "shape": list_dims(target, o.name)} for o in model.graph.output],
        "groups": sorted({s.group for s in target.slots}),
    }


def describe_tensors(graph: TensorGraph | None) -> dict[str, Any]:
    """What the entry of a graph says of its second form: the inputs that are tensors of theta, and the slot of each."""
    if graph is None:
        return {}
    shapes = graph.target.graph.shapes
    return {TENSORS: [{"name": k, "shape": list(shapes[k]), "slot": slot} for k, slot in graph.slots.items()]}


def list_dims(target: Target, name: str) -> list[int | str]:
    """The shape of a value; "B" is the batch."""
    return ["B" if isinstance(d, BatchDim) else d for d in target.graph.shapes[name]]


def write_report(errors: Mapping[str, float], models: Mapping[str, onnx.ModelProto]) -> dict[str, Any]:
    """The errors that the gate measured, rounded up to powers of ten; not part of the bundle's identity."""
    rounded = {k: 10.0 ** ceil(log10(max(v, 1e-17))) for k, v in errors.items()}
    nodes = {k: len(m.graph.node) for k, m in models.items()}
    return {"parity": rounded, "limits": {"float64": SEMANTIC_LIMIT, "float32": FLOAT32_LIMIT}, "nodes": nodes}
