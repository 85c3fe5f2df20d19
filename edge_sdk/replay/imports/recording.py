"""What a device recorded, whatever the file was: rows as they came, and streams of several rates on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.cells import FLOAT32_MAX
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import SINCE_1970
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import Rows
from edge_sdk.errors import UsageError

LONGEST = 4
"""Sampling intervals of a stream within which values are taken from the line between two of its samples."""
MOST_NUMBERS = 2**30
"""Of a recording: as many as the largest CSV file has room for. Others have no room for them, and may say that they do:
one slow signal takes a byte in the file and as much as the fastest here, and empty columns take nothing."""
BLOCK = 1 << 18
"""Rows that are made at once."""
LONGEST_BLOCK_S = 60
"""Of a block that is spread; what is longer is many that follow each other exactly."""
DRIFT, LACKING = 0.05, 4
"""Share of a block, and sampling intervals, at most, that may be missing before the next one for it to follow at once:
sensors run up to some percent faster or slower than they should. What lacks more is a gap."""
TELLING = 1e-3
"""Share by which the rate has to differ from the nominal one for somebody to be told."""

Times = npt.NDArray[np.float64]


@dataclass(eq=False)
class Recorded:
    """What one device recorded.

    Attributes:
        name: of the device.
        source: the file, or the folder.
        rows: as they were recorded; not put right yet.
        repairs: what was guessed and put right so far.
        start: the first time, as it is written.
        dated: are the times seconds since 1970?
        zoned: has the file, or somebody, said in which zone they are?
        units: of the channels by their names, where the file says them.
    """

    name: str
    source: Path
    rows: Rows
    repairs: Repairs
    start: str
    dated: bool
    zoned: bool = True
    units: dict[str, str] | None = None


def recorded_arrays(
    path: Path,
    name: str,
    said: Stated,
    *,
    time: npt.ArrayLike,
    values: npt.ArrayLike,
    channels: Sequence[str],
    labels: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Recorded:
    """What one device recorded, of arrays: for readers of further formats.

    Args:
        path: of the file. name: of the device.
        said: what a reader is given.
        time: n seconds; since 1970 if they are so large.
        values: (n, c); NaN where a sensor gave nothing.
        channels: c names.
        labels: n, "" for none; None: there are none.
        units: of channels by their names.

    Raises:
        UsageError: lengths do not agree, or a channel that was named is not there.
    """
    at, found = np.asarray(time, np.float64), np.asarray(values, np.float64)
    words = {"": 0}
    codes = [words.setdefault(word, len(words)) for word in ([""] * len(at) if labels is None else labels)]
    if at.ndim != 1 or found.shape != (len(at), len(channels)) or len(codes) != len(at):
        shape = f"time {at.shape}, values {found.shape}, {len(channels)} channels, {len(codes)} labels"
        raise UsageError(f"{path}: {shape}; expected (n,), (n, c), c and n")
    line = np.arange(1, len(at) + 1, dtype=np.int32)
    rows = Rows(at, narrow(found), tuple(channels), np.array(codes, np.int32), list(words), line)
    if unknown := [one for one in said.channels or () if one not in rows.channels]:
        raise UsageError(f"{path}: no channel {unknown[0]!r} among {', '.join(channels)}")
    if said.channels is not None:
        rows.take_channels([rows.channels.index(one) for one in said.channels])
    dated = len(at) > 0 and bool(at[0] > SINCE_1970)
    first = f"{at[0]:.3f}" if len(at) else ""
    return Recorded(name, path, rows, Repairs(path, said.strict), first, dated, units=dict(units or {}))


@dataclass(frozen=True, eq=False)
class RecordedSignal:
    """Channels that have one clock.

    Attributes:
        names: c channels.
        time: float64 (n,), seconds, rising.
        values: float (n, c); NaN where there is no value.
    """

    names: tuple[str, ...]
    time: Times
    values: npt.NDArray[np.floating]

    @property
    def step(self) -> float:
        """Seconds from one sample to the next."""
        return float(np.median(np.diff(self.time), overwrite_input=True)) if len(self.time) > 1 else np.inf


def join_signals(signals: Sequence[RecordedSignal], repairs: Repairs) -> Rows:
    """Rows at the times of the fastest signal; of the others, values on the lines between their samples.

    Where another signal has none, or pauses, a row has NaN there.

    Raises:
        UsageError: these are more than MOST_NUMBERS.
    """
    steps = [signal.step for signal in signals]
    fastest, least = signals[int(np.argmin(steps))], min(steps)
    names, n = tuple(name for signal in signals for name in signal.names), len(fastest.time)
    check_numbers(repairs.file, n, len(names))
    if len(signals) == 1:  # a day's values are not copied for nothing
        values = narrow(fastest.values)
    else:
        values, place = np.empty((n, len(names)), np.float32), 0
        for signal, step in zip(signals, steps, strict=True):
            own = values[:, place : place + len(signal.names)]
            place += len(signal.names)
            if signal is fastest or (len(signal.time) == n and (signal.time == fastest.time).all()):
                own[:] = narrow(signal.values)
                continue
            rates = [f"{1 / one if one else inf:.4g} Hz" for one in (step, least)]
            repairs.note(f"{', '.join(signal.names)}: {rates[0]} made {rates[1]}, by lines between the samples")
            fill_at(signal, fastest.time, own)
    return Rows(
        fastest.time,
        values,
        names,
        np.zeros(n, np.int32),
        [""],
        np.arange(1, n + 1, dtype=np.int32),
    )


def check_numbers(file: Path, rows: int, columns: int) -> None:
    """Raises UsageError for a table that no memory has room for."""
    if rows * columns > MOST_NUMBERS:
        raise UsageError(f"{file}: {rows} rows of {columns} columns; expected {MOST_NUMBERS} numbers at most")


def fill_at(signal: RecordedSignal, time: Times, out: npt.NDArray[np.float32]) -> None:
    """Writes the values of `values_at` to `out` (m, c), block by block: a day's need no memory of their own."""
    for at in range(0, len(time), BLOCK):
        out[at : at + BLOCK] = values_at(signal, time[at : at + BLOCK])


