"""Data sets by name: `breast-cancer`, `tabular`, `esr:PATH`, `mnist:PATH`, `cifar10:PATH`.

`load` reads one, `divide` divides its features between hospital and device, partition.py says who holds which samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets import clinical, files
from edge_sdk.replay.datasets.table import Floats, Table, Vertical, hold_out, standardise


@dataclass(frozen=True)
class Dataset:
    """One data set that is known by name.

    Attributes:
        read: reads the file at a path, and returns the table.
        needs: it needs a path; otherwise it ships, or is generated.
        halves: x -> what the hospital and what the device hold of each sample; None: it is not divided.
        together: features are standardised together (signals, images), or each by itself.
        groups, majority: M of HSGD's paper, and the share of each group's samples that are of two labels.
    """

    read: Callable[[Path], Table]
    needs: bool
    halves: Callable[[Floats], tuple[Floats, Floats]] | None
    together: bool
    groups: int = 10
    majority: float = 0.0


DATASETS: Mapping[str, Dataset] = {
    "breast-cancer": Dataset(clinical.read_breast_cancer, False, clinical.split_by_measure, False, 4, 0.0),
    "tabular": Dataset(lambda path: clinical.generate_table(), False, clinical.halve_features, False),
    "esr": Dataset(files.read_esr, True, files.halve_signals, True, 10, 700 / 920),
    "mnist": Dataset(files.read_mnist, True, files.split_frame, True, 10, 3000 / 3458),
    "cifar10": Dataset(files.read_cifar10, True, None, True),
}


def load(spec: str) -> Table:
    """Reads the data set that `NAME` or `NAME:PATH` stands for.

    Raises:
        UsageError: there is none of that name, its path is missing, or the file is not what it should be.
    """
    name, _, path = spec.partition(":")
    if name not in DATASETS:
        raise UsageError(f"data set {name!r}: there are {', '.join(DATASETS)}")
    if DATASETS[name].needs and not path:
        raise UsageError(f"data set {name} comes from a file: {name}:PATH")
    if name == "tabular" and path:
        raise UsageError("data set tabular is generated: it takes no path")
    return DATASETS[name].read(Path(path) if path else clinical.BREAST_CANCER)


def divide(table: Table) -> Vertical:
    """Divides the features of each sample between hospital and device.

    Raises:
        UsageError: the data set is not divided.
    """
    halves = DATASETS[table.name].halves
    if halves is None:
        raise UsageError(f"data set {table.name} has no division between hospital and device")
    return Vertical(*halves(table.x), table.y, table.classes)


def prepare(spec: str, share: float = 0.2, seed: int = 0, by: str = "source") -> tuple[Vertical, Vertical]:
    """Loads training and test samples, standardised on the former, divided between hospital and device."""
    table = load(spec)
    train, test = hold_out(table, share, seed, by)
    whole = divide(standardise(table, train, DATASETS[table.name].together))
    return whole.rows(train), whole.rows(test)
