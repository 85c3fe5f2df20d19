"""The task of telling the class of each step of a window: stages of sleep, gait along time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import label_sets, step_classes
from edge_sdk.errors import UsageError
from edge_sdk.label_names import DIVIDES, STEP_JOIN, clean_label, label_key
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.model.tasks.task_protocol import STEPS, Array, Floats, check_steps


@dataclass(frozen=True)
class StepClasses(SeveralLabels):
    """One class for each step of a window, which is divided into steps of equal length.

    A network returns logits (K, S) of K classes at S steps. The label of a window is a text with the class of each
    step, "rest|rest|walk", in which "" stands for a step of which nobody has said anything: it is not trained on, and
    nothing is judged by it; a text of nothing is a window of such steps. "samples" of scores are steps that have a
    class, and so "correct" is the number of steps that are right, and "loss" their cross entropy.

    Attributes:
        names: of the classes, in the order of the outputs.
        steps: of a window.
    """

    kind, fewest = STEPS, 2

    steps: int = 1

    def __post_init__(self) -> None:
        check_steps(STEPS, self.steps)
        super().__post_init__()

    def check_name(self, name: str) -> None:
        if not clean_label(name) or STEP_JOIN in name or DIVIDES in name:
            raise UsageError(f"a class called {name!r:.60}; {STEP_JOIN!r} stands between steps, a comma divides names")

    def output_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (len(self.names), self.steps)

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"one class of {len(self.names)} at each of {self.steps} steps ({', '.join(self.names)})"

    def entry(self) -> dict[str, Any]:
        return {"kind": STEPS, "names": list(self.names), "steps": self.steps}

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (STEPS, str(self.steps), *self.names)

    # -- labels

    def along(self, label: Any) -> list[str] | None:
        """The class of each step, "" where none is known, in the spelling of the task; None: the label is of something
        else."""
        parts = label.split(STEP_JOIN) if isinstance(label, str) else ["+"]
        parts = [""] * self.steps if parts == [""] else parts  # no word of any step
        known = {**self.spelled, "": ""}
        found = [known.get(label_key(part)) for part in parts]
        return None if None in found or len(found) != self.steps else [name or "" for name in found]

    def read(self, label: Any) -> frozenset[str] | None:
        """The classes that occur in a window; None: its label is of something else."""
        found = self.along(label)
        return None if found is None else frozenset(filter(None, found))

    def listed(self, labels: Sequence[Any], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Samples with a step whose class is known, as a mask (N,)."""
        return np.asarray([bool(self.read(label)) for label in labels], np.bool_)

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        few = ", ".join(f"{label!r:.60}" for label in labels)
        return f"has {self.steps} steps of {', '.join(self.names)}, and these labels have other ones, or none: {few}"

    def codes(self, labels: Iterable[Any], where: str) -> npt.NDArray[np.float32]:
        """float32 (N, K, S): 1 at the class of a step, 0 elsewhere; a step without a class has no 1."""
        rows = list[list[str]]()
        for label in labels:
            if (found := self.along(label)) is None:
                wanted = f"{self.steps} of {', '.join(self.names)} or '' with {STEP_JOIN!r} between them"
                raise UsageError(f"{where}: label {label!r:.60}, expected {wanted}")
            rows.append(found)
        said = np.array(rows, str).reshape(len(rows), 1, self.steps)
        return np.asarray(said == np.array(self.names)[:, None], np.float32)

    def write(self, label: Any) -> str:
        """The class of a stretch of time."""
        found = self.spelled.get(label_key(label)) if isinstance(label, str) else None
        if found is None:
            raise UsageError(f"label {label!r:.60}: expected the class of this time, one of {', '.join(self.names)}")
        return found

    def write_along(self, said: Any) -> tuple[str | None, ...]:
        """The class of each of equal parts of a stretch of time; of "" or None nobody knows."""
        return tuple(None if name is None or name == "" else self.write(name) for name in said)

    def in_step(self, lasted: Mapping[str, float], unknown: float) -> str:
        """What was done most of the time; "": more of it nobody knows what was."""
        best = max(lasted, key=lambda name: (lasted[name], name), default="")
        return best if best and lasted[best] >= unknown else ""

    # -- scores

    def known_steps(self, y: Array, outputs: Floats) -> tuple[Array, npt.NDArray[np.float64]]:
        """Classes (M, K), as 0 and 1, of the M steps that have one, and shares (M, K) as `class_shares` has them."""
        rows, z = (np.moveaxis(a, 1, 2).reshape(-1, len(self.names)) for a in (y, outputs))
        known = rows.any(1)
        return rows[known], step_classes.class_shares(z[known])

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        rows, shares = self.known_steps(y, outputs)
        return {"samples": float(len(rows)), **label_sets.count_sums(rows, shares)}

    def judged(self, y: Array, outputs: Floats, limit: float | None = None) -> dict[str, float]:
        rows, shares = self.known_steps(y, outputs)
        counts = label_sets.count_sums(rows, shares)
        return {"samples": float(len(rows)), **counts, **label_sets.histogram_sums(rows, shares)}

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        found = {"loss": float(losses.sum()), **self.judged(y, outputs)}
        return {**found, **self.of_a_device(found)}

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Scores as of sets of labels, and the loss of steps: that of a window is its mean over all of them."""
        return {**super().of_a_device(sums), **({"loss": self.steps * sums["loss"]} if "loss" in sums else {})}

    def shown(self, outputs: Floats, x: Array | None = None) -> npt.NDArray[np.float64]:
        """Probabilities (N, K, S), 1 together at each step."""
        z = np.asarray(outputs, np.float64)
        e = np.exp(z - z.max(1, keepdims=True))
        return np.asarray(e / e.sum(1, keepdims=True))

    def credits(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        """The share of a window's steps with a class that are right; 0 of a window that has none."""
        known = y.any(1)
        right = known & (outputs.argmax(1) == y.argmax(1))
        return np.asarray(right.sum(1) / np.maximum(known.sum(1), 1))

    def baseline(self, y: Array) -> Floats:
        """Logits (1, K, S), the same at each step, by how often classes occur in training."""
        count = y.sum((0, 2), dtype=np.float64)
        logits = np.log(np.clip(count / max(count.sum(), 1.0), 1e-6, 1.0))
        return np.asarray(np.repeat(logits[None, :, None], self.steps, 2))

    def sample_losses(self, labels: Sequence[Any], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        """Share of a window's steps with a class that are wrong, (N,). `rows`: probabilities (N, K, S)."""
        y = self.codes(labels, where)
        known = y.any(1)
        wrong = known & (rows.argmax(1) != y.argmax(1))
        return np.asarray(wrong.sum(1) / np.maximum(known.sum(1), 1))


def read_step_classes(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int] = ()) -> StepClasses:
    """The task that an entry of a manifest says. UsageError: it is wrong, or the output has another shape."""
    if set(entry) != {"kind", "names", "steps"} or not isinstance(entry["names"], list):
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {STEPS!r}, a list of names, and steps")
    found = StepClasses(tuple(entry["names"]), entry["steps"])
    if tuple(output) != (wanted := found.output_of(())):
        raise UsageError(f"task {STEPS}: an output of shape {tuple(output)} per sample; expected {wanted}")
    return found
