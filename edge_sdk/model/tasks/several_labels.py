"""The task of predicting a set of labels for each sample, also the empty one: findings that may be there at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import label_sets
from edge_sdk.algebra.metrics.label_sets import F1
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, NONE, check_set_name, clean_label, label_key
from edge_sdk.model.tasks.signal_spec import check_names
from edge_sdk.model.tasks.task_protocol import LABELS, Array, ByTargets, Floats

MOST_LABELS = 64
"""Labels that one model predicts, at most: each has scores of its own."""


@dataclass(frozen=True)
class SeveralLabels(ByTargets):
    """A set of labels for each sample: a text such as "af+pvc" or "none", or a set of names.

    Attributes:
        names: of the labels, in the order of the outputs: one logit for each; kept in one form of Unicode, without
            spaces around them.
    """

    kind, evaluates, fewest = LABELS, True, 1

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.fewest <= len(self.names) <= MOST_LABELS:
            wanted = f"expected names of {self.fewest} to {MOST_LABELS}"
            raise UsageError(f"task {self.kind}: {len(self.names)} labels, {wanted}")
        check_names(f"task {self.kind}: names", self.names)
        keys = [label_key(name) for name in self.names]
        for name, key in zip(self.names, keys, strict=True):
            try:
                self.check_name(name)
            except UsageError as error:
                raise UsageError(f"task {self.kind}: {error}") from error
            if keys.count(key) > 1:
                how = "spaces, forms of Unicode, widths, upper and lower case do not differ"
                raise UsageError(f"task {self.kind}: {name!r} is there twice; {how}")
        object.__setattr__(self, "names", tuple(map(clean_label, self.names)))

    def check_name(self, name: str) -> None:
        """Raises UsageError for a name that could not be told from something else in a label."""
        check_set_name(name)

    @cached_property
    def spelled(self) -> Mapping[str, str]:
        """Key of a label -> its name."""
        return {label_key(name): name for name in self.names}

    @property
    def outputs(self) -> int:
        return len(self.names)

    @property
    def histograms(self) -> int:
        return len(self.names)

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        return self.names

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"several labels ({', '.join(self.names)})"

    def entry(self) -> dict[str, Any]:
        return {"kind": LABELS, "names": list(self.names)}

    # -- labels

    def read(self, label: Any) -> frozenset[str] | None:
        """The set that a label is, in the spelling of the task; None: it is none, or has another name in it."""
        parts = split_set(label) if isinstance(label, str) else label
        if not isinstance(parts, (set, frozenset, tuple, list)):
            return None
        found = [self.spelled.get(label_key(str(part))) for part in parts]
        return None if None in found else frozenset(filter(None, found))

    def listed(self, labels: Sequence[Any], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.asarray([self.read(label) is not None for label in labels], np.bool_)

    def targets(self, labels: Iterable[Any], names: Sequence[str], where: str, x: Array | None = None) -> Array:
        """What the network is trained with, float32 (N, K) of 0 and 1."""
        return self.codes(labels, where)

    def codes(self, labels: Iterable[Any], where: str) -> npt.NDArray[np.float32]:
        """Which labels of the task there are, float32 (N, K) of 0 and 1."""
        rows = [[float(name in found) for name in self.names] for found in self.sets(labels, where)]
        return np.array(rows, np.float32).reshape(len(rows), len(self.names))

    def sets(self, labels: Iterable[Any], where: str) -> list[frozenset[str]]:
        """Labels as sets. UsageError: one is none of the task."""
        found = list[frozenset[str]]()
        for label in labels:
            if (one := self.read(label)) is None:
                wanted = f"a set of {', '.join(self.names)}, such as {self.names[0]!r} or {NONE!r}"
                raise UsageError(f"{where}: label {label!r:.60}, expected {wanted}")
            found.append(one)
        return found

    def write(self, label: Any) -> str:
        return join_set(self.sets([label], "label()")[0], self.names)

    # -- scores

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        return label_sets.count_sums(y, label_sets.sigmoid(outputs))

    def shown(self, outputs: Floats, x: Array | None = None) -> npt.NDArray[np.float64]:
        return label_sets.sigmoid(outputs)

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        found = self.judged(y, outputs)
        return {"samples": float(len(y)), "loss": float(losses.sum()), **found, **self.of_a_device(found)}

    def judged(self, y: Array, outputs: Floats, limit: float | None = None) -> dict[str, float]:
        p = label_sets.sigmoid(outputs)
        return {**label_sets.count_sums(y, p), **label_sets.histogram_sums(y, p)}

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        """One device's macro-F1 and its square: what becomes a mean over devices, and a spread."""
        f1 = label_sets.macro_f1(sums, len(self.names))
        return {F1: f1, f"{F1}_squared": f1 * f1}

    def badness(self, sums: Mapping[str, float]) -> float:
        return 1 - label_sets.macro_f1(sums, len(self.names))

    @property
    def settles(self) -> bool:
        return True

    def credits(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        """The share of labels that are right."""
        return np.asarray(((outputs > 0) == (y > 0)).mean(1))

    def baseline(self, y: Array) -> Floats:
        """What most training samples have, label by label, as logits (1, K)."""
        share = np.clip(y.mean(0, keepdims=True, dtype=np.float64), 1e-6, 1 - 1e-6)
        return np.asarray(np.log(share / (1 - share)))

    def fleet_scores(self, sums: Mapping[str, float]) -> dict[str, Any]:
        """Under "labels": model -> label -> its scores over all samples of an evaluation, where histograms came."""
        models = dict.fromkeys(name.partition("_auc:")[0] for name in sums if "_auc:" in name)
        return {"labels": {model: self.by_label(sums, f"{model}_") for model in models}} if models else {}

    def by_label(self, sums: Mapping[str, float], prefix: str = "") -> dict[str, dict[str, Any]]:
        """Label -> its scores, by sums with histograms."""
        each = label_sets.scores_by_label(sums, len(self.names), prefix)
        return {name: asdict(one) for name, one in zip(self.names, each, strict=True)}

    def sample_losses(self, labels: Sequence[Any], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        """Share of the labels that are wrong at 0.5, (N,). `rows`: probabilities (N, K)."""
        y = self.codes(labels, where)
        return np.asarray(((rows >= label_sets.USUAL) != (y > label_sets.USUAL)).mean(1))

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (LABELS, *self.names)

    def describe(self, sums: Mapping[str, float]) -> str:
        ending = f"_{F1}"
        return ", ".join(f"{n.removesuffix(ending)} macro-F1 {v:.3f}" for n, v in sums.items() if n.endswith(ending))


def split_set(text: str) -> tuple[str, ...] | None:
    """Names in a text such as "af+pvc"; "none" has none, and a text without any is no set."""
    parts = tuple(map(clean_label, text.split(JOIN)))
    if parts == (parts[0],) and label_key(parts[0]) == NONE:
        return ()
    return None if "" in parts else parts


def join_set(found: Iterable[str], order: Sequence[str]) -> str:
    """The text of a set, its names in this order."""
    names = {*found}
    return JOIN.join(name for name in order if name in names) or NONE


def names_in(labels: Iterable[Any]) -> tuple[str, ...]:
    """All names in the sets that labels are, sorted; one for those that are one label, see `label_key`."""
    found: dict[str, str] = {}
    for label in labels:
        for name in (split_set(label) or ()) if isinstance(label, str) else label:
            found.setdefault(label_key(str(name)), clean_label(str(name)))
    return tuple(sorted(found.values()))


def read_several_labels(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int] = ()) -> SeveralLabels:
    """The task that an entry of a manifest says. UsageError: it is wrong, or the output has another shape."""
    if set(entry) != {"kind", "names"}:
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {LABELS!r} and names")
    found = SeveralLabels(tuple(entry["names"]))
    if tuple(output) != (len(found.names),):
        raise UsageError(f"task {LABELS}: {len(found.names)} labels, but an output of shape {tuple(output)} per sample")
    return found
