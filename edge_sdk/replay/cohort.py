"""Who takes part in a replay and what each of them holds: a folder of traces, or a data set that is dealt out.

A node reads only its own part: its trace, or a file of its own with the samples that are its share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.patients import Patients, store_patients
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.data.traces import Trace, cut_windows, load_folder
from edge_sdk.errors import UsageError
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets import DATASETS, Table
from edge_sdk.replay.datasets.table import Floats, Rows
from edge_sdk.replay.synth import MARK

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Tables = Mapping[str, Mapping[str, Any]]
Wanted = Callable[[str], Shapes]


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """How traces become samples; see `samples.Cut`.

    Attributes:
        public: windows whose inputs, without labels, all devices know. They are of persons who are no devices. 0: none.
        reserved: traces, the last ones by name, of persons who are no devices either: the aggregator's own. 0: none.
    """

    label: str = "activity"
    window: int = 64
    stride: int = 32
    gap: float = 0.5
    held_out: float = 0.3
    public: int = 0
    reserved: int = 0

    def __post_init__(self) -> None:
        if self.public < 0:
            raise UsageError(f"--public {self.public}: how many, or 0 for none")


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """How a data set is dealt out.

    Attributes:
        devices: of each hospital.
        deal: rule; see `datasets.partition.RULES`.
        samples: most of the training samples that a device is given; 0: all of its share.
        judge: "own": each device is judged on test samples of its own label mix; "global": each on all of them.
        tests: most of the test samples that a device is judged on; 0: all.
        held_out: share of the samples that is kept for judging, where the data set does not say itself what is.
        public: training samples that nobody gets: all devices know their inputs, and no labels. 0: none.
        reserved: the first training samples, which nobody gets either: the aggregator's own. 0: none.
    """

    devices: int = 4
    deal: str = "mixed"
    samples: int = 0
    judge: str = "own"
    tests: int = 0
    held_out: float = 0.2
    public: int = 0
    reserved: int = 0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise UsageError(f"--devices {self.devices}: at least 1 for each hospital")
        if self.samples < 0 or self.tests < 0:
            raise UsageError(f"--samples {self.samples} --tests {self.tests}: how many at most, or 0 for all")
        if self.public < 0:
            raise UsageError(f"--public {self.public}: how many, or 0 for none")
        if self.judge not in ("own", "global"):
            raise UsageError(f"--judge {self.judge}: own or global")


@dataclass(frozen=True)
class Cohort:
    """Attributes:
    summary: one line about it, for people.
    tree: hospital -> its devices.
    classes: names of the labels.
    shapes: of a sample, by the names of a bundle's inputs: "x", or "x.hospital" and "x.device" for a split model.
    reshape: a sample may be given to the model in another shape of the same size.
    generated: not measured on anybody.
    tables: (directory, node -> shapes that its model wants) -> node -> its [data] table; writes the files that it
        names there.
    public: inputs that all devices know; None: there are none.
    """

    summary: str
    tree: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    shapes: Shapes
    reshape: bool
    generated: bool
    tables: Callable[[Path, Wanted], Tables]
    public: Floats | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all devices, hospital by hospital."""
        return tuple(device for devices in self.tree.values() for device in devices)


def form_cohort(data: str, hospitals: int, seed: int, options: Mapping[str, Any], splits: bool = False) -> Cohort:
    """A folder where there is one of that name, else a data set.

    Args:
        options: fields of Cutting or of Dealing.
        splits: the features of each sample are divided between hospital and device.

    Raises:
        UsageError: it is neither, cannot be read, or an option is for the other kind.
    """
    if Path(data).is_dir():
        if splits:
            raise UsageError(f"{data}: {WHOLE}")
        return cohort_of_traces(
            Path(data), hospitals, seed, Cutting(**check_options(Cutting, options, "a data set", data))
        )
    if data.partition(":")[0] not in DATASETS:
        raise UsageError(f"{data}: neither a folder of traces nor a data set, NAME[:PATH] of {', '.join(DATASETS)}")
    return cohort_of_dataset(
        data, hospitals, seed, Dealing(**check_options(Dealing, options, "a folder of traces", data)), splits
    )


