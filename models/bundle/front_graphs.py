"""The graphs of a bundle that begin behind its front, and the front itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from edge_sdk.model.front_values import FROM_FRONT, FRONT
from edge_sdk.models.bundle.graphs import write_loss_grad
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.front import Front, cut_front
from edge_sdk.models.derive.targets import Source, Target
from edge_sdk.models.gate.check import YShape
from edge_sdk.models.gate.front import find_difference
from edge_sdk.models.gate.gate import Truth
from edge_sdk.models.gate.runnable import RunnableGraph
from edge_sdk.models.ir.shapes import as_numbers
from edge_sdk.models.ir.spec import Spec

Arrays = Mapping[str, np.ndarray]
Progress = Callable[[str], None]
TRAINED, JUDGED = f"loss_grad{FROM_FRONT}", f"predict{FROM_FRONT}"


@dataclass(frozen=True)
class FrontGraphs:
    """The front of a bundle; without graphs there is none.

    Attributes:
        graphs, models, runs: name -> graph, its file and its session.
        values: what a device keeps of a sample, as the manifest lists it.
    """

    graphs: dict[str, Target] = field(default_factory=dict)
    models: dict[str, onnx.ModelProto] = field(default_factory=dict)
    runs: dict[str, RunnableGraph] = field(default_factory=dict)
    values: list[dict[str, Any]] = field(default_factory=list)

    def compute(self, fixed: Arrays, data: Arrays) -> Arrays:
        """What the front makes of a batch, beside the batch."""
        return {**data, **self.runs[FRONT](fixed, data)} if self.runs else data


def build_front_graphs(
    spec: Spec, source: Source, trained: Source, runs: Mapping[str, RunnableGraph], truth: Truth, fixed: Arrays,
    y_shape: YShape, progress: Progress,
) -> FrontGraphs:  # fmt: skip
    """The front of a bundle where it has one that gives the same bits, and the graphs that begin behind it.

    There is none with the statistics of a batch, in which samples depend on each other, and none beside the blocked and
    the native form of a graph, which round differently.
    """
    if spec.norm != "frozen" or spec.blocked or spec.native:
        return FrontGraphs()
    names = [i.name for i in spec.list_inputs()]
    front = cut_front(trained, names)
    if front is None:
        return FrontGraphs()
    why = ""
    for trains in (False, True):
        found = make_front(front, spec, trains)
        why = find_difference(found.runs[FRONT], runs["loss_grad"], found.runs[TRAINED], truth, fixed, y_shape)
        if not why:
            add_prediction(found, front, source, trained, names, lambda run: find_difference(
                found.runs[FRONT], runs["predict"], run, truth, fixed, y_shape))  # fmt: skip
            progress(describe(found))
            return found
    progress(f"front: left out: {why}")
    return FrontGraphs()


def make_front(front: Front, spec: Spec, trains: bool) -> FrontGraphs:
    """The front, written as of `targets.write_front`, and the gradient behind it."""
    first = targets.write_front(front.source, front.values, trains)
    first.graph.dtypes |= {name: dtype.removesuffix("32") for name, dtype in front.dtypes.items()}
    found = FrontGraphs({FRONT: first, TRAINED: write_loss_grad(front.rest, spec)})
    for name in found.graphs:
        add(found, name)
    shapes = {name: as_numbers(first.graph.shape(name)[1:]) for name in front.dtypes}
    found.values.extend({"name": n, "shape": [*shapes[n]], "dtype": dtype} for n, dtype in front.dtypes.items())
    return found


def add(found: FrontGraphs, name: str) -> None:
    found.models[name] = found.graphs[name].model()
    found.runs[name] = RunnableGraph(found.models[name])


def add_prediction(
    found: FrontGraphs, front: Front, source: Source, trained: Source, names: Sequence[str],
    compare: Callable[[RunnableGraph], str],
) -> None:  # fmt: skip
    """Add the prediction behind the front, where that of evaluation begins with such values and gives the same bits."""
    other = front if source is trained else cut_front(source, names)
    if other is None or not ends_alike(front, other):
        return
    found.graphs[JUDGED] = targets.write_predict(other.rest)
    add(found, JUDGED)
    if compare(found.runs[JUDGED]):
        for some in (found.graphs, found.models, found.runs):
            some.pop(JUDGED)  # type: ignore[attr-defined]


def ends_alike(one: Front, other: Front) -> bool:
    """True if two fronts give values of the same shapes and types. Whether they are the same, the comparison says."""
    shapes = [[f.source.copy_exported().shape(v) for v in f.values] for f in (one, other)]
    return shapes[0] == shapes[1] and one.dtypes == other.dtypes


def describe(found: FrontGraphs) -> str:
    """What is kept, for people."""
    kept = ", ".join(f"{v['dtype']} {tuple(v['shape'])}" for v in found.values)
    judged = "" if JUDGED in found.graphs else "; predictions begin with the data"
    return f"front: {len(found.models[FRONT].graph.node)} nodes are computed once for each sample, kept: {kept}{judged}"
