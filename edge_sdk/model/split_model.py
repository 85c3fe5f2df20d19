"""A split model at work: what one holder of data runs. Towers and parties are described in models/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, BundleError, read_bundle
from edge_sdk.model.inputs import Array, Floats, check_floats, check_weights
from edge_sdk.model.model import Model


class SplitModel(Model):
    """A model of several towers, whose parties hold the parameters in groups.

    Args:
        bundle: a file, or what was read from one. threads: of onnxruntime. check: compare with its golden vectors.

    Raises:
        BundleError: it is no bundle of a split model, or computes otherwise than it should.

    >>> from edge_sdk.replay.planning.bundles import find_shipped_bundle
    >>> SplitModel(find_shipped_bundle("split-breast-cancer.bundle")).layout.size
    562
    """

    def __init__(self, bundle: Any, threads: int = 1, check: bool = True) -> None:
        super().__init__(bundle, threads, check, kernels="portable")
        if not self.bundle.is_split:
            raise BundleError(f"{self.name} is no split model; use Model")

    @property
    def towers(self) -> tuple[str, ...]:
        """Names of the towers, in the order in which the head joins their embeddings."""
        inputs = [str(i["name"]).removeprefix("x.") for i in self.bundle.manifest["inputs"]]
        return tuple(t for t in inputs if t in self.bundle.manifest["split"]["towers"])

    @property
    def parties(self) -> Mapping[str, tuple[str, ...]]:
        """The groups of parameters that each party owns."""
        return {k: tuple(v) for k, v in self.bundle.manifest["split"]["parties"].items()}

    def group(self, theta: Vector, name: str) -> Vector:
        """The part of the whole theta that a group is."""
        spans = [theta[s.span] for s in self.layout.slots if s.group == name]
        if not spans:
            raise UsageError(f"{self.name} has no group {name!r}; there are {', '.join((*self.towers, 'head'))}")
        return np.concatenate(spans)

    def logits(self, theta: Vector, x: Mapping[str, Array]) -> Floats:
        """The joint output (B, classes), for whoever has all towers and their data (evaluation, simulation)."""
        feeds = {"theta": theta} | {f"x.{t}": v for t, v in x.items()}
        return np.asarray(self.call("predict", feeds)[0], np.float32)

    def embed(self, tower: str, theta: Vector, x: Array) -> Floats:
        """Embeddings (B, d) of a tower's own samples; `theta` is the tower's."""
        return np.asarray(self.call(f"embed@{tower}", {f"theta.{tower}": theta, f"x.{tower}": x})[0], np.float32)

    def party_logits(
        self, party: str, thetas: Mapping[str, Vector], x: Mapping[str, Array], embeddings: Mapping[str, Array]
    ) -> Floats:
        """The joint output (B, classes), for a party that is given the others' embeddings; arguments as below."""
        feeds: dict[str, Array] = {}
        for prefix, values in (("theta.", thetas), ("x.", x), ("z.", embeddings)):
            feeds |= {prefix + k: v for k, v in values.items()}
        return np.asarray(self.call(f"predict@{party}", feeds)[0], np.float32)

    def party_grad(
        self,
        party: str,
        thetas: Mapping[str, Vector],
        x: Mapping[str, Array],
        embeddings: Mapping[str, Array],
        y: Array,
        weights: Array | None = None,
    ) -> tuple[float, dict[str, Floats]]:
        """The loss, and its gradient for each group that the party owns; everything else is frozen.

        Args:
            thetas: group -> its vector: the party's own groups and the head.
            x: tower -> samples, of the party's own towers. embeddings: tower -> (B, d), of the others.
        """
        y = self.targets(y, len(y))
        feeds: dict[str, Array] = {"y": y, "weights": check_weights(weights, len(y))}
        for prefix, values in (("theta.", thetas), ("x.", x), ("z.", embeddings)):
            feeds |= {prefix + k: v for k, v in values.items()}
        loss, grad = self.call(f"loss_grad@{party}", feeds)[:2]
        owned, out, at = set(self.parties[party]), {}, 0
        for name in dict.fromkeys(s.group for s in self.layout.slots if s.group in owned):
            size = sum(s.size for s in self.layout.slots if s.group == name)
            out[name], at = grad[at : at + size], at + size
        return float(loss), out

    def call(self, graph: str, feeds: Mapping[str, Array]) -> list[Any]:
        """Run a graph on values that are checked against what the manifest says of its inputs."""
        session = self.session(graph)
        declared = {i["name"]: tuple(i["shape"]) for i in self.bundle.manifest["graphs"][graph]["inputs"]}
        missing = [n for n in session.inputs if n not in feeds]
        if missing:
            raise UsageError(f"{graph}: {', '.join(missing)} is missing; it takes {', '.join(session.inputs)}")
        batch = len(feeds[next(n for n in session.inputs if declared[n][:1] == ("B",))])
        shapes = {n: tuple(batch if d == "B" else d for d in declared[n]) for n in session.inputs}
        return session.run({n: feeds[n] if n == "y" else check_floats(n, feeds[n], shapes[n]) for n in session.inputs})


# Bundles of either kind -----------------------------------------------------------------------------------------
def load_model(bundle: str | Path, threads: int = 1) -> Model:
    """The model of a bundle, as a split one if it is one."""
    file = read_bundle(bundle)
    return (SplitModel if file.is_split else Model)(file, threads=threads)


def input_shapes(bundle: Bundle) -> dict[str, tuple[int, ...]]:
    """Shapes of one sample's inputs: {"x": ...}, or {"x.hospital": ..., "x.device": ...} of a split model."""
    return {str(i["name"]): tuple(i["shape"]) for i in bundle.manifest["inputs"]}


def own_shape(model: Model, party: str) -> tuple[int, ...]:
    """Shape of what a party holds of one sample: in a split model its part, else the whole."""
    return input_shapes(model.bundle)[f"x.{party}"] if isinstance(model, SplitModel) else model.input_shape
