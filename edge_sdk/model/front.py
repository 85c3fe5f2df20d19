"""The front of a bundle at work: what no parameter changes is computed once for each sample, and kept.

Graphs that begin behind it give the same bits as those that begin with the data. So that this is true of the machine at
hand, too, both are run on the golden vectors first; where they differ, the front is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, BundleError
from edge_sdk.model.inputs import Array, Data, Floats, split_inputs
from edge_sdk.model.manifest import FROM_FRONT, FRONT, read_front, sample_bytes
from edge_sdk.model.sessions.self_test import Runnable, make_feeds
from edge_sdk.records import join_records

KEPT_LIMIT = 32 << 20
"""Bytes of the front of one bound set of samples that are kept. Of a larger one nothing is: each step begins with the
data, as without a front, and the result is the same."""
FRONT_BATCH = 32
"""Samples whose front is computed at once: more are hardly faster, and cost a device its memory."""

log = logging.getLogger(__name__)


class Fronted(Runnable, Protocol):
    """A model, as far as its front needs it."""

    has_front: bool
    kept_limit: int

    def samples(self, x: Data) -> Array: ...
    def feed(self, theta: Floats, x: Array) -> dict[str, Array]: ...
    def batches(self, items: Array, most: int = ...) -> Iterator[Array]: ...


def uses_front(model: Fronted) -> bool:
    """True if a bundle has a front, and graphs give the same bits behind it here; else the log says why not."""
    if not read_front(model.bundle.manifest):
        return False
    try:
        found = list_unequal(model)
    except BundleError as error:
        found = [str(error)]
    if found:
        log.warning("%s: its front is computed in each step, as here it changes bits: %s", model.name, "; ".join(found))
    return not found


def list_unequal(model: Fronted) -> list[str]:
    """What is not the same to the bit on the golden vectors, behind the front and from the data.

    Raises:
        BundleError: a graph cannot be run.
    """
    feeds = make_feeds(model)
    names, values = [i["name"] for i in model.bundle.manifest["inputs"]], model.run(FRONT, feeds, None)
    singles = [model.run(FRONT, feeds | {n: feeds[n][i : i + 1] for n in names}, None) for i in range(len(values[0]))]
    found = [] if is_same([np.concatenate(one) for one in zip(*singles, strict=True)], values) else ["one sample alone"]
    kept = dict(zip((v["name"] for v in read_front(model.bundle.manifest)), values, strict=True))
    for graph in ("loss_grad", "predict"):
        if has_graph(model.bundle, graph) and not is_same(
            model.run(graph + FROM_FRONT, behind(feeds, names) | kept, None), model.run(graph, feeds, None)
        ):
            found.append(graph)
    return found


def has_graph(bundle: Bundle, graph: str) -> bool:
    """True if a graph is there that begins behind the front."""
    return graph + FROM_FRONT in bundle.manifest["graphs"]


def behind(feeds: Mapping[str, Array], data: list[str]) -> dict[str, Array]:
    return {name: value for name, value in feeds.items() if name not in data}


def is_same(some: list[Any], others: list[Any]) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(some, others, strict=True))


def compute_front(model: Fronted, rows: Array) -> Array:
    """What is kept of checked samples (N, ...): an array, or records where the front gives several values."""
    declared = read_front(model.bundle.manifest)
    none = [np.zeros((0, *v["shape"]), v["dtype"]) for v in declared]
    parts = [model.run(FRONT, model.feed(model.theta0, some), None) for some in model.batches(rows, FRONT_BATCH)]
    joined = [np.concatenate(one) for one in zip(none, *parts, strict=True)]
    names = [str(v["name"]) for v in declared]
    return joined[0] if len(names) == 1 else join_records(dict(zip(names, joined, strict=True)))


class BoundSamples:
    """Samples that a model trains on or is judged by again and again. Nobody may change them from then on.

    They are checked once, and their front is computed when it is first needed, if it fits under the model's
    `kept_limit`.

    Args:
        keep: keep their front; not for samples that are used once.

    Attributes:
        rows: the checked samples (N, ...). keeps: there is a front, and it is kept.
    """

    _kept: Array | None = None

    def __init__(self, model: Fronted, x: Data, keep: bool = True) -> None:
        self.model, self.rows = model, model.samples(x)
        self._declared = read_front(model.bundle.manifest) if keep and model.has_front else ()
        size = len(self.rows) * sample_bytes(self._declared)
        self.keeps = 0 < size <= model.kept_limit
        if size > model.kept_limit:
            log.info("%s: the front of %d samples takes %d bytes, and none is kept", model.name, len(self.rows), size)

    def __len__(self) -> int:
        return len(self.rows)

    def choose(self, graph: str) -> str:
        """The name of a graph in the form in which these samples go through it."""
        return graph + FROM_FRONT if self.keeps and has_graph(self.model.bundle, graph) else graph

    def feed(self, graph: str, theta: Floats, at: Any) -> dict[str, Array]:
        """Inputs of a graph that `choose` has named, for checked parameters and some rows."""
        if not graph.endswith(FROM_FRONT):
            return self.model.feed(theta, self.rows[at])
        return {"theta": theta, **split_inputs(self._declared, self.kept()[at])}

    def all_inputs(self, graph: str) -> dict[str, Array]:
        """What such a graph takes of all samples (N, ...)."""
        front = graph.endswith(FROM_FRONT)
        declared = self._declared if front else self.model.bundle.manifest["inputs"]
        return split_inputs(declared, self.kept() if front else self.rows)

    def kept(self) -> Array:
        """What the front gives for all samples, computed at the first call: an array, or records of several values."""
        if self._kept is None:
            self._kept = compute_front(self.model, self.rows)
        return self._kept


def cut_parts(model: Fronted, parts: Iterable[Data]) -> Iterator[Array]:
    """Checked samples in steps of FRONT_BATCH; a part is given up before the next one is asked for."""
    for part in parts:
        rows = model.samples(part)
        del part
        yield from model.batches(rows, FRONT_BATCH)
        del rows


class BoundFront(BoundSamples):
    """Samples of which the front alone is kept, for graphs that begin behind it: often less than half of their bytes.

    Args:
        parts: the samples, (N_i, ...) each; one part after the other is made, computed and given up.
        count: how many there are in all.

    Raises:
        UsageError: the parts have another number of samples.
    """

    def __init__(self, model: Fronted, parts: Iterable[Data], count: int) -> None:
        self.model, self.count, self.keeps = model, count, True
        self._declared, at = read_front(model.bundle.manifest), 0
        for some in cut_parts(model, parts):
            found = compute_front(model, some)
            if self._kept is None:
                self._kept = np.empty((count, *found.shape[1:]), found.dtype)
            if at + len(found) > count:
                raise UsageError(f"{model.name}: more samples in the parts than the {count} that were said")
            self._kept[at : at + len(found)] = found
            at += len(found)
            del some  # and with it, at the end of a part, all of that
        if at != count:
            raise UsageError(f"{model.name}: {at} samples in the parts, {count} were said")

    def __len__(self) -> int:
        return self.count

    def choose(self, graph: str) -> str:
        """Name of a graph behind the front. Raises UsageError for one that begins with the data in any form."""
        if not has_graph(self.model.bundle, graph):
            raise UsageError(f"{self.model.name}: graph {graph!r} begins with the data, and only its front was kept")
        return graph + FROM_FRONT


def bind_parts(model: Fronted, parts: Iterable[Array], count: int, graph: str) -> BoundSamples:
    """Samples that are made part by part, bound for one graph: with their front alone where that is kept and enough.

    Args:
        parts: checked samples, (N_i, ...) each. count: how many there are in all.
    """
    size = count * sample_bytes(read_front(model.bundle.manifest)) if model.has_front else 0
    if 0 < size <= model.kept_limit and has_graph(model.bundle, graph):
        return BoundFront(model, parts, count)
    return BoundSamples(model, np.concatenate([*parts]))
