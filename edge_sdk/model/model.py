"""A bundle at work on stock onnxruntime (`onnx_session.py`).

Parameters and gradients are flat float32 vectors; samples one array, or a dictionary or tuple with one for each input.
Graphs are loaded when they are first used, so a device that only predicts never builds the training session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import UsageError
from edge_sdk.model import bound, inputs
from edge_sdk.model.bound import FORWARD_BATCH, Cancel, GradFn, OutputFn, ScoreFn
from edge_sdk.model.bundle import BLOCKED_SUFFIX, Bundle, BundleError, read_bundle
from edge_sdk.model.dropout import MASKS, step_masks
from edge_sdk.model.front import KEPT_LIMIT, BoundSamples, compute_front, uses_front
from edge_sdk.model.inputs import Array, Data, Floats, check_floats
from edge_sdk.model.manifest import FRONT, read_front, sample_bytes
from edge_sdk.model.sessions.form_session import open_form, open_session
from edge_sdk.model.sessions.kernels import KernelChoice, choose
from edge_sdk.model.sessions.onnx_session import OnnxSession, check_version
from edge_sdk.model.sessions.self_test import check_answers, check_layout
from edge_sdk.model.tasks.task import Task
from edge_sdk.model.theta_tensors import ThetaTensors
from edge_sdk.model.whole_batches import check_step

Random = np.random.Generator
log = logging.getLogger(__name__)


class Model:
    """A compiled model: predicts, and differentiates its loss.

    Args:
        bundle: path of a bundle file, or one that is read already.
        threads: for onnxruntime. 1 is fastest for small models, and leaves the device usable.
        check: run the golden vectors once, so that a runtime that computes something else is found now. A device that
            only predicts may leave it out: then no training session is ever built.
        kernels: "auto" takes native kernels where auscult-native is installed (native graphs with AVX-512 and AVX2,
            native products with AVX-512 from 2^19 parameters on), and the bundle's blocked graphs (faster convolutions,
            operators of onnxruntime's own) where it has them, if their probes and the golden vectors pass; else what
            does pass, and `fallback` and a warning in the log say why. "native" insists on native kernels, "blocked" on
            blocked graphs with onnxruntime's kernels, "portable" tries neither.

    Attributes:
        task: what it predicts.
        has_front: the bundle's front is computed once for each bound sample: it has one, and the golden vectors passed.
        kept_limit: bytes of it that are kept for one set of samples, at most; see `front.KEPT_LIMIT`.
        choice: what is used.
        fallback: why nothing before that was, of what is installed and of what the bundle has; "": it is the first.

    Raises:
        BundleError: the bundle is not right, needs another onnxruntime, or fails its self-test here.

    >>> import numpy as np
    >>> from edge_sdk.replay.planning.bundles import find_shipped_bundle
    >>> model = Model(find_shipped_bundle("wrist.bundle"))
    >>> model.predict(model.theta0, np.zeros((2, *model.input_shape), np.float32)).shape
    (2, 14)
    """

    def __init__(
        self, bundle: str | Path | Bundle, threads: int = 1, check: bool = True, kernels: str = "auto"
    ) -> None:
        if threads < 1:
            raise UsageError(f"threads = {threads}, at least 1")
        self.bundle = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        self.threads = threads
        self.theta0: Floats = self.bundle.theta0
        self.buffers0: Floats = self.bundle.buffers0
        self.task: Task = self.bundle.task
        self.drop_sites = self.bundle.drop_sites
        self._sessions: dict[str, OnnxSession] = {}
        self._lock = threading.Lock()
        self.has_front, self.kept_limit = False, KEPT_LIMIT
        check_version(self.bundle)
        self.choice, self.fallback, self._strict = KernelChoice(), "", True
        choose(self, kernels, check)

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the network, as its bundle says it."""
        return str(self.bundle.manifest["name"])

    @property
    def kernels(self) -> str:
        """Kind of the kernels that are used: "native", "blocked" or "portable"."""
        return self.choice.kind

    @property
    def sha256(self) -> str:
        """Identity of the bundle: equal on all nodes of a run."""
        return self.bundle.sha256

    @property
    def layout(self) -> Layout:
        """Where each parameter lies in a flat vector theta (n,); `layout.size` is n."""
        return self.bundle.layout

    @property
    def classes(self) -> int:
        """Number of classes; 0 where the loss is not cross entropy."""
        return int(self.bundle.manifest["classes"])

    @property
    def loss(self) -> str:
        """Name of the loss that trains it, such as "cross_entropy"."""
        return str(self.bundle.manifest["loss"])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input sample."""
        return tuple(self.bundle.manifest["inputs"][0]["shape"])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output for one sample."""
        return tuple(self.bundle.manifest["output"])

    @property
    def groups(self) -> tuple[str, ...]:
        """Layer groups that have a gradient graph of their own."""
        return tuple(n.split("@")[1] for n in self.bundle.manifest["graphs"] if n.startswith("loss_grad@"))

    @property
    def max_batch(self) -> int:
        """Samples that one call of its graphs takes at most."""
        return int(self.bundle.manifest["max_batch"])

    @property
    def front_bytes(self) -> int:
        """Memory that is kept for each bound sample, in bytes; 0: the bundle has no front."""
        return sample_bytes(read_front(self.bundle.manifest))

    # -- one batch -----------------------------------------------------------------------------------------------

    def predict(self, theta: Vector, x: Data, buffers: Vector | None = None) -> Floats:
        """The module's output, float32 (B, *output_shape), for x (B, *input_shape)."""
        x, theta = self.samples(x), self.parameters(theta)
        none = np.zeros((0, *self.output_shape), np.float32)
        parts = [self.run("predict", self.feed(theta, b), buffers)[0] for b in self.batches(x, FORWARD_BATCH)]
        return np.concatenate([none, *parts])

    def features(self, theta: Vector, x: Data, buffers: Vector | None = None) -> Floats:
        """Output of the layer that the bundle names for features, float32 (B, ...), for x (B, *input_shape)."""
        x, theta = self.samples(x), self.parameters(theta)
        steps = self.batches(x, FORWARD_BATCH)
        return np.concatenate([self.run("features", self.feed(theta, b), buffers)[0] for b in steps])

    def loss_grad(
        self,
        theta: Vector,
        x: Data,
        y: Array,
        weights: Array | None = None,
        *,
        group: str = "",
        buffers: Vector | None = None,
        random: Random | None = None,
    ) -> tuple[float, Floats]:
        """sum_i weights_i loss_i over one batch, and its gradient.

        Args:
            theta: (n,). x: (B, *input_shape). y: labels int (B,), or float (B, *output_shape) for other losses.
            weights: (B,); None for the mean. 0 masks a sample.
            group: gradient of this layer group's parameters only, in layout order; the backward pass is shorter.
            random: draws what a bundle with dropout drops; None: nothing is dropped.
        """
        feeds, count = self.batch(theta, x, y, weights)
        feeds |= step_masks(self.drop_sites, count, random)
        loss, grad = self.run(f"loss_grad@{group}" if group else "loss_grad", feeds, buffers)[:2]
        return float(loss), grad

    def loss_grad_buffers(
        self, theta: Vector, x: Data, y: Array, weights: Array | None = None, buffers: Vector | None = None
    ) -> tuple[float, Floats, Floats]:
        """Loss and gradient as of `loss_grad`, and the running statistics after this batch, which the caller keeps.

        Only for bundles that normalise with the statistics of the batch. Their means include samples of weight 0.
        """
        if self.bundle.manifest["norm"] != "batch":
            raise UsageError(f"{self.name}: its running statistics are frozen; compile with --norm batch to train them")
        loss, grad, fresh = self.run("loss_grad", self.batch(theta, x, y, weights)[0], buffers)
        return float(loss), grad, fresh

    def vjp(self, theta: Vector, x: Data, cotangent: Array, buffers: Vector | None = None) -> tuple[Floats, Floats]:
        """The output for x, and the gradient (n,) of sum(output * cotangent)."""
        x = self.samples(x)
        pulled = check_floats("cotangent", cotangent, (len(x), *self.output_shape))
        out, grad = self.run("vjp", self.feed(self.parameters(theta), x) | {"cotangent": pulled}, buffers)[:2]
        return out, grad

    def features_vjp(
        self, theta: Vector, x: Data, cotangent: Array, buffers: Vector | None = None
    ) -> tuple[Floats, Floats]:
        """The features for x, and the gradient (n,) of sum(features * cotangent)."""
        x, width = self.samples(x), self.features_shape
        pulled = check_floats("cotangent", cotangent, (len(x), *width))
        feeds = self.feed(self.parameters(theta), x) | {"cotangent": pulled}
        out, grad = self.run("features_vjp", feeds, buffers)[:2]
        return out, grad

    @property
    def features_shape(self) -> tuple[int, ...]:
        """Shape of one sample's features. Raises UsageError where the bundle names no layer for them."""
        graphs = self.bundle.manifest["graphs"]
        if "features_vjp" not in graphs:
            raise UsageError(f"{self.name} offers no features; compile it with --features LAYER")
        return tuple(graphs["features_vjp"]["outputs"][0]["shape"][1:])

    # -- data bound to the model -----------------------------------------------------------------------------------

    def front(self, x: Data) -> Array:
        """What the bundle's front makes of x: one array (B, ...), or records where it gives several values.

        Raises:
            UsageError: the bundle has none.
        """
        if not self.front_bytes:
            said = "it does no work worth keeping that no parameter reaches"
            raise UsageError(f"{self.name} has no graph {FRONT!r}: {said}")
        return compute_front(self, self.samples(x))

    def bind(self, x: Data | BoundSamples, keep: bool = True) -> BoundSamples:
        """Samples for several functions below, which then share their front; as they are if they are bound already."""
        return x if isinstance(x, BoundSamples) else BoundSamples(self, x, keep)

    def grad_fn(self, x: Data | BoundSamples, y: Array, cancel: Cancel | None = None) -> GradFn:
        """f(theta, indices or None for all, random=None) -> (mean loss, its gradient) over the chosen samples.

        `random` draws what a bundle with dropout drops, anew in each step (None: nothing). Samples are checked once,
        here. More than `max_batch` go through in several steps, see `check_chosen`. `cancel` is asked before each.
        A front of the bundle is computed at the first call, and kept.

        Raises (f):
            Cancelled: `cancel()` was true.
        """
        rows = self.bind(x)
        return bound.make_gradient(self, rows, self.targets(y, len(rows)), cancel)

    def predict_fn(self, x: Data | BoundSamples) -> OutputFn:
        """f(theta) -> what `predict` returns for x, without the work of a front after the first call."""
        return bound.make_outputs(self, self.bind(x))

    def score(self, x: Data | BoundSamples, y: Array, cancel: Cancel | None = None) -> ScoreFn:
        """f(theta) -> {"loss": sum of losses, "samples": count} and the counts of its task, as "correct"."""
        rows = self.bind(x)
        return bound.make_score(self, rows, self.targets(y, len(rows)), cancel)

    def batches(self, items: Array, most: int = 1 << 30) -> Iterator[Array]:
        """`items` in steps of at most `most`, and of no more than the bundle allows."""
        size = min(most, self.max_batch)
        return (items[i : i + size] for i in range(0, len(items), size))

    # -- checks --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Runs the golden vectors on this machine's onnxruntime; raises BundleError where the answers are others."""
        check_answers(self)
        self.has_front = uses_front(self)

    def use(self, choice: KernelChoice, strict: bool) -> None:
        """Switches to other kernels. `strict`: as of `open`."""
        with self._lock:
            if choice != self.choice:
                self.has_front = False  # until `check` has passed with it
            self.choice, self._strict = choice, strict
            self._sessions.clear()

    def probe(self) -> None:
        """Checks that onnxruntime has the blocked layout of the graphs here; raises BundleError where it has not."""
        name = f"probe{BLOCKED_SUFFIX}"
        check_layout(self.session(name), self.bundle.manifest["graphs"][name])

    def parameters(self, theta: Vector) -> Floats:
        """Theta (n,) as float32. Raises UsageError for another shape or kind of numbers."""
        return check_floats("theta", theta, (self.layout.size,))

    def samples(self, x: Data) -> Array:
        """Checked samples as one array; of several inputs, one with a field for each (`inputs.join_inputs`)."""
        return inputs.join_inputs(self.bundle.manifest["inputs"], x)

    def feed(self, theta: Floats, x: Array) -> dict[str, Array]:
        """Checked parameters and samples as graphs take them: input -> array."""
        return {"theta": theta, **inputs.split_inputs(self.bundle.manifest["inputs"], x)}

    def batch(self, theta: Vector, x: Data, y: Array, weights: Array | None) -> tuple[dict[str, Array], int]:
        """Checked feeds of one batch, and its number of samples."""
        count = len(x := self.samples(x))
        rest = {"y": self.targets(y, count), "weights": inputs.check_weights(weights, count)}
        return self.feed(self.parameters(theta), x) | rest, count

    def targets(self, y: Array, count: int) -> Array:
        """Targets of `count` samples, as its graphs take them. Raises UsageError for others."""
        return inputs.check_targets(self.loss, y, count, self.output_shape, self.classes)

    # -- running -------------------------------------------------------------------------------------------------

    def run(self, graph: str, feeds: Mapping[str, Array], buffers: Vector | None) -> list[Any]:
        """Run one graph on checked arrays; inputs that it does not have are left out."""
        session, values = self.session(graph), dict(feeds)
        count = len(next(value for name, value in values.items() if name != "theta"))
        if graph not in ("predict", "features"):
            check_step(self.bundle.manifest, count)
        if self.buffers0.size:
            values["buffers"] = (
                self.buffers0 if buffers is None else check_floats("buffers", buffers, self.buffers0.shape)
            )
        if MASKS in session.inputs and MASKS not in values:
            values |= step_masks(self.drop_sites, count, None)
        if missing := [n for n in session.inputs if n not in values]:
            raise BundleError(f"graph {graph!r} wants {', '.join(missing)}, which is no input of this kind of graph")
        return session.run({n: values[n] for n in session.inputs})

    def session(self, graph: str) -> OnnxSession:
        """The session of a graph, built at its first use."""
        graphs = self.bundle.manifest["graphs"]
        if self.choice.blocked and graph + BLOCKED_SUFFIX in graphs:
            graph += BLOCKED_SUFFIX
        with self._lock:
            if graph not in self._sessions:
                if graph not in graphs:
                    raise UsageError(f"{self.name} has no graph {graph!r}; it has {', '.join(graphs)}")
                self._sessions[graph] = open_form(self, graph, self._strict)
            return self._sessions[graph]

    def open(self, graph: str, data: bytes, tensors: ThetaTensors | None = None, planned: bool = False) -> OnnxSession:
        """A new session for a graph that is of this bundle, or made of one, with the products that were chosen.

        A graph that cannot have them (a product of integers) gets onnxruntime's own, if not `strict`.
        """
        try:
            return open_session(graph, data, self.threads, self.choice, tensors, planned)
        except BundleError as error:
            if self._strict or not self.choice.library or not self.choice.products:
                raise
            log.warning("%s: onnxruntime's own products are used in %s: %s", self.name, graph, error)
            return open_session(graph, data, self.threads, KernelChoice(), tensors, planned)