DIVIDED = [f"{name}{':PATH' * one.needs}" for name, one in DATASETS.items() if one.halves is not None]
WHOLE = (
    "a trace is a device's whole sample, and this method trains a split model, on features that are divided between "
    f"hospital and device; data sets that are: {', '.join(DIVIDED)}"
)


def check_options(kind: type, options: Mapping[str, Any], other: str, data: str) -> Mapping[str, Any]:
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    if strange := [key for key in options if key not in known]:
        raise UsageError(f"--{strange[0].replace('_', '-')} is for {other}, and {data} is none")
    return options


# Traces ---------------------------------------------------------------------------------------------------------
def cohort_of_traces(folder: Path, hospitals: int, seed: int, how: Cutting) -> Cohort:
    """One device for each trace, but for those whose windows are public."""
    traces, public = take_public(drop_reserved(load_folder(folder, label=how.label), how.reserved), seed, how)
    names = [checked_name(t.name, "device name (from the file's)") for t in traces]
    tree = {f"hospital-{h + 1}": tuple(sorted(names)[h::hospitals]) for h in range(min(hospitals, len(names)))}
    first = traces[0]
    kinds = f"{len(first.classes)} classes, {first.rate_hz:.0f} Hz"
    said = f"{len(traces)} devices in {len(tree)} hospitals, {kinds}"
    shapes = {"x": (len(first.channels), how.window)}
    generated = (folder / MARK).is_file()  # these traces say so of themselves
    return Cohort(
        said, tree, first.classes, shapes, False, generated, lambda *_: trace_tables(folder, traces, how), public
    )


def drop_reserved(traces: tuple[Trace, ...], reserved: int) -> tuple[Trace, ...]:
    """Without the last ones, which are the aggregator's own."""
    if reserved >= len(traces):
        raise UsageError(f"{reserved} of {len(traces)} traces are the aggregator's own, so no device is left")
    return traces[: len(traces) - reserved]


def take_public(traces: tuple[Trace, ...], seed: int, how: Cutting) -> tuple[tuple[Trace, ...], Floats | None]:
    """The traces that remain, and windows of the others, which are drawn until there are enough.

    Raises:
        UsageError: no trace would remain.
    """
    random, left, parts = np.random.default_rng([seed, 10]), list(traces), list[Floats]()
    while sum(map(len, parts)) < how.public:
        if len(left) < 2:
            raise UsageError(f"--public {how.public}: the windows of {len(traces)} traces are not enough")
        donor = left.pop(int(random.integers(len(left))))
        parts.append(cut_windows(donor, window=how.window, stride=how.stride, gap=how.gap).x)
    if not parts:
        return traces, None
    found = np.concatenate(parts)
    return tuple(left), found[np.sort(random.permutation(len(found))[: how.public])]


def trace_tables(folder: Path, traces: tuple[Trace, ...], how: Cutting) -> Tables:
    cutting = {key: value for key, value in vars(how).items() if key not in ("public", "reserved")}
    return {t.name: {"trace": (folder / f"{t.name}.csv").resolve(), **cutting} for t in traces}


# Data sets ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Share:
    """Rows of the table that a device trains on, and is judged on."""

    train: Rows
    held_out: Rows


def cohort_of_dataset(spec: str, hospitals: int, seed: int, how: Dealing, splits: bool = False) -> Cohort:
    """A data set, each sample as a whole or divided between a device and its hospital."""
    table = datasets.load(spec)
    train, test = datasets.hold_out(table, how.held_out, seed)
    table = datasets.standardise(table, train, DATASETS[table.name].together)
    held = name_inputs(table, splits)
    own = datasets.reserve_rows(table, how.reserved)
    train, test = np.setdiff1d(train, own), np.setdiff1d(test, own)
    common, train = set_apart(train, how.public, seed)
    parts = deal_shares(table, train, test, hospitals, seed, how)
    tree = {hospital: tuple(devices) for hospital, devices in parts.items()}

    def tables(directory: Path, wanted: Wanted) -> Tables:
        return write_samples(directory, lambda node: reshape_samples(held, wanted(node)), table, parts)

    said = f"{sum(map(len, tree.values()))} devices in {len(tree)} hospitals, {describe_shares(parts)}"
    shapes = {key: x.shape[1:] for key, x in held.items()}
    public = table.x[common] if len(common) else None
    return Cohort(said, tree, table.classes, shapes, True, table.truth is not None, tables, public)


