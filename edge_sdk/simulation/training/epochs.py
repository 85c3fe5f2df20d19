"""Training of a client with one call of onnxruntime for all steps of an epoch, where that gives the same bits.

`edge_sdk.models` writes the graph of many steps from the bundle's gradient graph. The first epoch of each kind is
trained both ways and compared, bit for bit. What cannot be trained so is trained step by step, and `TrainingCalls`
counts both, so that a simulation can say what it did.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import Gradient, descend
from edge_sdk.model.bundle import BLOCKED_SUFFIX
from edge_sdk.model.forms import has_native
from edge_sdk.model.inputs import even_weights
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.form_session import choose_form
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.theta_tensors import ThetaTensor
from edge_sdk.model.whole_batches import find_least
from edge_sdk.simulation.processes.ranks import Ranks

EPOCH, STEP, COHORT = "epoch", "step", "cohort"
CALLS = (EPOCH, STEP, COHORT)
"""Ways to train: a call for all steps of an epoch, for each step, or for the steps of many clients
(batched_clients.py)."""
Array = npt.NDArray[Any]
Terms = frozenset[str]
"""What a step has beside its gradient: "damp", "base", "push", as `edge_sdk.models.derive.epoch` names them."""

log = logging.getLogger(__name__)


@dataclass
class TrainingCalls:
    """Steps of clients so far, by the calls in which they were made.

    Attributes:
        epoch: steps that were made in calls of many.
        step: steps that were made one by one.
        together: steps that were made with those of other clients.
        why: reasons for those one by one, each once.
    """

    epoch: int = 0
    step: int = 0
    together: int = 0
    why: list[str] = field(default_factory=list)

    def note(self, reason: str) -> None:
        """Keeps a reason, and writes it into the log the first time."""
        if reason not in self.why:
            self.why.append(reason)
            log.warning("%s", reason)


def all_trained(ranks: Ranks, own: TrainingCalls) -> TrainingCalls:
    """The counts of all ranks together; these must all call it."""
    every = [TrainingCalls(**json.loads(data)) for data in ranks.gather(json.dumps(asdict(own)).encode())]
    why = dict.fromkeys(reason for one in every for reason in one.why)
    epoch, step, together = (sum(getattr(one, name) for one in every) for name in ("epoch", "step", "together"))
    return TrainingCalls(epoch, step, together, list(why))


def describe_training(found: Mapping[str, Any]) -> str:
    """A sentence for people, from a `TrainingCalls` as a mapping. Where nothing was counted, as with `--calls step` and
    in methods with momentum, no step was made with another."""
    if not (found["epoch"] or found["step"] or found["together"] or found["why"]):
        return "training: each step in a call of its own"
    epochs, others = (
        f"{found['epoch']} steps in calls of a whole epoch",
        f"{found['together']} steps with other clients",
    )
    told = f"training: {others if found['together'] else epochs}, {found['step']} one by one"
    return f"{told} ({'; '.join(found['why'])})" if found["why"] else told


def refusal(model: Model) -> str:
    """The reason why a model is always trained step by step; "": it is not."""
    if model.drop_sites:
        return f"{model.name} drops values at random in each step"
    return f"{model.name} normalises with each batch" if len(model.buffers0) else ""


class EpochGraphs:
    """The graphs of many steps of one model, made when they are first needed.

    Args:
        model: the model.
        trained: counts.

    Raises:
        UsageError: `edge_sdk.models` needs a package that is not installed.
    """

    def __init__(self, model: Model, trained: TrainingCalls) -> None:
        self.model, self.trained = model, trained
        self.sessions: dict[tuple[Terms, str], OnnxSession] = {}
        self.trusted: dict[tuple[Terms, int], bool] = {}
        try:
            module, whole = (importlib.import_module(f"edge_sdk.models.derive.{n}") for n in ("epoch", "whole_theta"))
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is missing here: pip install 'auscult[replay]'") from error
        self.write: Callable[[bytes, Terms], bytes] = module.write_epoch
        self.take_whole: Callable[[bytes, Sequence[ThetaTensor], Layout], bytes] = whole.take_whole_theta

    def session(self, terms: Terms, graph: str) -> OnnxSession:
        """The graph of steps with these terms; `graph`: the gradient, from the data or from what a front has kept."""
        if (terms, graph) not in self.sessions:
            blocked = graph + BLOCKED_SUFFIX
            used = self.model.choice.blocked and blocked in self.model.bundle.manifest["graphs"]
            name = blocked if used else graph
            data = self.write(self.read_graph(name), terms)
            self.sessions[terms, graph] = self.model.open(f"epochs of {name}", data, planned=True)
        return self.sessions[terms, graph]

    def read_graph(self, name: str) -> bytes:
        """A graph with theta as a whole, in its native form where steps run that."""
        bundle = self.model.bundle
        if not self.model.choice.native or not has_native(bundle.manifest["graphs"][name]):
            return bytes(bundle.parts[f"{name}.onnx"])
        data, tensors = choose_form(bundle, name, native=True)
        return data if tensors is None else self.take_whole(data, tensors.each, bundle.layout)


class EpochGradient:
    """A client's gradient, which can make many steps in one call: see `methods.shared.training.local.descend`.

    Args:
        step: its gradient for one step.
        graphs: of its model.
        x, y: its samples (N, ...) and labels.
    """

    def __init__(self, step: Gradient, graphs: EpochGraphs, x: Array, y: Array) -> None:
        model = graphs.model
        self.rows = model.bind(x)
        self.step, self.graphs, self.count = step, graphs, len(self.rows)
        self.graph, self.y = self.rows.choose("loss_grad"), model.targets(y, self.count)

    def __call__(self, theta: Vector, indices: Any = None) -> tuple[float, Vector]:
        return self.step(theta, indices)

    def descend(
        self, v: Vector, steps: Sequence[Any], eta: float, damp: float, pull: Vector | None, base: Vector | None
    ) -> list[float]:
        """Makes steps of SGD on v (n,) in place, as `methods.shared.training.local.descend` has them; returns their
        losses."""
        rows = [np.arange(self.count) if indices is None else indices for indices in steps]
        sizes = [len(some) for some in rows] or [0]
        size, least = max(sizes), min(sizes)
        given = {"damp": damp, "push": pull is not None, "base": base is not None}
        terms = frozenset(name for name, there in given.items() if there)
        enough = least >= find_least(self.graphs.model.bundle.manifest)  # else a single step says so
        if not enough or not self.fits(terms, size):
            self.graphs.trained.step += len(steps)
            return descend_singly(self.step, v, steps, eta, damp, pull, base)
        feeds = self.feeds(terms, eta, damp, pull, base)
        if (terms, size) not in self.graphs.trusted:
            return self.compare(terms, size, feeds, v, rows, (eta, damp, pull, base))
        self.graphs.trained.epoch += len(steps)
        return self.run(terms, feeds, v, rows)

    def fits(self, terms: Terms, size: int) -> bool:
        """True if steps of at most so many samples may be made in one call."""
        graphs, most = self.graphs, self.graphs.model.max_batch
        if size > most:
            graphs.trained.note(f"steps of {size} samples go through {graphs.model.name} in parts of {most}")
        return size <= most and graphs.trusted.get((terms, size), True)

    def feeds(
        self, terms: Terms, eta: float, damp: float, pull: Vector | None, base: Vector | None
    ) -> dict[str, Array]:
        data = {**self.rows.all_inputs(self.graph), "y": self.y}
        found = {f"data.{name}": array for name, array in data.items()} | {"epoch.eta": np.array(eta, np.float32)}
        if "damp" in terms:
            found["epoch.keep"] = np.array(1 - eta * damp, np.float32)
        if pull is not None:
            found["epoch.push"] = eta * pull
        if base is not None:
            found["epoch.base"] = base
        return found

    def run(self, terms: Terms, feeds: dict[str, Array], v: Vector, rows: Sequence[Array]) -> list[float]:
        """A call for each stretch of steps with equally many samples."""
        losses, session = list[float](), self.graphs.session(terms, self.graph)
        for size, some in groupby(rows, len):
            feeds |= {"epoch.start": v, "epoch.order": np.array(list(some), np.int64), "weights": even_weights(size)}
            v[...], found = session.run(feeds)
            losses += found.tolist()
        return losses

    def compare(
        self, terms: Terms, size: int, feeds: dict[str, Array], v: Vector, rows: Sequence[Array], more: Any
    ) -> list[float]:
        """The first epoch of its kind: trained both ways. The result is that of the steps one by one."""
        trained, tried = self.graphs.trained, v.copy()
        losses = descend_singly(self.step, v, rows, *more)
        found = self.run(terms, feeds, tried, rows)
        same = np.array(found).tobytes() == np.array(losses).tobytes() and tried.tobytes() == v.tobytes()
        self.graphs.trusted[terms, size] = same
        trained.step += len(rows)
        if not same:
            trained.note(f"{self.graphs.model.name}: epochs of steps of {size} samples round differently in one call")
        return losses


def descend_singly(
    step: Gradient, v: Vector, rows: Sequence[Any], eta: float, damp: float, pull: Vector | None, base: Vector | None
) -> list[float]:
    """Makes the steps one by one, as a device does; returns their losses."""
    losses = list[float]()

    def noting(theta: Vector, indices: Any) -> tuple[float, Vector]:
        loss, gradient = step(theta, indices)
        losses.append(loss)
        return loss, gradient

    descend(noting, v, iter(rows), eta, damp=damp, pull=pull, base=base)
    return losses
