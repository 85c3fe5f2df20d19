"""A hospital's own features of its devices' patients, where a model is divided between the two. They never leave it.

The k-th row of a device here and the k-th row in the device's own file are the same patient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Array, Samples, check_samples, read_arrays, read_texts
from edge_sdk.errors import UsageError

Rows = npt.NDArray[np.intp]
Features = npt.NDArray[np.float32]
NO_FEATURES: Features = np.zeros((0, 0), np.float32)
NO_ROWS: Rows = np.zeros(0, np.intp)


@dataclass(frozen=True)
class Patients:
    """The patients of one hospital.

    Attributes:
        train: the hospital's features of all its patients, with their labels.
        devices: for each row of `train`, the device whose patient it is.
        held_out: float32 (N, ...), the hospital's features of the samples that devices are judged on; no labels.
        held_out_devices: for each row of `held_out`, its device.
        validation: the same of the samples that choices are made on; devices have such a part, too, or have none.
        validation_devices: for each row of `validation`, its device.

    >>> import numpy as np
    >>> from edge_sdk import Samples
    >>> rows = Samples(np.ones((2, 4), np.float32), ("sick", "well"))
    >>> Patients(rows, ("watch-1", "watch-2"), np.ones((1, 4), np.float32), ("watch-1",)).devices
    ('watch-1', 'watch-2')
    """

    train: Samples
    devices: tuple[str, ...]
    held_out: Features
    held_out_devices: tuple[str, ...]
    validation: Features = field(default_factory=lambda: NO_FEATURES)
    validation_devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.train.x, self.devices)
        for name, x, devices in (
            ("held out", self.held_out, self.held_out_devices),
            ("validation", self.validation, self.validation_devices),
        ):
            check_names(x, devices)
            Samples(x, ("",) * len(x))  # for its checks
            if len(x) and x.shape[1:] != self.train.x.shape[1:]:
                raise UsageError(f"patients: {name} {x.shape}, x {self.train.x.shape}: only N may differ")

    def check_devices(self, known: Iterable[str]) -> None:
        """Raises UsageError if a row belongs to a device that is not among `known`."""
        if strange := sorted({*self.devices, *self.held_out_devices, *self.validation_devices} - {*known}):
            raise UsageError(f"patients: {strange[0]} is no device of this hospital; there are: {', '.join(known)}")


def check_names(x: Features, devices: tuple[str, ...]) -> None:
    if len(x) != len(devices):
        raise UsageError(f"patients: {len(x)} rows but {len(devices)} names of devices")


def rows_of(devices: tuple[str, ...]) -> dict[str, Rows]:
    """Groups rows by device, in their order."""
    known = {device: number for number, device in enumerate(dict.fromkeys(devices))}
    whose = np.array([known[device] for device in devices], np.intp)
    order = np.argsort(whose, kind="stable")
    ends = np.searchsorted(whose[order], np.arange(len(known)), side="right")
    return dict(zip(known, np.split(order, ends[:-1]), strict=True)) if known else {}


# In a file ------------------------------------------------------------------------------------------------------
NEEDED = ("x", "labels", "device")
TOGETHER = ("held_out_x", "held_out_device"), ("validation_x", "validation_device")


def patients_of(path: Path) -> Patients:
    """Reads an NPZ file: `x` float32 (N, ...), `labels` and `device`, N texts each; to be judged by, `held_out_x` and
    `held_out_device` alike; to choose by, `validation_x` and `validation_device`.

    Raises:
        UsageError: it is not such a file.
    """
    file = read_arrays(path, NEEDED, *TOGETHER)
    train = check_samples(path, file["x"], file["labels"])
    judged, chosen = (np.ascontiguousarray(file.get(f"{part}_x", train.x[:0])) for part in ("held_out", "validation"))
    try:
        names = [read_texts(file.get(key, NOBODY)) for key in ("device", "held_out_device", "validation_device")]
        return Patients(train, names[0], judged, names[1], chosen, names[2])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


NOBODY: Array = np.zeros(0, str)


def store_patients(path: Path, patients: Patients) -> Path:
    """Writes what `patients_of` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    features = {"": patients.train.x, "held_out_": patients.held_out}
    names = {"": patients.devices, "held_out_": patients.held_out_devices}
    if len(patients.validation):
        features["validation_"], names["validation_"] = patients.validation, patients.validation_devices
    arrays: dict[str, Array] = {"labels": np.array(patients.train.labels, str)}
    arrays |= {f"{part}x": x for part, x in features.items()}
    arrays |= {f"{part}device": np.array(devices, str) for part, devices in names.items()}
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path
