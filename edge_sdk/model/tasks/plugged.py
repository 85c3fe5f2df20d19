"""Tasks of other packages as tasks of bundles: a task of values whose targets, outputs and errors the package says.

    {"kind": "grades", "settings": {"levels": "none,mild,severe"}, "loss": "huber", "outputs": 2, ...}

is such a task in a manifest. Every node that reads the bundle has the package; one whose package says something else
than the bundle refuses it. Whatever a package does wrong is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import regression
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.own import BINARY, LINKS, SOFT, OwnTask, check_own_task
from edge_sdk.model.tasks.signal_spec import TEXT
from edge_sdk.model.tasks.task_protocol import (
    CLASS,
    FORECAST,
    LABELS,
    RECONSTRUCTION,
    STEPS,
    VALUE,
    Array,
    Floats,
    Label,
)
from edge_sdk.model.tasks.values import Values
from edge_sdk.plugins import PlugIns

KEYS = frozenset({"kind", "settings", "loss", "outputs", "names", "units"})
MOST_SETTINGS, LONGEST = 16, 1024
"""Settings of a task at most, and characters of one."""


@dataclass(frozen=True)
class PluggedTask(Values):
    """A task that another installed package has under this name.

    Attributes:
        plugin: its name among the entry points.
        settings: texts that it was made with, sorted by their names.
        own: what the package has made.
    """

    plugin: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    own: OwnTask = field(default_factory=OwnTask, compare=False, repr=False)

    @property
    def kind(self) -> str:
        return self.plugin

    @property
    def outputs(self) -> int:
        return self.own.outputs

    @property
    def loss(self) -> str:
        """The loss that trains it."""
        return self.own.loss

    @property
    def option(self) -> str:
        """It as `--task` names it."""
        said = ";".join(f"{key}={value}" for key, value in self.settings)
        return f"{self.plugin}:{said}" if said else self.plugin

    def fits(self, names: Sequence[str]) -> bool:
        return tuple(names) == self.names

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (self.plugin, *(f"{key}={value}" for key, value in self.settings), *self.names, *self.units)

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"{super().in_words(names)} of task {self.option}"

    def entry(self) -> dict[str, Any]:
        said = {"kind": self.plugin, "settings": dict(self.settings), "loss": self.loss}
        return {**said, "outputs": self.outputs, "names": list(self.names), "units": list(self.units)}

    @property
    def settles(self) -> bool:
        return False  # whatever its outputs are, they are no values

    # -- labels

    def row(self, label: Label) -> tuple[float, ...] | None:
        """What the network is trained with for a label; None: it is none of this task."""
        with PLUGINS.blamed(self.plugin):
            found = self.own.target(label)
            if found is None:
                return None
            row = np.asarray(found, np.float64)
            if row.shape != (self.outputs,) or not np.isfinite(row).all():
                raise UsageError(f"target({label!r:.60}) is {found!r:.60}, expected {self.outputs} finite numbers")
            if self.loss in (BINARY, SOFT) and not ((row >= 0) & (row <= 1)).all():
                raise UsageError(f"target({label!r:.60}) is {found!r:.60}, expected shares of 0 to 1 for {self.loss}")
            return tuple(row.tolist())

    def rows_of(self, labels: Iterable[Label]) -> list[tuple[float, ...] | None]:
        """`row` of each label, which is asked for once."""
        known: dict[Label, tuple[float, ...] | None] = {}
        found = []
        for label in labels:
            if label not in known:
                known[label] = self.row(label)
            found.append(known[label])
        return found

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.asarray([row is not None for row in self.rows_of(labels)], np.bool_)

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        return f"is for task {self.option}, of which {', '.join(labels)} is no label"

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array | None = None) -> Array:
        every = list(labels)
        rows = self.rows_of(every)
        if None in rows:
            raise UsageError(f"{where}: label {every[rows.index(None)]!r:.60} is none of task {self.option}")
        return np.array(rows, np.float32).reshape(len(every), self.outputs)

    def numbers(self, labels: Iterable[Label], where: str) -> npt.NDArray[np.float64]:
        """What people should see of samples with these labels, (N, K)."""
        y = self.targets(labels, (), where)
        with PLUGINS.blamed(self.plugin):
            return self.checked("truth", self.own.truth(y), len(y))

    def write(self, label: Label) -> str:
        if self.row(label) is None:
            raise UsageError(f"label {label!r:.60} is none of task {self.option}")
        return " ".join(map(str, label)) if isinstance(label, tuple) else str(label)

    # -- scores

    def checked(self, what: str, found: Any, count: int) -> npt.NDArray[np.float64]:
        """Numbers (count, K) that a function of the package has returned. UsageError: they are others."""
        values = np.asarray(found, np.float64)
        if values.shape != (count, len(self.units)):
            raise UsageError(f"{what} gives an array {values.shape}, expected {(count, len(self.units))}")
        return values

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        if not len(y):
            return regression.error_sums(np.zeros((0, len(self.units))), np.zeros((0, len(self.units))))
        with PLUGINS.blamed(self.plugin):
            errors = self.errors_of(y, outputs)
        return regression.error_sums(np.zeros_like(errors), errors)

    def errors_of(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        """The task's errors (N, K). Where it has none of its own, what makes them is named if they cannot be right."""
        errors, count = self.own.errors(y, outputs), len(y)
        if type(self.own).errors is OwnTask.errors and np.shape(errors) != (count, len(self.units)):
            self.checked("shown", self.own.shown(outputs), count)
            self.checked("truth", self.own.truth(y), count)
        return self.checked("errors", errors, count)

    def shown(self, outputs: Floats, x: Array | None = None) -> npt.NDArray[np.float64]:
        with PLUGINS.blamed(self.plugin):
            return self.checked("shown", self.own.shown(outputs), len(outputs))

    def baseline(self, y: Array) -> Floats:
        """What has the least loss of all that says the same of each sample, or nearly so."""
        mean = np.asarray(y.mean(0, keepdims=True, dtype=np.float64))
        return LINKS[self.loss](mean) if self.loss in LINKS else mean