def narrow(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Values as float32; NaN where it has no such number. A day's are not copied for nothing."""
    if values.dtype == np.float32:
        endless = np.isinf(values)
        return np.where(endless, np.float32(np.nan), values) if endless.any() else np.asarray(values, np.float32)
    return np.where(np.abs(values) <= FLOAT32_MAX, values, np.nan).astype(np.float32)


def values_at(signal: RecordedSignal, time: Times) -> npt.NDArray[np.float32]:
    """Values (m, c) of a signal at these times; NaN outside it, and where it pauses. The last one, and the last one
    before a pause, last one step."""
    if len(signal.time) < 2:
        return np.full((len(time), len(signal.names)), np.nan, np.float32)
    after = np.clip(np.searchsorted(signal.time, time), 1, len(signal.time) - 1)
    near = signal.time[after] - signal.time[after - 1] <= LONGEST * signal.step
    near |= (time == signal.time[after]) | (
        time == signal.time[after - 1]
    )  # the first sample after a pause counts, too
    near &= (time >= signal.time[0]) & (time < signal.time[-1] + signal.step)
    found = np.empty((len(time), len(signal.names)), np.float32)
    for place, column in enumerate(signal.values.T):
        found[:, place] = narrow(np.interp(time, signal.time, column))
    lasts = ~near & (time >= signal.time[after - 1]) & (time - signal.time[after - 1] < signal.step)
    lasts &= time < signal.time[-1]
    found[lasts] = narrow(signal.values[after[lasts] - 1])
    found[~(near | lasts)] = np.nan
    return found


def even_blocks(times: npt.NDArray[np.int64], repairs: Repairs) -> npt.NDArray[np.int64]:
    """Times of samples, evenly spaced from the start of each block to the start of the one that follows it at once.

    Readers space them by the nominal rate, so that the samples of a sensor that is slower seem to pause between blocks,
    and those of a faster one to overlap.

    Args:
        times: int64 (n,), nanoseconds; equally spaced within a block. They are changed in place.
    """
    if len(times) < 3:
        return times
    step = int(np.median(np.diff(times), overwrite_input=True))
    begins = np.concatenate([[0], np.flatnonzero(np.diff(times) != step) + 1])
    if len(begins) < 2 or step <= 0:
        return times
    counts = np.diff(np.append(begins, len(times)))
    lasts = np.append(np.diff(times[begins]), 0)
    nominal = counts * step
    follows = (lasts > 0) & (lasts <= LONGEST_BLOCK_S * 10**9)
    follows &= lasts <= nominal + np.minimum(DRIFT * nominal, LACKING * step)
    if follows[-2]:  # nothing says how long the last block lasts; it is as fast as the one before
        lasts[-1], follows[-1] = lasts[-2] * counts[-1] // counts[-2], True
    for block in np.flatnonzero(follows):
        begin, count = int(begins[block]), int(counts[block])
        times[begin : begin + count] = times[begin] + np.arange(count) * int(lasts[block]) // count
    real = lasts[follows].sum() / max(1, counts[follows].sum())
    if follows.any() and abs(real / step - 1) > TELLING:
        repairs.note(f"samples are spread evenly over their blocks: {1e9 / real:.4g} Hz, not {1e9 / step:.4g} Hz")
    return times
