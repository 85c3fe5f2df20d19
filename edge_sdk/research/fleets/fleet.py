"""Devices and their data, from what people have: arrays, a table, a folder of recordings, a data set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.samples import Samples, SplitSamples, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.own import OwnTask
from edge_sdk.model.tasks.plugged import give_task
from edge_sdk.model.tasks.task import CLASS, LABELS, VALUE
from edge_sdk.records import list_inputs
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.research.fleets.cache import keep_folder
from edge_sdk.research.fleets.parts import find_classes, parts_of_arrays, targets_in
from edge_sdk.research.fleets.tables import columns_of, sample_columns, write_recordings
from edge_sdk.research.fleets.window_tasks import WINDOW_TASKS, WindowTask, check_window_options

if TYPE_CHECKING:
    from edge_sdk.replay.cohorts.cohort import Cohort


@dataclass(frozen=True)
class Fleet:
    """Devices, each with its own samples. Made by one of the functions `from_...`, `synthetic` or `dataset`.

    Attributes:
        data: a folder with a file for each device, or the name of a data set: what `auscult simulate` is given.
        options: how these become samples, by the names that the command has for them.
        origin: what it was made from, in words.
        task: what its user has written, a class that is an `OwnTask` or what that makes; None: it has a name, or is
            one of ours.

    >>> import numpy as np, edge_sdk as auscult
    >>> random = np.random.default_rng(0)
    >>> arrays = {name: (random.normal(size=(20, 3)), np.arange(20) % 2) for name in ("ann", "bob")}
    >>> auscult.Fleet.from_arrays(arrays)
    Fleet of 2 devices in 2 hospitals, 2 classes, samples that are ready (from arrays)
    """

    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    task: Any = field(default=None, repr=False)

    @classmethod
    def from_arrays(
        cls,
        devices: Mapping[str, Sequence[Any]],
        held_out: float = 0.2,
        validation: float = 0.2,
        *,
        predict: str | Sequence[str] = "",
        unit: str | Sequence[str] = "",
        range: Sequence[Any] = (),
        labels: str | Sequence[str] | None = None,
        task: str | type[OwnTask] | OwnTask = "",
        **options: Any,
    ) -> Fleet:
        """A fleet of arrays in memory.

        Args:
            devices: name -> (x, y), or (x, y, x_test, y_test) where you have split them yourself. x: numbers (N, ...),
                a row for each sample: (N, channels, time) for windows of sensors, (N, features) for rows of a table;
                y (N,): classes, as whole numbers from 0 or texts, which are one class if they differ in spaces or upper
                case only; or values, as floats, (N, K) where there are several;
                or sets of labels, as booleans (N, K) or as lists of names, also empty ones. For task "reconstruction"
                and "forecast" x alone will do, y are texts of what has happened; for "steps" y (N, S) has a class at
                each step of a window, -1 or "" where nobody knows it; for "step_values" y (N, S), or (N, K, S), has
                numbers there, NaN where nobody knows.
            held_out: share of each class by which models are judged in the end: its last samples.
            validation: share of each class on which choices are made, before these; 0: there is none.
            predict: names of the values; "": floats that are not whole numbers are values, called "value".
            unit: of each value, or one for all. range: (low, high) between which each is expected; none: what the
                samples have that are not held out.
            labels: names of the columns of booleans, in their order; of lists of names those that a model predicts,
                None: all that occur. Of steps the names of their numbers.
            task: "reconstruction", "forecast", "steps" or "step_values"; of another package, NAME or
                NAME:KEY=VALUE;KEY=VALUE, which takes what y has, texts or numbers; or a class of your own, such as one
                of a notebook, or what it makes (see `edge_sdk.OwnTask`).
            options: of windows that are reconstructed or forecast: `abnormal` (labels of what is, all of whose windows
                are held out), `quantile` (of errors, above which a window is an alarm), `horizon` (values).

        Raises:
            UsageError: an array has another shape or type, or a device has too few samples.
        """
        if not isinstance(devices, Mapping):
            raise UsageError(f"from_arrays: devices is a {type(devices).__name__}; expected {{name: (x, y), ...}}")
        if not devices:
            raise UsageError("from_arrays: no device; expected {name: (x, y), ...}")
        if twice := [name for name, count in Counter(map(str, devices)).items() if count > 1]:
            raise UsageError(f"from_arrays: two devices are called {twice[0]}, one by a number and one by a text")
        said = {"predict": predict, "unit": unit, "range": range}
        asked = {key: value for key, value in said.items() if len(value)}
        named, own = named_task(task)
        check_window_options(named, {**options, **(asked if named in WINDOW_TASKS else {})})
        if named in WINDOW_TASKS:
            given = {**options} if labels is None else {**options, "labels": words_of(labels)}
            given |= {"abnormal": words_of(options["abnormal"])} if "abnormal" in options else {}
            check_window_options(named, given | asked)
            of_steps = given.get("labels", ()), given.get("abnormal", ()), words_of(predict)
            cut, given = WindowTask(named, held_out, validation, *of_steps), given | asked
            windows = cut.parts({checked_name(str(name), "device name"): own for name, own in devices.items()})
            return cls(str(store_parts(windows)), {"task": named, **given}, "from arrays")
        if alone := next((name for name, own in devices.items() if hasattr(own, "__array__")), None):
            wanted = "(x, y) or (x, y, x_test, y_test); windows without labels are for task reconstruction or forecast"
            raise UsageError(f"device {alone}: x without y, expected {wanted}")
        targets = targets_in(devices, words_of(predict), None if labels is None else words_of(labels))
        if targets.kind == CLASS and not named:
            targets = replace(targets, classes=find_classes(devices))
        parts = {
            checked_name(str(name), "device name"): parts_of_arrays(str(name), arrays, held_out, validation, targets)
            for name, arrays in devices.items()
        }
        if named and (asked or labels is not None):
            raise UsageError(
                f"from_arrays: task {named} says itself what it predicts; leave predict, unit, range, labels"
            )
        if asked and targets.kind != VALUE:
            raise UsageError(f"from_arrays: {next(iter(asked))} is of values, and y has no numbers with fractions")
        if targets.kind == LABELS:
            asked = {"labels": targets.names or ALL}
        if named:
            asked = {"task": named}
        return cls(str(store_parts(parts)), asked, "from arrays", own)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        by: str = "subject",
        label: str = "activity",
        time: str | None = None,
        held_out: float = 0.2,
        validation: float = 0.2,
        **options: Any,
    ) -> Fleet:
        """A fleet of a table with a column that says whose each row is. Pandas, polars, or a dictionary of columns.

        Args:
            frame: all other columns are numbers.
            by: column of the device. label: column of the class, of a value, or of sets of labels (with `labels`).
            time: column of the time, in seconds or as dates: rows are readings of sensors, which are cut into windows.
                None: each row is a sample.
            options: of recordings: `window`, `stride` (samples), `gap` (seconds), `labelled` (seconds). `predict`:
                columns of values in place of `label`; `unit`, `range`, `labels`, `task`: as of `from_arrays`.

        Raises:
            UsageError: a column is missing or is not numbers, or an option is for recordings.
        """
        columns = columns_of(frame)
        predict = words_of(options.get("predict", ""))
        if time is None:
            if strange := next((key for key in options if key not in TASK), None):
                raise UsageError(f"{strange} is for recordings: say which column is the time, time=...")
            arrays = sample_columns(columns, by, predict or (label,))
            return cls.from_arrays(arrays, held_out, validation, **options)
        digest, write = write_recordings(columns, by, "" if predict else label, time)
        folder = keep_folder("fleets", digest, write)
        found = cls.from_traces(folder, held_out=held_out, validation=validation, **options)
        return replace(found, origin="from a table of readings")

    @classmethod
    def from_traces(cls, folder: str | Path, **options: Any) -> Fleet:
        """A fleet of a folder of recordings, a file for each device.

        Args:
            options: `label` (name of the column of classes), `window`, `stride` (samples), `gap` (seconds that end a
                recording), `held_out`, `validation` (shares, 0.2), `labelled` (seconds of each class that have labels);
                `predict` (columns of values), `unit` and `range` of these; `labels` (names of which each window has a
                set, or "all") and `separator` between them; `task`: as of `from_arrays`.

        Raises:
            UsageError: there is no such folder.
        """
        if not Path(folder).is_dir():
            raise UsageError(f"from_traces: {folder} is no folder; expected one with a file for each device")
        named, own = named_task(options.get("task", ""))
        more = {"task": named} if named else {}
        return cls(str(Path(folder).resolve()), {**options, **more}, f"from {folder}", own)

    @classmethod
    def synthetic(cls, devices: int = 12, minutes: float = 13.0, seed: int = 7, **options: Any) -> Fleet:
        """Wrist accelerometers of persons that nobody has recorded, to try things.

        Args:
            minutes: for each person, in the mean.
            seed: of all that is random.
            options: as of `from_traces`.

        Raises:
            UsageError: a number is out of range.
        """
        told = f"synthetic {devices} {minutes} {seed}"

        def write(target: Path) -> None:
            write_traces(target, devices, seed, minutes, overwrite=True)

        folder = keep_folder("fleets", hashlib.sha256(told.encode()).hexdigest(), write)
        return cls(str(folder), dict(options), "generated, nobody's")

    @classmethod
    def dataset(cls, name: str, **options: Any) -> Fleet:
        """A data set that is dealt out to devices.

        Args:
            name: "breast-cancer", "tabular", or NAME:PATH of "esr", "mnist", "cifar10".
            options: `devices` (of each hospital, 4), `deal` ("iid", "classes=2", "dirichlet=0.5"), `samples` (most of a
                device), `held_out`, `validation` (shares).
        """
        return cls(name, dict(options), f"data set {name}")

    @property
    def summary(self) -> str:
        """A line about it: numbers of devices and of classes, and what they hold. Reads the data.

        Raises:
            UsageError: they cannot be read.
        """
        return self.form().summary

    def form(self) -> Cohort:
        """The devices and their data, as a run has them. Reads the data.

        Raises:
            UsageError: they cannot be read.
        """
        from edge_sdk.replay.cohorts.form import form_cohort

        named_task(self.task or "")  # another fleet may have had one of the same name since
        return form_cohort(self.data, 3, 0, {NAMED.get(key, key): said(key, v) for key, v in self.options.items()})

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, put right and left out, a line each. Reads the data.

        Raises:
            UsageError: they cannot be read.
        """
        return self.form().notes

    def __repr__(self) -> str:
        formed = self.form()
        left = sum(note.startswith("warning: ") for note in formed.notes)
        return f"Fleet of {formed.summary} ({self.origin}{f'; {left} left out, see its notes' * bool(left)})"


