"""The graphs of a bundle that begin behind its front, and the front itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from edge_sdk.model.manifest import FROM_FRONT, FRONT
from edge_sdk.models.bundle.graphs import write_loss_grad
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.front import Front, cut_front, write_front
from edge_sdk.models.derive.targets import Source, Target
from edge_sdk.models.gate.graphs.check import YShape
from edge_sdk.models.gate.graphs.front import find_difference
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.shapes import as_numbers
from edge_sdk.models.ir.specification.spec import Spec

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

    def add(self, name: str, graph: Target) -> None:
        """Add a graph, and what is made of it."""
        self.graphs[name], self.models[name] = graph, graph.model()
        self.runs[name] = RunnableGraph(self.models[name])

    def compute(self, fixed: Arrays, data: Arrays) -> Arrays:
        """What the front makes of a batch, beside the batch."""
        return {**data, **self.runs[FRONT](fixed, data)} if self.runs else data


Compare = Callable[[FrontGraphs, str, RunnableGraph], str]
"""A front, a graph that begins with the data, the same behind the front -> what differs; "": nothing."""


def build_front_graphs(
    spec: Spec,
    source: Source,
    trained: Source,
    runs: Mapping[str, RunnableGraph],
    truth: Truth,
    fixed: Arrays,
    y_shape: YShape,
    progress: Progress,
) -> FrontGraphs:
    """The front of a bundle where it has one that gives the same bits, and the graphs that begin behind it.

    There is none with the statistics of a batch, in which samples depend on each other, and none beside the blocked and
    the native form of a graph, which round differently.

    Args:
        source, trained: the module as it is in evaluation and in training. runs: graphs that begin with the data.
    """
    if spec.norm != "frozen" or spec.blocked or spec.native:
        return FrontGraphs()

    def compare(found: FrontGraphs, graph: str, run: RunnableGraph) -> str:
        return find_difference(found.runs[FRONT], runs[graph], run, truth, fixed, y_shape)

    try:
        return choose_front(spec, source, trained, compare, progress)
    except Exception as error:  # whatever it is: a bundle without a front is as right
        progress(f"front: left out: {type(error).__name__}: {str(error)[:200]}")
        return FrontGraphs()


def choose_front(spec: Spec, source: Source, trained: Source, compare: Compare, progress: Progress) -> FrontGraphs:
    """The front in the first form that gives the same bits: as graphs that predict compute it, or those that train."""
    names, why = [i.name for i in spec.list_inputs()], ""
    front = cut_front(trained, names)
    for found in (make_front(front, spec, trains) for trains in (False, True) if front):
        if why := compare(found, "loss_grad", found.runs[TRAINED]):
            continue
        for judged in make_predictions(front, front if source is trained else cut_front(source, names)):
            if not compare(found, "predict", RunnableGraph(judged.model())):
                found.add(JUDGED, judged)
        progress(describe(found))
        return found
    if why:
        progress(f"front: left out: {why}")
    return FrontGraphs()


def make_front(front: Front, spec: Spec, trains: bool) -> FrontGraphs:
    """The front, written as of `write_front`, and the gradient behind it."""
    first = write_front(front, trains)
    shapes = {name: as_numbers(first.graph.shape(name)[1:]) for name in front.dtypes}
    values = [{"name": n, "shape": [*shapes[n]], "dtype": dtype} for n, dtype in front.dtypes.items()]
    found = FrontGraphs(values=values)
    found.add(FRONT, first)
    found.add(TRAINED, write_loss_grad(front.rest, spec))
    return found


def make_predictions(front: Front | None, other: Front | None) -> list[Target]:
    """The prediction behind a front, as evaluation has it; none where evaluation is cut elsewhere.

    Values of the same shapes and types are taken for the same ones; whether they are, the comparison says.
    """
    if front is None or other is None or front.dtypes != other.dtypes or front.shapes() != other.shapes():
        return []
    return [targets.write_predict(other.rest)]


def describe(found: FrontGraphs) -> str:
    """What is kept, for people."""
    kept = ", ".join(f"{v['dtype']} {tuple(v['shape'])}" for v in found.values)
    judged = "" if JUDGED in found.graphs else "; predictions begin with the data"
    return f"front: {len(found.models[FRONT].graph.node)} nodes are computed once for each sample, kept: {kept}{judged}"
