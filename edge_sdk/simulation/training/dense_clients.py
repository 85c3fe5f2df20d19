"""Clients that train together where their network is a chain of dense layers: in one call of onnxruntime, on a core.

`edge_sdk.models` writes the graph (models/derive/dense_steps.py). It takes the products of a client's samples with each
other, which are the same in all rounds, and are kept with the client. What a client comes to differs by rounding from
what it would come to by itself, and does not depend on who else trains in the call: only clients with equally many
samples and steps of equal sizes go into one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.model.inputs import even_weights
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.simulation.training.batched_clients import CohortGradient, CohortTraining, WantedSteps
from edge_sdk.simulation.training.epochs import Terms, TrainingCalls

Floats = npt.NDArray[np.float32]
MOST_TOGETHER = 16
"""Clients in one call: their samples and what the layers give for them stay in a core's cache."""
WORTH = 20
"""Times steps x outputs of the first layer that the square of the samples may be: up to there the products of samples
with each other cost less than weights that are written in each step."""


TOO_MANY = "clients with more samples than a sample has numbers, or with very many, make their steps one by one"


class LayerSizes(Protocol):
    """Sizes of one layer: `edge_sdk.models.derive.dense.DenseLayer` has them."""

    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...


class DenseGradient(CohortGradient):
    """The gradient of a client whose network is a chain of dense layers."""

    training: DenseTraining

    @cached_property
    def flat(self) -> Floats:
        """Its samples as rows (N, d)."""
        return np.ascontiguousarray(self.x.reshape(len(self.x), -1), np.float32)

    @cached_property
    def gram(self) -> Floats:
        """The products of its samples with each other (N, N), the same in all rounds."""
        return self.flat @ self.flat.T

    @cached_property
    def targets(self) -> Floats:
        """Its labels as shares of classes (N, K)."""
        return self.training.shares[self.y]


@dataclass(frozen=True)
class Alike:
    """What clients of one call have in common.

    Attributes:
        samples: of each.
        sizes: of the steps.
    """

    samples: int
    sizes: tuple[int, ...]


