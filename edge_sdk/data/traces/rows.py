"""Rows as they were recorded, put in order: late ones in place, repeated ones once, those without numbers left out.

Nothing is silent: each kind of repair is counted with its first line. Times never go back in what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import find_median
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.labels import UNLABELLED, describe_folds, fold_labels, is_missing, join_labels
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.label_names import clean_label

LATE = 10.0
"""Seconds by which a row may come late, as buffers are flushed, and still be put in its place."""
STRAY = 16
"""Rows with a time of their own between others, at most, that are left out; of more, the clock was set."""
KINDS = 8
"""Sets of channels without a number, at most, that are told apart."""
JUMPS = 1000
"""Times that a clock may be set; more, and the column is no time."""
BACKWARDS = 0.9
"""Share of rows that are earlier than the one before from which on a file begins with its end."""
COARSE = 0.3
"""Share of rows that have the time of the one before from which on times are taken as rounded."""
SPARSE = 0.5
"""Share of rows with a number below which a channel is taken as one of a lower rate."""

Times = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(eq=False)
class Rows:
    """The rows of one device, in the order in which they were written.

    Attributes:
        time: float64 (n,), seconds; NaN where there is none.
        values: float32 (n, c); NaN where there is no number, inf where that has been told already (of a column that is
            to be predicted NaN).
        channels: c names.
        codes: int32 (n,), numbers of the words in `words`.
        words: labels as they are written.
        line: int32 (n,), numbers of their lines in the file, or of the rows in a file without lines.
    """

    time: Times
    values: Floats
    channels: tuple[str, ...]
    codes: npt.NDArray[np.int32]
    words: list[str] = field(default_factory=list)
    line: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def take(self, chosen: Mask | Ints) -> None:
        """Keeps the chosen rows only."""
        if chosen.dtype == np.bool_ and chosen.all():
            return  # a day's rows are not copied for nothing
        for name in ("time", "values", "codes", "line"):
            setattr(self, name, getattr(self, name)[chosen])

    def take_channels(self, chosen: Sequence[int]) -> None:
        """Keeps the chosen channels only."""
        self.values, self.channels = self.values[:, chosen], tuple(self.channels[n] for n in chosen)


def mend(rows: Rows, repairs: Repairs, said: Stated) -> None:
    """Puts rows in order, in place.

    Args:
        said: names the columns that are to be predicted, which may have gaps.

    Raises:
        UsageError: `repairs` is strict and there is something to repair, the times are none, or too few rows are left.
    """
    rows.take(np.isfinite(rows.time))  # told where they were read
    drop_dead_channels(rows, repairs, said)
    order_times(rows, repairs)
    fill_sparse_channels(rows, repairs)
    drop_missing(rows, repairs, said)
    drop_repeated(rows, repairs)
    if len(rows.time) < 2:
        left = "no sample" if not len(rows.time) else "one sample"
        more = f" is left ({'; '.join(map(str, repairs.found.values()))})" if repairs.found else ""
        raise UsageError(f"{repairs.file}: {left}{more}; two or more make a trace")


def drop_dead_channels(rows: Rows, repairs: Repairs, said: Stated) -> None:
    """Leaves out channels that have no number at all, where others have some; but for those that are to be
    predicted."""
    alive = np.asarray(np.isfinite(rows.values).any(axis=0)) | np.array([*map(said.may_lack, rows.channels)], np.bool_)
    if alive.any() and not alive.all():
        names = ", ".join(name for name, has in zip(rows.channels, alive, strict=True) if not has)
        repairs.doubt(f"channel {names} has no number in any row, and is left out")
        for name in names.split(", "):
            repairs.forget(f"column {name} is no finite number")  # no row was left out for it
        rows.take_channels(np.flatnonzero(alive).tolist())


def drop_missing(rows: Rows, repairs: Repairs, said: Stated) -> None:
    """Leaves out rows in which a channel has no number. In what is to be predicted it may lack, and that is told."""
    bad = ~np.isfinite(rows.values)
    if not bad.any():
        return
    targets = [n for n, name in enumerate(rows.channels) if said.may_lack(name)]
    gaps = {n: np.flatnonzero(bad[:, n]) for n in targets if bad[:, n].any()}
    for n, at in gaps.items():
        first = f" (first: line {rows.line[at[0]]})" if rows.line[at[0]] else ""
        lack = f"{rows.channels[n]} has no number in {len(at)} of {len(bad)} rows{first}"
        repairs.note(f"{lack}: what lies there has no label")
    bad[:, targets] = False
    lacks = np.flatnonzero((bad & np.isnan(rows.values)).any(axis=1))
    kinds, kind = np.unique((bad & np.isnan(rows.values))[lacks], axis=0, return_inverse=True)  # a row counts once
    for number, gone in enumerate(kinds if len(kinds) <= KINDS else [np.ones(len(rows.channels), np.bool_)]):
        names = ", ".join(name for name, is_gone in zip(rows.channels, gone, strict=True) if is_gone)
        some = kind.reshape(-1) == number if len(kinds) <= KINDS else slice(None)
        what = names if len(kinds) <= KINDS else f"some of {names}"
        repairs.add(f"no number in {what}", "left out", rows.line[lacks[some]])
    whole = np.asarray(~bad.any(axis=1))
    rows.take(whole)


def fill_sparse_channels(rows: Rows, repairs: Repairs) -> None:
    """Brings channels of a lower rate, which have a number in few rows, to the clock of the others: by lines between
    their numbers. Before the first and after the last of them there is none."""
    known = np.isfinite(rows.values)
    share = known.mean(0) if len(known) else np.ones(len(rows.channels))
    if not (share >= SPARSE).any():
        return
    for place in np.flatnonzero((share < SPARSE) & (known.sum(0) > 1)):
        own = np.flatnonzero(known[:, place])
        times = rows.time[own]
        longest = 4 * find_median(np.diff(times))
        after = np.clip(np.searchsorted(times, rows.time), 1, len(own) - 1)
        near = (times[after] - times[after - 1] <= longest) & (rows.time >= times[0]) & (rows.time <= times[-1])
        empty = np.isnan(rows.values[:, place])
        made = np.interp(rows.time, times, rows.values[own, place]).astype(np.float32)
        what = f"{rows.channels[place]} has a number in 1 of {1 / share[place]:.0f} rows"
        repairs.add(what, "filled by lines between its numbers", rows.line[empty & near])
        rows.values[empty & near, place] = made[empty & near]


def order_times(rows: Rows, repairs: Repairs) -> None:
    """Makes times rise: late rows are put in their place, stray ones left out; where the clock was set back, what
    follows is moved behind what came before."""
    falls = np.diff(rows.time) < 0
    if falls.mean() > BACKWARDS if len(falls) else False:
        repairs.add("rows from the last to the first", "turned round", rows.line)
        rows.take(np.arange(len(rows.time) - 1, -1, -1))
        falls = np.diff(rows.time) < 0
    if not falls.any():
        return
    strays, places, keep = list[int](), list[int](), np.ones(len(rows.time), np.bool_)
    begin, shifts = 0, list[tuple[int, float]]()
    jumps = np.flatnonzero(np.diff(rows.time) < -LATE) + 1
    if len(jumps) > JUMPS:
        raise UsageError(f"{repairs.file}: times go back in {len(jumps)} places (first: line {rows.line[jumps[0]]})")
    for at in map(int, jumps):
        end = float(rows.time[begin:at][keep[begin:at]].max(initial=-np.inf))
        if rows.time[at] >= end - LATE:
            continue
        ahead = begin + np.flatnonzero(keep[begin:at] & (rows.time[begin:at] > rows.time[at] + LATE))
        behind = at + np.flatnonzero(rows.time[at : at + STRAY + 1] < end)
        if len(ahead) <= STRAY and len(ahead) < at - begin:
            strays += ahead.tolist()
            keep[ahead] = False
        elif len(behind) <= STRAY and len(rows.time) - at > len(behind):
            strays += behind.tolist()
            keep[behind] = False
        else:
            shifts.append((at, end))
            begin = at
    repairs.add("a time far from those around it", "left out", rows.line[sorted({*strays})])
    for number, (at, _) in enumerate(shifts):
        upto = shifts[number + 1][0] if number + 1 < len(shifts) else len(rows.time)
        places += [at]
        step = LATE  # a gap that ends the recording, whatever its rate
        before = rows.time[:at][keep[:at]]
        own = rows.time[at:upto][keep[at:upto]]
        rows.time[at:upto] += float(before.max()) + step - float(own.min())
    repairs.add("the clock was set back", "followed by what is taken as a recording of its own", rows.line[places])
    rows.take(keep)
    late = rows.time < np.maximum.accumulate(rows.time)
    repairs.add("a time before that of an earlier row", "put in order", rows.line[late])
    if late.any():
        rows.take(np.argsort(rows.time, kind="stable"))


def drop_repeated(rows: Rows, repairs: Repairs) -> None:
    """Makes times differ: where many rows share one, as of clocks that tell whole seconds, they are spread evenly over
    the time to the next; where few do, the first row is kept."""
    same = np.concatenate([[False], np.diff(rows.time) == 0])
    if not same.any():
        return
    if same.mean() > COARSE and len(rows.time) - same.sum() > 1:
        repairs.add("the time of the row before", "spread evenly over the time to the next", rows.line[same])
        spread_times(rows, np.flatnonzero(~same))
        return
    repairs.add("the time of the row before", "left out", rows.line[same])
    rows.take(~same)


def spread_times(rows: Rows, first: Ints) -> None:
    """Spreads rows that share a time. `first`: of each time, the first row."""
    sizes = np.diff(np.append(first, len(rows.time)))
    steps = np.diff(rows.time[first])
    usual = find_median(steps)
    steps = np.append(np.minimum(steps, usual), usual)
    place = np.arange(len(rows.time)) - np.repeat(first, sizes)
    rows.time = rows.time + place * np.repeat(steps / np.maximum(sizes, 1), sizes)


def code_labels(
    rows: Rows, said: Stated, classes: Sequence[str], repairs: Repairs
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Codes (n,) of the samples' labels, and the classes: words without spaces around them, in one form of Unicode."""
    counts = np.bincount(rows.codes, minlength=len(rows.words))
    clean = [join_labels(clean_label(word), said.separator) for word in rows.words]
    changed = {word: name for word, name in zip(rows.words, clean, strict=True) if word != name and name}
    sums: dict[str, int] = {}
    for number, name in enumerate(clean):
        if counts[number] and not is_missing(name, said.missing):
            sums[name] = sums.get(name, 0) + int(counts[number])
    folds = fold_labels(sums, classes)
    told = describe_folds(changed | {name: other for name, other in folds.items() if name != other})
    if told:
        repairs.doubt(told)
    names = tuple(sorted({*folds.values()}))
    place = {name: names.index(folds[name]) for name in folds}
    table = np.array([place.get(name, UNLABELLED) for name in clean], np.int64)
    return table[rows.codes], names