TASK = ("predict", "unit", "range", "labels", "task", "abnormal", "quantile", "horizon")
"""Options that say what y is."""
NAMED = {"predict": "target"}
"""Option of a simulation -> its name where data are read."""
ALL = "all"


def named_task(task: str | type[OwnTask] | OwnTask) -> tuple[str, Any]:
    """The name of a task, and the task if its user has written it: that is known in this process then.

    Raises:
        UsageError: it cannot be used, or its name is taken.
    """
    return (task, None) if isinstance(task, str) else (give_task(task), task)


def words_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names, of a list or of a text with commas between them; none of "all"."""
    if not isinstance(names, (str, Iterable)):
        raise UsageError(f"{names!r:.60} is no name; expected names, such as ['fall', 'tremor']")
    given = names.split(",") if isinstance(names, str) else names
    return tuple(name for one in given if (name := str(one).strip()) and names != ALL)


def said(key: str, value: Any) -> Any:
    """An option as it is read with the data: names with commas between them, ranges as texts."""
    if key == "range":
        return tuple(one if isinstance(one, str) else ",".join(map(str, one)) for one in value)
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def store_parts(parts: Mapping[str, SplitSamples]) -> Path:
    """Writes samples into a folder of the cache, a file for each device, once for the same content.

    Raises:
        UsageError: devices have samples of different shapes.
    """
    shapes = {name: {key: x.shape[1:] for key, x in list_inputs(p.train.x).items()} for name, p in parts.items()}
    first = next(iter(shapes))
    if other := next((name for name in shapes if shapes[name] != shapes[first]), None):
        raise UsageError(
            f"device {other}: a sample is {shapes[other]['x']}, of {first} it is {shapes[first]['x']}; all alike"
        )

    def write(folder: Path) -> None:
        for name, p in parts.items():
            store_samples(folder / f"{name}.npz", p.train, p.held_out, p.validation)

    return keep_folder("fleets", hash_parts(parts), write)


def parts_there(p: SplitSamples) -> list[Samples]:
    """The parts that there are."""
    return [part for part in (p.train, p.held_out, p.validation) if part is not None]


def hash_parts(parts: Mapping[str, SplitSamples]) -> str:
    """SHA-256 of names, inputs and labels."""
    found = hashlib.sha256()
    for name in sorted(parts):
        for part in parts_there(parts[name]):
            told = f"{name}\0{part.x.dtype}\0{part.x.shape}\0{chr(31).join(map(str, part.labels))}\0"
            found.update(told.encode())
            found.update(np.ascontiguousarray(part.x).tobytes())
    return found.hexdigest()