class DenseTraining(CohortTraining):
    """What makes the steps of clients of one model that is a chain of dense layers.

    Args:
        layers: of the model, first to last.
    """

    gradient_type = DenseGradient

    def __init__(self, model: Model, layers: Sequence[LayerSizes], trained: TrainingCalls) -> None:
        super().__init__(model, not_stacked, "cpu", trained)
        smoothing, marks = float(model.bundle.manifest.get("smoothing", 0.0)), np.eye(model.classes, dtype=np.float32)
        self.layers, self.shares = layers, marks * np.float32(1 - smoothing) + np.float32(smoothing / model.classes)
        self.sessions: dict[Terms, OnnxSession] = {}
        module = importlib.import_module("edge_sdk.models.derive.dense_steps")
        self.write: Callable[[Sequence[LayerSizes], Collection[str]], bytes] = module.write_dense_steps

    def __call__(self, some: Sequence[WantedSteps]) -> list[list[float]]:
        """The losses of each client's steps, which are made: together, but for clients with very many samples."""
        found = [[] if self.is_worth_it(each) else self.make_singly(each) for each in some]
        at = [i for i, each in enumerate(some) if self.is_worth_it(each)]
        if len(at) < len(some):
            self.trained.note(f"{self.model.name}: {TOO_MANY}")
        for i, losses in zip(at, super().__call__([some[i] for i in at]) if at else [], strict=True):
            found[i] = losses
        return found

    def is_worth_it(self, wanted: WantedSteps) -> bool:
        """True if a client has few enough samples. Their products then take no more memory than they do."""
        samples, first = len(wanted.gradient.x), self.layers[0]
        return samples <= first.inputs and samples**2 <= WORTH * len(wanted.rows) * first.outputs

    def make(self, some: Sequence[WantedSteps]) -> list[list[float]]:
        alike: dict[Alike, list[int]] = {}
        for i, each in enumerate(some):
            alike.setdefault(Alike(len(each.gradient.x), tuple(map(len, each.rows))), []).append(i)
        found: dict[int, list[float]] = {}
        for which, at in alike.items():
            for part in np.array_split(at, -(-len(at) // MOST_TOGETHER)):
                found |= zip(part, self.make_alike([some[i] for i in part], which), strict=True)
        return [found[i] for i in range(len(some))]

    def make_alike(self, some: Sequence[WantedSteps], alike: Alike) -> list[list[float]]:
        """Makes steps in one call, on each v in place; returns their losses."""
        first = some[0]
        given = {"damp": first.damp, "push": first.pull is not None, "base": first.base is not None}
        terms = frozenset(name for name, there in given.items() if there)
        asked = [first, first] if len(some) == 1 else some  # of one client, onnxruntime adds up in another order
        ends, losses = self.session(terms).run({**feeds_of_samples(asked, alike), **feeds_of_terms(asked, terms)})
        for each, end in zip(some, ends, strict=False):
            each.v[...] = end
        return [line.tolist() for line in losses.T[: len(some)]]

    def session(self, terms: Terms) -> OnnxSession:
        if terms not in self.sessions:
            self.sessions[terms] = self.model.open("steps of clients", self.write(self.layers, terms), planned=True)
        return self.sessions[terms]


def feeds_of_samples(some: Sequence[WantedSteps], alike: Alike) -> dict[str, npt.NDArray[Any]]:
    """What the graph takes of samples, and of which of them are in a step: fewer in some, filled up with weight 0."""
    count, most = len(some), max(alike.sizes)
    holders: list[Any] = [each.gradient for each in some]
    order = np.zeros((len(alike.sizes), count, most, 2), np.int64)
    order[..., 0] = np.arange(count)[:, None]
    weights = np.zeros((len(alike.sizes), count, most, 1), np.float32)
    for k, size in enumerate(alike.sizes):
        order[k, :, :size, 1] = [each.rows[k] for each in some]
        weights[k, :, :size, 0] = even_weights(size)
    found = {name: np.stack([getattr(one, name) for one in holders]) for name in ("gram", "targets")}
    return {**found, "x": np.stack([one.flat for one in holders]), "order": order, "weights": weights}


def feeds_of_terms(some: Sequence[WantedSteps], terms: Terms) -> dict[str, npt.NDArray[Any]]:
    """What the graph takes of models and step sizes."""
    found = {"start": np.stack([each.v for each in some]), "eta": column([each.eta for each in some])}
    keeps = [float(np.float32(1 - each.eta * each.damp)) for each in some]
    steps = len(some[0].rows)
    if "damp" in terms:
        found |= {"keep": column(keeps), "kept": column([keep**steps for keep in keeps])}
    if "push" in terms:
        found["push"] = np.stack([each.eta * each.pull for each in some if each.pull is not None])
        found["pushed"] = column([sum(keep**k for k in range(steps)) for keep in keeps])
    if "base" in terms:
        found["base"] = np.stack([each.base for each in some if each.base is not None])
    return found


def column(values: Sequence[float]) -> Floats:
    return np.array(values, np.float32)[:, None, None]


def not_stacked(*_: Any) -> Any:
    """In the place of `batched_clients.Train`, which takes samples step by step."""
    raise NotImplementedError("dense layers are trained from all samples")


def find_dense_layers(model: Model) -> Sequence[LayerSizes]:
    """The layers of a classifier that is a chain of dense ones.

    Raises:
        UsageError: it is not; says why.
    """
    if model.loss != "cross_entropy" or len(model.output_shape) != 1:
        raise UsageError(
            f"its loss is {model.loss} of outputs {model.output_shape}, a chain of dense layers has classes"
        )
    if model.bundle.own_gradient:
        raise UsageError("it stops gradients, or brings its own")
    read = importlib.import_module("edge_sdk.models.derive.dense").read_dense_layers
    layers: Sequence[LayerSizes] = read(bytes(model.bundle.parts["predict.onnx"]))
    return layers
