"""Devices and their data, from what people have: arrays, a table, a folder of recordings, a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.samples import Samples, SplitSamples, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.records import list_inputs
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.research.fleets.cache import keep_folder
from edge_sdk.research.fleets.parts import pad_numbers, parts_of_arrays
from edge_sdk.research.fleets.tables import columns_of, sample_columns, write_recordings


@dataclass(frozen=True)
class Fleet:
    """Devices, each with its own samples. Made by one of the functions `from_...`, `synthetic` or `dataset`.

    Attributes:
        data: a folder with a file for each device, or the name of a data set: what `auscult simulate` is given.
        options: how these become samples, by the names that the command has for them.
        origin: what it was made from, in words.

    >>> import numpy as np, edge_sdk as auscult
    >>> random = np.random.default_rng(0)
    >>> arrays = {name: (random.normal(size=(20, 3)), np.arange(20) % 2) for name in ("ann", "bob")}
    >>> auscult.Fleet.from_arrays(arrays)
    Fleet of 2 devices in 2 hospitals, 2 classes, samples that are ready (from arrays)
    """

    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""

    @classmethod
    def from_arrays(cls, devices: Mapping[str, Sequence[Any]], held_out: float = 0.2, validation: float = 0.2) -> Fleet:
        """A fleet of arrays in memory.

        Args:
            devices: name -> (x, y), or (x, y, x_test, y_test) where you have split them yourself. x: numbers (N, ...),
                a row for each sample: (N, channels, time) for windows of sensors, (N, features) for rows of a table;
                y (N,): whole numbers from 0, or texts.
            held_out: share of each class by which models are judged in the end: its last samples.
            validation: share of each class on which choices are made, before these; 0: there is none.

        Raises:
            UsageError: an array has another shape or type, or a device has too few samples.
        """
        if not devices:
            raise UsageError("from_arrays: no device; expected {name: (x, y), ...}")
        parts = {
            checked_name(str(name), "device name"): parts_of_arrays(str(name), arrays, held_out, validation)
            for name, arrays in devices.items()
        }
        return cls(str(store_parts(parts)), {}, "from arrays")

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
            by: column of the device. label: column of the class.
            time: column of the time, in seconds or as dates: rows are readings of sensors, which are cut into windows.
                None: each row is a sample.
            options: of recordings: `window`, `stride` (samples), `gap` (seconds), `labelled` (seconds).

        Raises:
            UsageError: a column is missing or is not numbers, or an option is for recordings.
        """
        columns = columns_of(frame)
        if time is None:
            if options:
                raise UsageError(f"{next(iter(options))} is for recordings: say which column is the time, time=...")
            arrays = sample_columns(columns, by, label)
            return cls.from_arrays(arrays, held_out, validation)
        digest, write = write_recordings(columns, by, label, time)
        folder = keep_folder("fleets", digest, write)
        found = cls.from_traces(folder, held_out=held_out, validation=validation, **options)
        return replace(found, origin="from a table of readings")

    @classmethod
    def from_traces(cls, folder: str | Path, **options: Any) -> Fleet:
        """A fleet of a folder of recordings, a file for each device.

        Args:
            options: `label` (name of the column of classes), `window`, `stride` (samples), `gap` (seconds that end a
                recording), `held_out`, `validation` (shares, 0.2), `labelled` (seconds of each class that have labels).

        Raises:
            UsageError: there is no such folder.
        """
        if not Path(folder).is_dir():
            raise UsageError(f"from_traces: {folder} is no folder; expected one with a file for each device")
        return cls(str(Path(folder).resolve()), dict(options), f"from {folder}")

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
        from edge_sdk.replay.cohorts.form import form_cohort

        return form_cohort(self.data, 3, 0, self.options).summary

    def __repr__(self) -> str:
        return f"Fleet of {self.summary} ({self.origin})"


def store_parts(parts: Mapping[str, SplitSamples]) -> Path:
    """Writes samples into a folder of the cache, a file for each device, once for the same content.

    Raises:
        UsageError: devices have samples of different shapes.
    """
    padded = with_padded_labels(parts)
    shapes = {name: {key: x.shape[1:] for key, x in list_inputs(p.train.x).items()} for name, p in padded.items()}
    first = next(iter(shapes))
    if other := next((name for name in shapes if shapes[name] != shapes[first]), None):
        raise UsageError(
            f"device {other}: a sample is {shapes[other]['x']}, of {first} it is {shapes[first]['x']}; all alike"
        )

    def write(folder: Path) -> None:
        for name, p in padded.items():
            store_samples(folder / f"{name}.npz", p.train, p.held_out, p.validation)

    return keep_folder("fleets", hash_parts(padded), write)


def with_padded_labels(parts: Mapping[str, SplitSamples]) -> dict[str, SplitSamples]:
    """Samples whose classes are numbers of as many digits, so that they are in their order; values as they are."""
    every = {label for p in parts.values() for part in parts_there(p) for label in part.labels}
    names = [label for label in every if isinstance(label, str)]
    digits = max(map(len, names)) if names and all(map(str.isdigit, names)) else 0

    def padded(part: Samples) -> Samples:
        return Samples(part.x, pad_numbers([str(label) for label in part.labels], digits)) if names else part

    return {
        name: SplitSamples(padded(p.train), padded(p.held_out), None if p.validation is None else padded(p.validation))
        for name, p in parts.items()
    }


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
