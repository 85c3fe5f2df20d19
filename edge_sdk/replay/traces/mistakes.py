"""What is probably wrong with recordings: units, stuck sensors, clocks, axes, labels. Pure: traces in, sentences out.

Each is a suspicion, told with the figure that raised it; nothing is changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.labels import describe_folds, fold_labels
from edge_sdk.data.traces.read import SINCE_1970, SLOW, Trace
from edge_sdk.label_names import JOIN, NONE, clean_label

GRAVITY = {"g": 1.0, "m/s2": 9.81, "mg": 1000.0}
"""Unit -> length of the acceleration that a sensor at rest feels."""
NEAR = 0.15
"""Share by which it may differ, as cheap sensors are not calibrated."""
PIECE = 2.0
"""Seconds of a piece in which a sensor may be at rest."""
STUCK = 60.0
"""Seconds for which no sensor that is worn repeats its values."""
CLIPPED = 0.02
"""Share of samples at the end of a channel's range from which on that is too small."""
SLOWEST = 0.005
"""Samples per second below which times are not taken for milliseconds: a sensor would give 5 then."""
FEW = 3.0
"""Seconds of a class in all recordings below which nobody can learn it."""
LIKE, UNLIKE, ALIKE = 0.97, 0.8, 4
"""How like the fleet gravity lies with axes exchanged, and at most without; and devices that a fleet has at least."""

Floats = npt.NDArray[np.float64]


def find_mistakes(traces: Sequence[Trace], targets: Sequence[str] = ()) -> list[str]:
    """Suspicions about traces that are to be learned from together. `targets`: columns that are to be predicted, in
    place of labels."""
    found = [line for trace in traces for line in (*find_clock(trace), *find_sensor(trace, targets))]
    found += [*find_copies(traces), *find_units(traces), *find_axes(traces)]
    return found if targets else [*found, *find_classes(traces)]


def find_copies(traces: Sequence[Trace]) -> list[str]:
    """Devices that have the same values: what one is judged by, the other has trained on."""
    seen: dict[int, str] = {}
    found = []
    for trace in traces:
        key = hash(trace.values.tobytes())
        if key in seen:
            found.append(f"{trace.name} and {seen[key]} are one recording under two names")
        seen.setdefault(key, trace.name)
    return found


def find_clock(trace: Trace) -> list[str]:
    """A clock that was set, or is wrong."""
    found = [
        f"{trace.name}: {repair}" for repair in trace.repairs if "clock" in repair.what or "time far" in repair.what
    ]
    found += [
        f"{trace.name}: {repair}; are two devices in one file?"
        for repair in trace.repairs
        if repair.done.startswith("spread") and repair.rows * 2 >= len(trace.time) - 1 and trace.rate_hz > 2
    ]
    if (
        SLOWEST <= trace.rate_hz < SLOW
        and trace.began < SINCE_1970
        and abs((60 * trace.rate_hz + 0.5) % 1 - 0.5) > 0.01
    ):
        found.append(
            f"{trace.name}: {trace.rate_hz:.2g} samples per second, with times taken as seconds; as milliseconds they "
            f"give {1000 * trace.rate_hz:.3g}: call the column time_ms, or import with --unit ms"
        )
    if trace.began > SINCE_1970:
        began = datetime.fromtimestamp(trace.began, UTC)
        if began.year < 1995 or began > datetime.now(UTC):
            found.append(f"{trace.name}: its clock says {began:%Y-%m-%d}")
    return found


def find_sensor(trace: Trace, targets: Sequence[str] = ()) -> list[str]:
    """A sensor that is stuck, or whose range is too small. `targets`: what no sensor of the device measures."""
    found = []
    for name, values in zip(trace.channels, trace.values.T, strict=True):
        column = values[np.isfinite(values)]
        if not len(column):
            found.append(f"{trace.name}: {name} has no number in any row, so nobody can learn it there")
            continue
        low, high = float(column.min()), float(column.max())
        if low == high:
            found.append(f"{trace.name}: channel {name} is {low:g} all the time")
            continue
        ends = max(float((column == end).mean()) for end in (low, high))
        if ends > CLIPPED and name not in targets and len(np.unique(column[:10_000])) > 10:
            found.append(f"{trace.name}: {ends:.0%} of {name} is at the end of its range ({low:g} to {high:g})")
    same = np.concatenate([[False], (np.diff(trace.values, axis=0) == 0).all(axis=1), [False]])
    edges = np.flatnonzero(np.diff(same.astype(np.int8)))
    if len(edges):
        lengths = edges[1::2] - edges[::2]
        at = int(edges[::2][lengths.argmax()])
        seconds = float(trace.time[min(at + int(lengths.max()), len(trace.time) - 1)] - trace.time[at])
        if seconds > STUCK:
            found.append(
                f"{trace.name}: all channels repeat one value for {seconds:.0f} s, from second {trace.time[at]:.0f}"
            )
    return found


