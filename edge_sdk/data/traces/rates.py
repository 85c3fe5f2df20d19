"""A trace at another rate, made as live samples are (data/live/resample.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edge_sdk.data.live.resample import Resampler, is_same_rate
from edge_sdk.data.traces.read import Trace
from edge_sdk.errors import UsageError

TOUCHED = 1e-6
"""Share of a sample from which on rows without a number count; less is rounding."""


def resample_trace(trace: Trace, rate_hz: float) -> Trace:
    """A trace at another rate; the same one where its rate is that already, within 5 %.

    A sample has the label of the last recorded one before it. No sample is made between two recordings, and no value
    of a column that is to be predicted from rows that have none.

    Raises:
        UsageError: too little is left.
    """
    if is_same_rate(trace.rate_hz, rate_hz):
        return trace
    lost = np.isnan(trace.values)
    gaps = np.flatnonzero(lost.any(0))
    rows = np.concatenate([np.where(lost, 0, trace.values), lost[:, gaps]], 1) if len(gaps) else trace.values
    ticks, found = Resampler(trace.rate_hz, rate_hz, rows.shape[1]).push(trace.time, rows)
    values, unknown = found[:, : len(trace.channels)], found[:, len(trace.channels) :]
    values[:, gaps] = np.where(unknown > TOUCHED, np.nan, values[:, gaps])
    if len(ticks) < 2:
        raise UsageError(f"{trace.name}: {len(ticks)} samples at {rate_hz:g} Hz; two or more make a trace")
    time = ticks / rate_hz
    codes = trace.codes[np.maximum(0, np.searchsorted(trace.time, time + 1e-9, "right") - 1)]
    note = f"{trace.rate_hz:.4g} Hz made {rate_hz:.4g} Hz"
    return replace(
        trace,
        time=time - time[0],
        values=np.ascontiguousarray(values, np.float32),
        codes=codes,
        rate_hz=float(rate_hz),
        began=trace.began + float(time[0]),
        notes=(*trace.notes, note),
    )


def common_rate(traces: Sequence[Trace]) -> float:
    """The rate that most of these have, within 5 %; of equals the lowest, which invents least."""
    rates = [trace.rate_hz for trace in traces]
    counts = Counter({one: sum(is_same_rate(one, other) for other in rates) for one in rates})
    return min(rates, key=lambda rate: (-counts[rate], rate))
