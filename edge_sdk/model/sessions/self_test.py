"""The self-test of a model: does this machine's onnxruntime compute what the compiler expected?

A bundle has golden vectors: inputs, and the outputs, loss and gradient that the compiler's own reference gave for them.
A runtime that is broken on some board is found here, before it trains on anybody's samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import Layout
from edge_sdk.model.bundle import Bundle, BundleError
from edge_sdk.model.dropout import MASKS, DropSite, draw_masks
from edge_sdk.model.inputs import Array, Floats
from edge_sdk.model.sessions.onnx_session import OnnxSession

BLOCKS = (8, 16)
"""Channels in a block, in bundles of this format version."""


class Runnable(Protocol):
    """A model, as far as its self-test needs it."""

    bundle: Bundle
    theta0: Floats
    drop_sites: tuple[DropSite, ...]

    @property
    def name(self) -> str: ...
    @property
    def layout(self) -> Layout: ...
    def run(self, graph: str, feeds: Mapping[str, Array], buffers: Any) -> list[Any]: ...


def check_answers(model: Runnable) -> None:
    """Runs the golden vectors, and compares the answers.

    Raises:
        BundleError: one of them is off by more than the bundle allows.
    """
    arrays, feeds = model.bundle.golden(), make_feeds(model)
    output = model.run("predict", feeds, None)[0]
    loss, grad = model.run("loss_grad", feeds, None)[:2]
    norms = [np.linalg.norm(grad[slot.span]) for slot in model.layout.slots]
    at = arrays["out.grad_at"]
    if at.size and not (at.min() >= 0 and at.max() < model.layout.size):
        raise BundleError("golden vectors: grad_at points outside theta")
    limit = model.bundle.manifest["golden"]["tolerance"]
    compare(model.name, "predict", output, arrays["out.logits"], limit["logits"])
    compare(model.name, "loss", np.reshape(loss, 1), arrays["out.loss"], limit["loss"])
    compare(model.name, "gradient", grad[at], arrays["out.grad"], limit["grad"])
    compare(model.name, "gradient norms", np.asarray(norms), arrays["out.grad_norms"], limit["grad"])


def make_feeds(model: Runnable) -> dict[str, Array]:
    """The batch of the golden vectors, with the parameters that the model starts from.

    Raises:
        BundleError: one of them is no batch, or the seed of its dropout is none.
    """
    feeds: dict[str, Array] = {k[3:]: v for k, v in model.bundle.golden().items() if k.startswith("in.")}
    if empty := [name for name, value in feeds.items() if not value.ndim or not len(value)]:
        raise BundleError(f"golden vectors: in.{empty[0]} has shape {feeds[empty[0]].shape}, expected a batch")
    feeds["theta"] = model.theta0
    if model.drop_sites:
        seed = int(np.ravel(feeds.pop(f"{MASKS}.seed"))[0])
        if seed < 0:
            raise BundleError(f"golden vectors: in.{MASKS}.seed = {seed}, expected 0 or more")
        random = np.random.default_rng(seed)
        feeds[MASKS] = draw_masks(model.drop_sites, len(feeds["weights"]), random)
    return feeds


def compare(name: str, what: str, got: Array, want: Array, limit: float) -> None:
    """Raises BundleError where the relative distance of two arrays is above a limit."""
    error = measure_distance(got, want)
    if not error <= limit:
        raise BundleError(
            f"{name}: the golden vectors fail on onnxruntime {version('onnxruntime')}: {what} is off by "
            f"{error:.1e}, the limit is {limit:.0e}; do not train on this machine with this runtime"
        )


def measure_distance(got: Array, want: Array, least: float = 0.0) -> float:
    """The distance of two arrays, relative to the norm of the second, or to `least`; infinite for other shapes.

    Infinities are at no distance from equal ones, and count for nothing in the norm.
    """
    if np.shape(got) != np.shape(want):
        return np.inf
    with np.errstate(invalid="ignore"):
        apart = np.where(got == want, 0, got - want)
    size = float(np.linalg.norm(np.where(np.isinf(want), 0, want)))
    return float(np.linalg.norm(apart)) / max(size, least, 1e-30)


def check_layout(probe: OnnxSession, entry: Mapping[str, Any]) -> None:
    """Runs the probe, which shows how this machine's onnxruntime lays out blocks of channels.

    Args:
        entry: of the probe in the manifest; its only input x has the shape of two blocks of b channels, (1, 2 b, 1, 3).

    Raises:
        BundleError: there are no such blocks, or not in the layout for which blocked graphs are written.
    """
    shapes = [value["shape"] for value in entry["inputs"]]
    b = next((b for b in BLOCKS if shapes == [[1, 2 * b, 1, 3]]), 0)
    if not b or probe.inputs != ["x"] or len(probe.outputs) != 1:
        raise BundleError(f"the probe of the blocked layout has the inputs {str(shapes)[:100]}, not two blocks as x")
    x = np.arange(6 * b, dtype=np.float32).reshape(1, 2 * b, 1, 3)
    want, got = x.reshape(2, b, 3).transpose(0, 2, 1), probe.run({"x": x})[0]
    if (
        not isinstance(got, np.ndarray)
        or got.size != want.size
        or not np.array_equal(np.reshape(got, want.shape), want)
    ):
        raise BundleError(f"the blocked layout of this machine is not that of {b} channels in a block")
