"""Sessions of graphs in the form that was chosen: as one that reads theta where it lies, or a native one.

Native ones are used only after a comparison. The golden vectors have the answers of `predict` and `loss_grad`. Any
other graph is run in its native form and in the plain one, once, on the batch of the golden vectors, when it is first
opened.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import numpy as np

from edge_sdk.model.bundle import BLOCKED_SUFFIX, Bundle, BundleError
from edge_sdk.model.forms import has_native, native_part
from edge_sdk.model.inputs import Array, Floats
from edge_sdk.model.sessions.kernels import KernelChoice
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.sessions.self_test import Runnable, make_feeds, measure_distance
from edge_sdk.model.theta_tensors import TENSORS, ThetaTensors, read_tensors, tensor_part

ANSWERED = ("predict", "loss_grad")
"""Graphs whose answers the golden vectors have."""

log = logging.getLogger(__name__)


class Opening(Runnable, Protocol):
    """A model, as far as its sessions need it."""

    choice: KernelChoice
    fallback: str
    threads: int
    buffers0: Floats

    def open(self, graph: str, data: bytes, tensors: ThetaTensors | None = None) -> OnnxSession: ...


class TensorSession(OnnxSession):
    """A graph that takes the tensors of theta one by one, called as one that takes theta.

    Args:
        graph: its name, in errors. data: the graph. tensors: its inputs that are tensors of theta.
        library, products: as of OnnxSession.

    Raises:
        BundleError: onnxruntime refuses the graph, or it has no such inputs.
    """

    def __init__(
        self, graph: str, data: bytes, threads: int, tensors: ThetaTensors, library: str = "", products: bool = True
    ) -> None:
        super().__init__(graph, data, threads, library=library, products=products)
        self.tensors, names = tensors, {one.name for one in tensors.each}
        if missing := names - {*self.inputs}:
            raise BundleError(f"graph {graph!r} has no input {min(missing)!r}, which the manifest lists")
        self.inputs = ["theta", *(name for name in self.inputs if name not in names)]

    def run(self, feeds: dict[str, Array]) -> list[Any]:
        """All outputs, for feeds with theta (n,) as a whole. Nothing of theta is kept.

        Raises:
            BundleError: theta has another size, or onnxruntime failed.
        """
        theta = feeds["theta"]
        if theta.shape != (self.tensors.size,):
            raise BundleError(f"graph {self.graph!r}: theta {theta.shape}, expected ({self.tensors.size},)")
        return super().run({k: v for k, v in feeds.items() if k != "theta"} | self.tensors.cut(theta))


def choose_form(bundle: Bundle, graph: str, native: bool = False) -> tuple[bytes, ThetaTensors | None]:
    """A graph in its fastest form, and the tensors of theta that this takes; None: theta as a whole.

    Args:
        native: the native form is one of them, where the bundle has it.
    """
    entry = bundle.manifest["graphs"][graph]
    tensors = read_tensors(graph, entry, bundle.layout) if TENSORS in entry else None
    part = f"{graph}.onnx" if tensors is None else tensor_part(graph)
    return bytes(bundle.parts[native_part(graph) if native and has_native(entry) else part]), tensors


def open_session(
    graph: str, data: bytes, threads: int, choice: KernelChoice, tensors: ThetaTensors | None, planned: bool
) -> OnnxSession:
    """A session for a graph in either form, with the kernels of a choice; other arguments as of the two classes."""
    if tensors is not None:
        return TensorSession(graph, data, threads, tensors, choice.library, choice.products)
    return OnnxSession(graph, data, threads, planned, choice.library, choice.products)


def open_form(model: Opening, graph: str, strict: bool) -> OnnxSession:
    """A new session for a graph of a bundle: its native form if that was chosen and is there, else the plain one.

    Args:
        strict: a native form that cannot be used is an error; else `fallback` and the log say why the plain one is.

    Raises:
        BundleError: there is no session that may be used.
    """
    if model.choice.native and has_native(model.bundle.manifest["graphs"][graph]):
        try:
            return open_native(model, graph)
        except BundleError as error:
            if strict:
                raise
            reason = f"{graph} is not run in its native form: {error}"
            model.fallback = "; ".join(filter(None, (model.fallback, reason)))
            log.warning("%s: %s", model.name, reason)
    session = model.open(graph, *choose_form(model.bundle, graph))
    check_sides(model, graph, session)
    return session


def open_native(model: Opening, graph: str) -> OnnxSession:
    data, tensors = choose_form(model.bundle, graph, native=True)
    session = open_session(graph, data, model.threads, model.choice, tensors, False)
    check_sides(model, graph, session)
    if graph.removesuffix(BLOCKED_SUFFIX) not in ANSWERED:
        compare_with_plain(model, graph, session)
    return session


def compare_with_plain(model: Opening, graph: str, native: OnnxSession) -> None:
    """Runs both forms of a graph on the golden batch.

    Raises:
        BundleError: an output of the native one is off by more than the bundle allows of a gradient.
    """
    data, tensors = choose_form(model.bundle, graph)
    plain = open_session(graph, data, 1, KernelChoice(), tensors, False)
    check_sides(model, graph, plain)
    given = make_feeds(model) | {"buffers": model.buffers0} | draw_cotangent(model, graph)
    if unknown := sorted({*plain.inputs} - {*given}):
        raise BundleError(f"graph {graph!r} wants {', '.join(unknown)[:200]}, which no graph of a bundle is given")
    limit = model.bundle.manifest["golden"]["tolerance"]["grad"]
    least = find_least(model, graph)
    found, wanted = (session.run({name: given[name] for name in session.inputs}) for session in (native, plain))
    for name, got, want in zip(plain.outputs, found, wanted, strict=True):
        distance = measure_distance(got, want, least if name == "grad" else 0.0)
        if not distance <= limit:
            raise BundleError(f"its native form is off by {distance:.1e} in {name}, the limit is {limit:.0e}")


def check_sides(model: Opening, graph: str, session: OnnxSession) -> None:
    """Raises BundleError if a form of a graph takes or gives other values than the manifest says: they go by place."""
    entry = model.bundle.manifest["graphs"][graph]
    inputs, outputs = ([value["name"] for value in entry[side]] for side in ("inputs", "outputs"))
    for side, got, want in (
        ("inputs", sorted(session.inputs), sorted(inputs)),
        ("outputs", session.outputs, outputs),
    ):
        if got != want:
            found, expected = (", ".join(names)[:200] for names in (got, want))
            raise BundleError(f"graph {graph!r} has the {side} {found}; the manifest says {expected}")


def draw_cotangent(model: Opening, graph: str) -> dict[str, Array]:
    """The cotangent for the golden batch, for a graph that takes one."""
    count, entry = len(model.bundle.golden()["in.weights"]), model.bundle.manifest["graphs"][graph]
    shapes = {value["name"]: value["shape"] for value in entry["inputs"]}
    if "cotangent" not in shapes:
        return {}
    shape = [count if size == "B" else size for size in shapes["cotangent"]]
    return {"cotangent": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def find_least(model: Opening, graph: str) -> float:
    """The size to which differences are relative at least: a group's gradient may be rounding beside the whole one."""
    return float(np.linalg.norm(model.bundle.golden()["out.grad_norms"])) if "@" in graph else 0.0
