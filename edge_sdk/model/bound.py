"""Functions of theta alone, over samples that are bound to a model: what trains on them, and what judges by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import Cancelled
from edge_sdk.model import inputs
from edge_sdk.model.dropout import step_masks
from edge_sdk.model.front import BoundSamples, Fronted
from edge_sdk.model.inputs import Array, Floats
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.tasks.task import ModelTask
from edge_sdk.model.whole_batches import check_chosen

GradFn = Callable[..., tuple[float, Vector]]
ScoreFn = Callable[[Vector], Mapping[str, float]]
OutputFn = Callable[[Vector], Floats]
Cancel = Callable[[], bool]

FORWARD_BATCH = 64
"""Samples that go through a forward graph at once: larger batches are hardly faster and cost a device its memory."""


class Binding(Fronted, Protocol):
    """A model, as far as these functions need it."""

    buffers0: Floats

    @property
    def task(self) -> ModelTask: ...
    @property
    def loss(self) -> str: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def output_shape(self) -> tuple[int, ...]: ...
    def parameters(self, theta: Vector) -> Floats: ...
    def session(self, graph: str) -> OnnxSession: ...


def make_gradient(model: Binding, rows: BoundSamples, y: Array, cancel: Cancel | None) -> GradFn:
    """The function that `Model.grad_fn` returns, for checked targets."""
    graph = rows.choose("loss_grad")
    most = 0 if model.drop_sites or len(model.buffers0) else model.max_batch

    def gradient(theta: Vector, indices: Any = None, random: np.random.Generator | None = None) -> tuple[float, Vector]:
        chosen = np.arange(len(rows)) if indices is None else np.asarray(indices)
        check_chosen(model.bundle.manifest, len(chosen))
        theta, loss = model.parameters(theta), 0.0
        if len(chosen) <= most and (cancel is None or not cancel()):  # as nearly always: no array but these
            feeds = rows.feed(graph, theta, chosen)
            feeds |= {"y": y[chosen], "weights": inputs.even_weights(len(chosen))}
            part, grad = model.session(graph).run(feeds)[:2]
            return float(part), grad
        total: Floats | None = None
        for step in model.batches(chosen):
            give_way(cancel, "training")
            weights = inputs.even_weights(len(chosen))[: len(step)]
            feeds = rows.feed(graph, theta, step) | {"y": y[step], "weights": weights}
            feeds |= step_masks(model.drop_sites, len(step), random)
            part, grad = model.run(graph, feeds, None)[:2]
            loss, total = loss + float(part), grad if total is None else np.add(total, grad, out=total)
        assert total is not None
        return loss, total

    return gradient


def make_outputs(model: Binding, rows: BoundSamples) -> OutputFn:
    """The function that `Model.predict_fn` returns."""
    graph, none = rows.choose("predict"), np.zeros((0, *model.output_shape), np.float32)

    def outputs(theta: Vector) -> Floats:
        theta, steps = model.parameters(theta), model.batches(np.arange(len(rows)), FORWARD_BATCH)
        return np.concatenate([none, *(model.run(graph, rows.feed(graph, theta, s), None)[0] for s in steps)])

    return outputs


def make_score(model: Binding, rows: BoundSamples, y: Array, cancel: Cancel | None) -> ScoreFn:
    """The function that `Model.score` returns, for checked targets."""
    graph, none = rows.choose("predict"), np.zeros((0, *model.output_shape), np.float32)

    def sums(theta: Vector) -> Mapping[str, float]:
        theta, out = model.parameters(theta), {"loss": 0.0, "samples": float(len(rows))}
        out |= model.task.counts(y[:0], none)
        for step in model.batches(np.arange(len(rows)), FORWARD_BATCH):
            give_way(cancel, "evaluation")
            z = model.run(graph, rows.feed(graph, theta, step), None)[0]
            out["loss"] += float(inputs.compute_losses(model.loss, z, y[step]).sum())
            for name, value in model.task.counts(y[step], z).items():
                out[name] += value
        return out | model.task.of_a_device(out)

    return sums


def give_way(cancel: Cancel | None, what: str) -> None:
    """Raises Cancelled if `cancel` says so."""
    if cancel is not None and cancel():
        raise Cancelled(f"{what} was given up before a step")