def set_apart(train: Rows, count: int, seed: int) -> tuple[Rows, Rows]:
    """Some rows that everybody may see, and those that remain.

    Raises:
        UsageError: none would remain.
    """
    if count >= len(train):
        raise UsageError(f"--public {count}: there are {len(train)} training samples, and some are to be trained on")
    order = np.random.default_rng([seed, 9]).permutation(len(train))
    return train[np.sort(order[:count])], train[np.sort(order[count:])]


def reshape_samples(held: Mapping[str, Floats], shapes: Shapes) -> dict[str, Floats]:
    return {key: x.reshape(len(x), *shapes[key]) for key, x in held.items()}


def name_inputs(table: Table, splits: bool) -> dict[str, Floats]:
    """By the names of a bundle's inputs, what their holders know of each sample."""
    if not splits:
        return {"x": table.x}
    vertical = datasets.divide(table)
    return {"x.hospital": vertical.x1, "x.device": vertical.x2}


def deal_shares(
    table: Table, train: Rows, test: Rows, hospitals: int, seed: int, how: Dealing
) -> dict[str, dict[str, Share]]:
    """Hospital -> device -> its part; the same for the same seed."""
    majority = DATASETS[table.name].majority
    y, shares = table.y[train], datasets.deal_rows(table.y[train], how.deal, hospitals, how.devices, majority, seed)
    flat = [rows for devices in shares for rows in devices]
    own = how.judge == "own"
    judged = datasets.match_tests(y, table.y[test], flat, seed) if own else [np.arange(len(test))] * len(flat)
    found: dict[str, dict[str, Share]] = {}
    for i, (mine, tests) in enumerate(zip(flat, judged, strict=True)):
        hospital, device = divmod(i, how.devices)
        some = datasets.draw_some(mine, how.samples, seed, i), datasets.draw_some(tests, how.tests, seed, i * own, 1)
        found.setdefault(f"hospital-{hospital + 1}", {})[name_device(hospital, device, how.devices)] = Share(
            train[some[0]], test[some[1]]
        )
    return found


def name_device(hospital: int, device: int, devices: int) -> str:
    return f"h{hospital + 1}-{device + 1:0{len(str(devices))}}"


def describe_shares(parts: Mapping[str, Mapping[str, Share]]) -> str:
    every = [part for devices in parts.values() for part in devices.values()]
    trained, judged = ([len(getattr(p, key)) for p in every] for key in ("train", "held_out"))
    return f"{describe_range(trained)} samples each, judged on {describe_range(judged)}"


def describe_range(counts: list[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def write_samples(
    directory: Path,
    held_by: Callable[[str], Mapping[str, Floats]],
    table: Table,
    parts: Mapping[str, Mapping[str, Share]],
) -> dict[str, dict[str, Any]]:
    """A file for each holder of data: a device's samples, and a hospital's part of them where they are divided."""
    found: dict[str, dict[str, Any]] = {}
    for hospital, devices in parts.items():
        for device, part in devices.items():
            held = held_by(device)
            x = held.get("x.device", held.get("x"))
            assert x is not None
            train, judged = (
                label_samples(x[rows], table.y[rows], table.classes) for rows in (part.train, part.held_out)
            )
            found[device] = {"samples": store_samples(directory / f"{device}.npz", train, judged).resolve()}
        held = held_by(hospital)
        if "x.hospital" in held:
            patients = gather_patients(held["x.hospital"], table, devices)
            found[hospital] = {"samples": store_patients(directory / f"{hospital}.npz", patients).resolve()}
    return found


def gather_patients(x: Floats, table: Table, devices: Mapping[str, Share]) -> Patients:
    """Device by device, in the order of the devices' own files."""
    train = np.concatenate([part.train for part in devices.values()])
    judged = np.concatenate([part.held_out for part in devices.values()])
    whose, others = (
        tuple(device for device, part in devices.items() for _ in getattr(part, key)) for key in ("train", "held_out")
    )
    return Patients(label_samples(x[train], table.y[train], table.classes), whose, x[judged], others)


def shapes_fit(found: Shapes, model: Shapes, reshape: bool) -> bool:
    """Whether samples can be given to a model."""
    if {*found} != {*model}:
        return False
    return all(found[k] == model[k] or (reshape and prod(found[k]) == prod(model[k])) for k in found)