def accelerations(trace: Trace) -> list[int]:
    """Numbers of the channels that are the three axes of an acceleration, by their names; none where there are not."""
    for stem in (r"a", r"acc", r"acc[ _-]?", r"accel[ _-]?", r"accelerometer[ _-]?", r"acceleration[ _-]?", r""):
        found = [
            [n for n, name in enumerate(trace.channels) if re.fullmatch(rf"{stem}{axis}(-?axis)?", name.casefold())]
            for axis in "xyz"
        ]
        if all(len(one) == 1 for one in found):
            return [one[0] for one in found]
    return []


def at_rest(trace: Trace) -> Floats | None:
    """The mean acceleration (3,) in the tenth of all pieces that move least; None: it has no three axes."""
    axes, length = accelerations(trace), max(2, round(PIECE * trace.rate_hz))
    count = len(trace.time) // length
    if not axes or count < 10:
        return None
    pieces = trace.values[: count * length, axes].astype(np.float64).reshape(count, length, 3)
    still = pieces.std(axis=1).sum(axis=1).argsort()[: max(1, count // 10)]
    return np.asarray(pieces[still].mean(axis=1))


def find_units(traces: Sequence[Trace]) -> list[str]:
    """Units of accelerations by the length of gravity, where they differ or are none."""
    units: dict[str, str] = {}
    found = []
    for trace in traces:
        rest = at_rest(trace)
        if rest is None:
            continue
        length = float(np.median(np.linalg.norm(rest, axis=1)))
        unit = next((name for name, g in GRAVITY.items() if abs(length / g - 1) <= NEAR), "")
        if unit:
            units[trace.name] = unit
        else:
            said = f"{trace.name}: at rest its acceleration is {length:.3g} long"
            found.append(f"{said}; 1 (g), 9.81 (m/s2) or 1000 (mg) is expected, unless gravity was taken out")
    if len({*units.values()}) > 1:
        most = max({*units.values()}, key=[*units.values()].count)
        odd = [f"{name} in {unit}" for name, unit in units.items() if unit != most]
        found.append(f"accelerations are in {most}, but of {', '.join(odd)} (by the length of gravity)")
    return found


def find_axes(traces: Sequence[Trace]) -> list[str]:
    """Devices on which gravity lies as on the others only if axes are exchanged."""
    shares = {}
    for trace in traces:
        rest = at_rest(trace)
        if rest is not None:
            mean = np.abs(rest).mean(axis=0)
            shares[trace.name] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    if len(shares) < ALIKE:
        return []
    usual = np.median(list(shares.values()), axis=0)
    usual /= np.linalg.norm(usual)
    likeness = [float(share @ usual) for share in shares.values()]
    if float(np.median(likeness)) < LIKE:
        return []  # they are worn in many ways
    found = []
    names = {trace.name: [trace.channels[n] for n in accelerations(trace)] for trace in traces if trace.name in shares}
    for name, share in shares.items():
        best = max(permutations(range(3)), key=lambda order: float(share[list(order)] @ usual))
        if float(share @ usual) < UNLIKE and float(share[list(best)] @ usual) > LIKE:
            axes = ", ".join(names[name][n] for n in best)
            found.append(f"{name}: axes seem exchanged; as ({axes}) gravity would lie as on the other devices")
    return found


def find_classes(traces: Sequence[Trace]) -> list[str]:
    """Classes, or labels of sets, of which there is next to nothing, or that only one of several devices has."""
    seconds: dict[str, dict[str, float]] = {}
    sets = any(JOIN in name for trace in traces for name in trace.classes)
    word = "label" if sets else "class"
    folds = fold_labels(Counter(one for trace in traces for name in trace.classes for one in labels_of(name, sets)))
    said = describe_folds(folds)
    for trace in traces:
        counts = np.bincount(trace.codes[trace.codes >= 0], minlength=len(trace.classes))
        for name, count in zip(trace.classes, counts, strict=True):
            for one in labels_of(name, sets) if count else ():
                own = seconds.setdefault(folds[one], {})
                own[trace.name] = own.get(trace.name, 0.0) + float(count / trace.rate_hz)
    found = [f"{said}; a replay takes these as one class"] if said else []
    for name, own in sorted(seconds.items()):
        if sum(own.values()) < FEW:
            found.append(f"{word} {name}: only {sum(own.values()):.1f} s in all")
        elif len(own) == 1 and len(traces) > 2:
            found.append(f"{word} {name}: only {next(iter(own))} has it")
    if not any((trace.codes >= 0).any() for trace in traces):
        found.append("no trace has a label")
    return found


def labels_of(name: str, sets: bool) -> list[str]:
    """The labels of a set; where there are no sets, the class."""
    return [one for part in name.split(JOIN) if (one := clean_label(part)) and one != NONE] if sets else [name]
