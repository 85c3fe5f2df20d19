"""A data set as a cohort: its samples are dealt out to devices, whole or divided between a device and its hospital."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.cut import check_shares
from edge_sdk.data.patients import Patients, store_patients
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NORMAL
from edge_sdk.replay import datasets
from edge_sdk.replay.anomalies.asked import AskedTask
from edge_sdk.replay.cohorts.cohort import Cohort, Shapes, Tables, Wanted, count_nodes
from edge_sdk.replay.datasets import DATASETS
from edge_sdk.replay.datasets.partition import deal_rows, draw_some, match_tests
from edge_sdk.replay.datasets.table import Floats, Rows, Table, hold_out, hold_out_of, reserve_rows, standardise


@dataclass(frozen=True, kw_only=True)
class Dealing(AskedTask):
    """The way in which a data set is dealt out, as the command line says it.

    Attributes:
        devices: of each hospital.
        deal: rule; see `datasets.partition.RULES`.
        samples: most of the training samples that a device is given; 0: all of its share.
        judge: "own": each device is judged on test samples of its own label mix; "global": each on all of them.
        tests: most of the test samples that a device is judged on; 0: all.
        held_out: share of the samples that is kept for judging, where the data set does not say itself what is.
        validation: share of the samples on which choices are made, apart from both; 0: there are none.
        public: training samples that nobody gets: all devices know their inputs, and no labels. 0: none.
        reserved: the first training samples, which nobody gets either: the aggregator's own. 0: none.
        task, abnormal, quantile, horizon: of samples that are to be reconstructed, or a task of another package.
    """

    devices: int = 4
    deal: str = "mixed"
    samples: int = 0
    judge: str = "own"
    tests: int = 0
    held_out: float = 0.2
    validation: float = 0.2
    public: int = 0
    reserved: int = 0

    def __post_init__(self) -> None:
        self.check_asked(others=False)
        if self.tells_steps:
            raise UsageError(f"--task {self.task}: samples of data sets have no steps; folders of traces or samples do")
        if self.devices < 1:
            raise UsageError(f"--devices {self.devices}: at least 1 for each hospital")
        if self.samples < 0 or self.tests < 0:
            raise UsageError(f"--samples {self.samples} --tests {self.tests}: how many at most, or 0 for all")
        if self.public < 0:
            raise UsageError(f"--public {self.public}: how many, or 0 for none")
        check_shares(self.validation, self.held_out)
        if self.judge not in ("own", "global"):
            raise UsageError(f"--judge {self.judge}: own or global")


@dataclass(frozen=True)
class DeviceRows:
    """Rows of the table that a device has.

    Attributes:
        train: rows that it trains on.
        held_out: rows that it is judged by.
        validation: rows that choices are made on.
    """

    train: Rows
    held_out: Rows
    validation: Rows


def cohort_of_dataset(spec: str, hospitals: int, seed: int, how: Dealing, splits: bool = False) -> Cohort:
    """Forms a cohort from a data set, each sample as a whole or divided between a device and its hospital."""
    table = datasets.load(spec)
    train, test = hold_out(table, how.held_out, seed)
    table = standardise(table, train, DATASETS[table.name].together)
    held = name_inputs(table, splits)
    own = reserve_rows(table, how.reserved)
    train, test = np.setdiff1d(train, own), np.setdiff1d(test, own)
    common, train = set_apart(train, how.public, seed)
    validation = train[:0]
    has_validation = how.validation > 0
    if has_validation:
        train, validation = hold_out_of(table, train, how.validation / (1 - how.held_out), seed)
    shares = deal_shares(table, train, test, validation, hospitals, seed, how)
    tree = {hospital: tuple(devices) for hospital, devices in shares.items()}

    def tables(directory: Path, wanted: Wanted) -> Tables:
        return write_samples(directory, lambda node: reshape_samples(held, wanted(node)), table, shares, has_validation)

    summary = f"{count_nodes(tree)}, {describe_shares(shares)}"
    shapes = {key: x.shape[1:] for key, x in held.items()}
    public = table.x[common] if len(common) else None
    plugged = how.plugged(table.classes)
    task = plugged or how.reconstruction(table.classes, 0)
    classes = table.classes if how.words is None else (NORMAL, *how.words)
    classes = classes if plugged is None else plugged.names
    return Cohort(summary, tree, classes, shapes, True, table.truth is not None, tables, public, task=task)


def set_apart(train: Rows, count: int, seed: int) -> tuple[Rows, Rows]:
    """Draws some rows that everybody may see; returns them, and those that remain.

    Raises:
        UsageError: none would remain.
    """
    if count >= len(train):
        raise UsageError(f"--public {count}: there are {len(train)} training samples, and some are to be trained on")
    order = np.random.default_rng([seed, 9]).permutation(len(train))
    return train[np.sort(order[:count])], train[np.sort(order[count:])]


def reshape_samples(held: Mapping[str, Floats], shapes: Shapes) -> dict[str, Floats]:
    """Arranges samples as a model wants them."""
    return {key: x.reshape(len(x), *shapes[key]) for key, x in held.items()}


def name_inputs(table: Table, splits: bool) -> dict[str, Floats]:
    """Names what hospital and device know of each sample by the inputs of a bundle."""
    if not splits:
        return {"x": table.x}
    vertical = datasets.divide(table)
    return {"x.hospital": vertical.x1, "x.device": vertical.x2}


def deal_shares(
    table: Table, train: Rows, test: Rows, validation: Rows, hospitals: int, seed: int, how: Dealing
) -> dict[str, dict[str, DeviceRows]]:
    """Deals the samples out: hospital -> device -> its share; the same for the same seed."""
    majority, y, own = DATASETS[table.name].majority, table.y[train], how.judge == "own"
    dealt = deal_rows(y, how.deal, hospitals, how.devices, majority, seed)
    flat = [rows for devices in dealt for rows in devices]
    judged = match_tests(y, table.y[test], flat, seed) if own else [np.arange(len(test))] * len(flat)
    chosen = match_tests(y, table.y[validation], flat, seed)
    found: dict[str, dict[str, DeviceRows]] = {}
    for i, (mine, tests) in enumerate(zip(flat, judged, strict=True)):
        hospital, device = divmod(i, how.devices)
        trained, tested = (
            draw_some(mine, how.samples, seed, i),
            draw_some(tests, how.tests, seed, i * own, 1),
        )
        # With few samples to train on (--samples) there are also few to choose by: labels are what is scarce.
        most = ceil(how.samples * how.validation / (1 - how.held_out - how.validation))
        picked = draw_some(chosen[i], most, seed, i, 2)
        rows = DeviceRows(train[trained], test[tested], validation[picked])
        found.setdefault(f"hospital-{hospital + 1}", {})[name_device(hospital, device, how.devices)] = rows
    return found


def name_device(hospital: int, device: int, devices: int) -> str:
    """Name of a device: `h2-03` is the third of the second hospital, where there are ten or more."""
    return f"h{hospital + 1}-{device + 1:0{len(str(devices))}}"


def describe_shares(shares: Mapping[str, Mapping[str, DeviceRows]]) -> str:
    """Describe in words how many samples devices have."""
    every = [share for devices in shares.values() for share in devices.values()]
    trained, judged = ([len(getattr(p, key)) for p in every] for key in ("train", "held_out"))
    return f"{describe_range(trained)} samples each, judged on {describe_range(judged)}"


def describe_range(counts: list[int]) -> str:
    """Smallest and largest of some counts, in words."""
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def write_samples(
    directory: Path,
    held_by: Callable[[str], Mapping[str, Floats]],
    table: Table,
    shares: Mapping[str, Mapping[str, DeviceRows]],
    has_validation: bool,
) -> dict[str, dict[str, Any]]:
    """Writes a file for each holder of data: a device's samples, and a hospital's features of them where it has some.

    Returns:
        Node -> its [data] table.
    """
    found: dict[str, dict[str, Any]] = {}
    for hospital, devices in shares.items():
        for device, share in devices.items():
            held = held_by(device)
            x = held.get("x.device", held.get("x"))
            assert x is not None
            parts = (share.train, share.held_out, share.validation)
            train, test, chosen = (label_samples(x[rows], table.y[rows], table.classes) for rows in parts)
            path = store_samples(directory / f"{device}.npz", train, test, chosen if has_validation else None)
            found[device] = {"samples": path.resolve()}
        held = held_by(hospital)
        if "x.hospital" in held:
            patients = gather_patients(held["x.hospital"], table, devices)
            found[hospital] = {"samples": store_patients(directory / f"{hospital}.npz", patients).resolve()}
    return found


def gather_patients(x: Floats, table: Table, devices: Mapping[str, DeviceRows]) -> Patients:
    """Gathers what a hospital holds of its devices' samples, in the order of the devices' own files."""
    parts = ("train", "held_out", "validation")
    train, judged, chosen = (np.concatenate([getattr(share, part) for share in devices.values()]) for part in parts)
    whose, others, choosers = (
        tuple(device for device, share in devices.items() for _ in getattr(share, part)) for part in parts
    )
    known = label_samples(x[train], table.y[train], table.classes)
    return Patients(known, whose, x[judged], others, x[chosen], choosers)