# By its name ----------------------------------------------------------------------------------------------------
def check_offered(name: str, found: Any) -> type[OwnTask]:
    """A task of another package. Raises UsageError if what is there makes none without any setting."""
    if not callable(found):
        raise UsageError(f"a {type(found).__name__}; expected a class that is an edge_sdk.OwnTask")
    of_values(name, (), check_own_task(found()))
    return found  # type: ignore[no-any-return]


def of_values(name: str, settings: tuple[tuple[str, str], ...], own: OwnTask) -> PluggedTask:
    return PluggedTask(tuple(own.units), tuple(own.names), plugin=name, settings=settings, own=own)


PLUGINS = PlugIns("task", {CLASS, VALUE, LABELS, STEPS, RECONSTRUCTION, FORECAST}, check_offered)


def give_task(task: Any) -> str:
    """Makes a task that the user has written known in this process, as one of a package would be.

    Args:
        task: a class that is an `OwnTask`, or one of its tasks.

    Returns:
        Its name: that of its class, in small letters.

    Raises:
        UsageError: it is none, cannot be used, or the name is taken.
    """
    made = task if isinstance(task, type) else type(task)
    if not issubclass(made, OwnTask) or made is OwnTask:
        said = task.__name__ if isinstance(task, type) else f"a {made.__name__}"
        raise UsageError(f"task is {said}: expected its name, a class that is an edge_sdk.OwnTask, or what that makes")
    name = made.__name__.lower()
    PLUGINS.give(name, task if isinstance(task, type) else partial(no_settings, task))
    return name


def no_settings(task: OwnTask) -> OwnTask:
    """The task itself: one that is made already takes no settings."""
    return task


def make_plugged(name: str, settings: Mapping[str, str]) -> PluggedTask:
    """The task of this name, with these settings.

    Raises:
        UsageError: no package has it, it cannot be loaded, or refuses the settings.
    """
    kept = tuple(sorted(settings.items()))
    if len(kept) > MOST_SETTINGS or not all(
        type(value) is str and len(value) <= LONGEST and key.isidentifier() and len(key) <= TEXT for key, value in kept
    ):
        what = f"at most {MOST_SETTINGS} settings, KEY=VALUE, of up to {LONGEST} characters"
        raise UsageError(f"task {name}: settings {str(dict(kept))[:80]}, expected {what}")
    make = PLUGINS.load(name)
    with PLUGINS.blamed(name):
        return of_values(name, kept, check_own_task(make(**dict(kept))))


def find_plugged(said: str) -> PluggedTask:
    """The task that NAME or NAME:KEY=VALUE;KEY=VALUE names.

    Raises:
        UsageError: there is none, or it refuses the settings.
    """
    name, _, rest = said.partition(":")
    if name not in PLUGINS:
        there = [VALUE, LABELS, STEPS, RECONSTRUCTION, FORECAST, *PLUGINS]
        raise UsageError(f"task {name}: there are {', '.join(there)}")
    parts = [part.partition("=") for part in rest.split(";") if part.strip()]
    if strange := next((key for key, sign, _ in parts if not sign), None):
        raise UsageError(f"task {said:.80}: {strange.strip()!r} is no setting; expected NAME:KEY=VALUE;KEY=VALUE")
    return make_plugged(name, {key.strip(): value.strip() for key, _, value in parts})


def read_plugged(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int] = ()) -> PluggedTask:
    """The task of a package that an entry of a manifest names.

    Raises:
        UsageError: the entry is wrong, the package is missing, or it says something else than the entry.
    """
    kind, settings = str(entry["kind"]), entry.get("settings")
    if set(entry) != KEYS or not isinstance(settings, dict):
        raise UsageError(f"task = {str(entry)[:80]}: expected {', '.join(sorted(KEYS))}")
    found = make_plugged(kind, settings)
    if found.entry() != dict(entry):
        raise UsageError(f"task {kind}: the bundle has {str(dict(entry))[:200]}, but {PLUGINS.place_of(kind)} says "
                         f"{str(found.entry())[:200]}; compile it with the version that is here")  # fmt: skip
    if tuple(output) != (found.outputs,):
        raise UsageError(f"task {kind}: {found.outputs} outputs, but an output of shape {tuple(output)} per sample")
    return found
