"""Who holds what in benchmarks/settling.py: recorded traces, cut into windows and split in three on each device."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.split import split
from edge_sdk.data.traces.unlabelled import keep_labelled
from edge_sdk.data.traces.windows import Windows, cut_windows
from edge_sdk.errors import UsageError
from edge_sdk.replay.traces.smartwatch import write_watch_traces

HELD_OUT, VALIDATION = 0.3, 0.2


@dataclass(frozen=True)
class Part:
    """Windows of one part. `recording`: which recording of the trace each lies in."""

    x: Any
    y: Any
    recording: Any


@dataclass(frozen=True)
class Holder:
    """What one device has. `unlabelled`: training windows whose labels it does not know; nobody looks at their y."""

    name: str
    train: Part
    validation: Part
    test: Part
    unlabelled: Part | None = None


def part_of(w: Windows, rows: Any = slice(None)) -> Part:
    return Part(np.ascontiguousarray(w.x[rows]), w.y[rows], w.recording[rows])


def three_parts(w: Windows) -> tuple[Windows, Windows, Windows]:
    """Training, validation and test windows, by recordings, or by tails of recordings where there is one per class."""
    train, test = split(w, HELD_OUT)
    try:
        return *split(train, VALIDATION / (1 - HELD_OUT)), test
    except UsageError:  # too few windows for a validation part
        return train, train.take(np.zeros(0, np.int64)), test


def people(folder: Path, labels: float, seed: int) -> list[Holder]:
    """Devices of a folder of traces with two classes or more; of each class a share of the training and validation
    windows has labels, at least one."""
    found = []
    for trace in load_folder(folder):
        w = cut_windows(trace, 64, 32)
        if len(np.unique(w.y)) < 2:
            continue
        train, validation, test = three_parts(w)
        rows = [drawn_rows(p, labels, [seed, k, len(found)]) for k, p in enumerate((train, validation))]
        some = [part_of(p, r) for p, r in zip((train, validation), rows, strict=True)]
        rest = np.setdiff1d(np.arange(len(train.y)), rows[0])
        found.append(Holder(trace.name, *some, part_of(test), part_of(train, rest)))
    return found


def drawn(w: Windows, share: float, seed: Sequence[int]) -> Part:
    return part_of(w, drawn_rows(w, share, seed))


def drawn_rows(w: Windows, share: float, seed: Sequence[int]) -> Any:
    """Rows of a share of each class, at least one of each."""
    random, rows = np.random.default_rng(seed), list[int]()
    for c in np.unique(w.y):
        own = np.flatnonzero(w.y == c)
        rows += list(random.permutation(own)[: int(np.ceil(share * len(own)))])
    return np.sort(np.array(rows, np.intp))


def one_recording(p: Part, seed: int) -> Part:
    """One recording of each class, drawn."""
    random, rows = np.random.default_rng([seed, 5]), list[int]()
    for c in np.unique(p.y):
        own = np.flatnonzero(p.y == c)
        rows += list(own[p.recording[own] == random.choice(np.unique(p.recording[own]))])
    at = np.sort(np.array(rows, np.intp))
    return Part(p.x[at], p.y[at], p.recording[at])


def watch(seconds: float, window: int = 64, stride: int = 16) -> list[Holder]:
    """All wrists; labelled are the first so many seconds of each exercise's training and validation parts."""
    with tempfile.TemporaryDirectory() as folder:
        write_watch_traces(Path(folder))
        traces = load_folder(folder)
    found = []
    for trace in traces:
        train, validation, test = three_parts(cut_windows(trace, window, stride))
        some = [part_of(keep_labelled(p, round(seconds * trace.rate_hz))) for p in (train, validation)]
        labelled = {x.tobytes() for x in some[0].x}
        rest = np.array([k for k, x in enumerate(train.x) if x.tobytes() not in labelled], np.intp)
        found.append(Holder(trace.name, *some, part_of(test), part_of(train, rest)))
    return found


def patient(name: str) -> int:
    return int(name.split("-")[1])
