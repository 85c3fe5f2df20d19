"""A folder of traces as a cohort: one device for each trace, but for those whose windows are public or reserved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.traces import Trace, cut_windows, load_folder
from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.cohort import Cohort, Tables
from edge_sdk.replay.datasets.table import Floats
from edge_sdk.replay.synth import MARK


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """The way in which traces become samples, as the command line says it.

    Attributes:
        label, window, stride, gap, held_out: as in `edge_sdk.data.samples.Cut`.
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


def cohort_of_traces(folder: Path, hospitals: int, seed: int, how: Cutting) -> Cohort:
    """Forms a cohort with one device for each trace, but for those whose windows are public or reserved."""
    traces, public = take_public(drop_reserved(load_folder(folder, label=how.label), how.reserved), seed, how)
    names = [checked_name(t.name, "device name (from the file's)") for t in traces]
    tree = {f"hospital-{h + 1}": tuple(sorted(names)[h::hospitals]) for h in range(min(hospitals, len(names)))}
    first = traces[0]
    kinds = f"{len(first.classes)} classes, {first.rate_hz:.0f} Hz"
    summary = f"{len(traces)} devices in {len(tree)} hospitals, {kinds}"
    shapes = {"x": (len(first.channels), how.window)}
    generated = (folder / MARK).is_file()  # these traces say so of themselves
    return Cohort(
        summary, tree, first.classes, shapes, False, generated, lambda *_: trace_tables(folder, traces, how), public
    )


def drop_reserved(traces: tuple[Trace, ...], reserved: int) -> tuple[Trace, ...]:
    """Leaves out the last traces, which are the aggregator's own."""
    if reserved >= len(traces):
        raise UsageError(f"{reserved} of {len(traces)} traces are the aggregator's own, so no device is left")
    return traces[: len(traces) - reserved]


def take_public(traces: tuple[Trace, ...], seed: int, how: Cutting) -> tuple[tuple[Trace, ...], Floats | None]:
    """Draws traces until their windows are enough public inputs; returns the other traces, and these inputs.

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
    """The [data] tables of the devices: each reads its own trace."""
    cutting = {key: value for key, value in vars(how).items() if key not in ("public", "reserved")}
    return {t.name: {"trace": (folder / f"{t.name}.csv").resolve(), **cutting} for t in traces}
