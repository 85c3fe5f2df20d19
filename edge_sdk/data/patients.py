"""A hospital's own features of its devices' patients, where a model is divided between the two. They never leave it.

The k-th row of a device here and the k-th row in the device's own file are the same patient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Array, Samples, check_samples, read_arrays, read_texts
from edge_sdk.errors import UsageError

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Patients:
    """The patients of one hospital.

    Attributes:
        train: the hospital's features of all its patients, with their labels.
        devices: for each row of `train`, the device whose patient it is.
        held_out: float32 (N, ...), the hospital's features of the samples that devices are judged on; no labels.
        held_out_devices: for each row of `held_out`, its device.
    """

    train: Samples
    devices: tuple[str, ...]
    held_out: npt.NDArray[np.float32]
    held_out_devices: tuple[str, ...]

    def __post_init__(self) -> None:
        for rows, devices in ((len(self.train), self.devices), (len(self.held_out), self.held_out_devices)):
            if rows != len(devices):
                raise UsageError(f"patients: {rows} rows but {len(devices)} names of devices")
        Samples(self.held_out, ("",) * len(self.held_out))  # for its checks
        if self.held_out.shape[1:] != self.train.x.shape[1:]:
            raise UsageError(f"patients: held out {self.held_out.shape}, x {self.train.x.shape}: only N may differ")

    def check_devices(self, known: Iterable[str]) -> None:
        """Raises UsageError if a row belongs to a device that is not among `known`."""
        if strange := sorted({*self.devices, *self.held_out_devices} - {*known}):
            raise UsageError(f"patients: {strange[0]} is no device of this hospital; there are: {', '.join(known)}")


def rows_of(devices: tuple[str, ...]) -> dict[str, Rows]:
    """Groups rows by device, in their order."""
    known = {device: number for number, device in enumerate(dict.fromkeys(devices))}
    whose = np.array([known[device] for device in devices], np.intp)
    order = np.argsort(whose, kind="stable")
    ends = np.searchsorted(whose[order], np.arange(len(known)), side="right")
    return dict(zip(known, np.split(order, ends[:-1]), strict=True)) if known else {}


# In a file ------------------------------------------------------------------------------------------------------
NEEDED = ("x", "labels", "device")
TOGETHER = ("held_out_x", "held_out_device")


def patients_of(path: Path) -> Patients:
    """Reads an NPZ file: `x` float32 (N, ...), `labels` and `device`, N texts each; to be judged by, `held_out_x` and
    `held_out_device` alike.

    Raises:
        UsageError: it is not such a file.
    """
    file = read_arrays(path, NEEDED, TOGETHER)
    train = check_samples(path, file["x"], file["labels"])
    other = np.ascontiguousarray(file.get("held_out_x", train.x[:0]))
    try:
        names, others = (read_texts(file.get(key, NOBODY)) for key in ("device", "held_out_device"))
        return Patients(train, names, other, others)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


NOBODY: Array = np.zeros(0, str)


def store_patients(path: Path, patients: Patients) -> Path:
    """Writes what `patients_of` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = patients.train.labels, patients.devices, patients.held_out_devices
    labels, devices, others = (np.array(names, str) for names in named)
    x, other = patients.train.x, patients.held_out
    with path.open("wb") as file:
        np.savez(file, x=x, labels=labels, device=devices, held_out_x=other, held_out_device=others)
    return path
