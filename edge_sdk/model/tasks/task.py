"""The task of a bundle: what its outputs are, how a label becomes a target, and how predictions are scored.

One class for each sample is the task of every bundle that says nothing else. Values are in values.py, sets of labels in
several_labels.py, a class for each step of a window in step_classes.py, values for each step in step_values.py, windows
that are reconstructed in reconstruction.py.

A new task is a class that has what `task_protocol.OutputTask` lists, an entry of `read_task`, and a way to show its
predictions (nodes/models/working_model.py). One of another package is an `own.OwnTask`, see plugged.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.label_names import clean_label, label_key
from edge_sdk.model.tasks.task_protocol import CLASS as CLASS
from edge_sdk.model.tasks.task_protocol import FORECAST as FORECAST
from edge_sdk.model.tasks.task_protocol import LABELS as LABELS
from edge_sdk.model.tasks.task_protocol import RECONSTRUCTION as RECONSTRUCTION
from edge_sdk.model.tasks.task_protocol import STEP_VALUES as STEP_VALUES
from edge_sdk.model.tasks.task_protocol import STEPS as STEPS
from edge_sdk.model.tasks.task_protocol import VALUE as VALUE
from edge_sdk.model.tasks.task_protocol import Array, Floats, Label, lacking
from edge_sdk.model.tasks.task_protocol import ModelTask as ModelTask
from edge_sdk.model.tasks.task_protocol import OutputTask as OutputTask

if TYPE_CHECKING:
    from edge_sdk.model.tasks.forecast import Forecast as Forecast
    from edge_sdk.model.tasks.reconstruction import Reconstruction as Reconstruction
    from edge_sdk.model.tasks.several_labels import SeveralLabels as SeveralLabels
    from edge_sdk.model.tasks.step_classes import StepClasses as StepClasses
    from edge_sdk.model.tasks.step_values import StepValues as StepValues
    from edge_sdk.model.tasks.values import Values as Values

Task: TypeAlias = "OneClass | Values | SeveralLabels | Reconstruction"
HOMES = {
    "Forecast": "forecast",
    "Reconstruction": "reconstruction",
    "SeveralLabels": "several_labels",
    "StepClasses": "step_classes",
    "StepValues": "step_values",
    "Values": "values",
}
"""Class of a task -> the module here that it is loaded from when it is first used: a device has one bundle."""
READERS = {
    VALUE: ("values", "read_values"),
    LABELS: ("several_labels", "read_several_labels"),
    STEPS: ("step_classes", "read_step_classes"),
    STEP_VALUES: ("step_values", "read_step_values"),
    RECONSTRUCTION: ("reconstruction", "read_reconstruction"),
    FORECAST: ("forecast", "read_forecast"),
}
"""Kind of a task -> the module here, and its function that reads an entry of a manifest."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"edge_sdk.model.tasks.{HOMES[name]}"), name)


@dataclass(frozen=True)
class OneClass:
    """One class for each sample.

    Attributes:
        classes: outputs of the model; 0: its loss knows no classes, and nothing is counted.
    """

    kind, needs_labels, augments, calibrates, steps = CLASS, True, True, False, 0

    classes: int

    @property
    def histograms(self) -> int:
        return self.classes

    @property
    def evaluates(self) -> bool:
        return self.classes > 0

    def fits(self, names: Sequence[str]) -> bool:
        return len(names) <= self.classes

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(names) or tuple(map(str, range(self.classes)))

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"one class of {len(names) or self.classes}"

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (CLASS,)

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        index = class_index(names)
        return np.asarray([class_key(label, index) in index for label in labels], np.bool_)

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        return lacking(CLASS, labels, names)

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array | None = None) -> Array:
        return class_codes(labels, tuple(names), where)

    def write(self, label: Label) -> str:
        if not isinstance(label, str):
            raise UsageError(f"label {label!r:.60}: the model tells classes apart, expected the name of one")
        return label

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        return {"correct": float((outputs.argmax(1) == y).sum())} if self.classes else {}

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {}

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        from edge_sdk.algebra.metrics import classification  # with the first run

        return classification.sums(y, outputs)

    def fleet_scores(self, sums: Mapping[str, float]) -> dict[str, Any]:
        return {}

    def describe(self, sums: Mapping[str, float]) -> str:
        return ""


def class_codes(labels: Iterable[Label], classes: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
    """Label names as indices (N,) into the classes of a run.

    Raises:
        UsageError: a name is no class of the run. `where` says whose label it is.
    """
    index = class_index(classes)
    names = list(labels)
    unknown = sorted({n for n in names if class_key(n, index) not in index}, key=str)
    if unknown:
        raise UsageError(f"{where}: label {unknown[0]!r} is no class of this run; there are: {', '.join(classes)}")
    return np.asarray([index[class_key(n, index)] for n in names], np.int64)


Key: TypeAlias = "Label | tuple[str]"


def class_index(classes: Sequence[str]) -> dict[Key, int]:
    """Names of classes -> their places; also, in a tuple, the `label_key` of each that no other one has."""
    keys = [label_key(name) for name in classes]
    spelled: dict[Key, int] = {(key,): i for i, key in enumerate(keys) if keys.count(key) == 1}
    return spelled | {name: i for i, name in enumerate(classes)}


def class_key(label: Label, index: Mapping[Key, int]) -> Key:
    """What a label goes by in a `class_index`: itself, or what all its spellings have in common. `Walk`, which somebody
    types into an application, is the class `walk`, as it is in a CSV file."""
    if label in index or not isinstance(label, str):
        return label
    return clean if (clean := clean_label(label)) in index else (label_key(label),)


# In a manifest --------------------------------------------------------------------------------------------------
def read_task(entry: Any, classes: int, output: Sequence[int], input: Sequence[int] = ()) -> Task:
    """The task that a manifest names.

    Args:
        entry: of the manifest; None: it names none.
        output: shape of the output of one sample. input: of its input; of several inputs none.

    Raises:
        UsageError, TypeError: it is none, or another one than the output can be.
    """
    if entry is None:
        return OneClass(classes)
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind == CLASS:
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {VALUE!r}, units, and names, low, high or none")
    home, read = READERS.get(kind, ("plugged", "read_plugged"))  # of a package that a device without such a task lacks
    found: Task = getattr(import_module(f"edge_sdk.model.tasks.{home}"), read)(entry, output, input)
    return found
