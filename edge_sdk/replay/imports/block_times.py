"""Times of samples that a device writes in blocks: of a block only the start is measured, by a clock of its own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.repairs import Repairs

LONGEST_S = 60
"""Of a block that is spread; what is longer is many that follow each other exactly."""
DRIFT, SAMPLES = 0.05, 4
"""Share of a block, and sampling intervals, at most, that may be missing before the next one for it to follow at once:
sensors run up to some percent faster or slower than they should. What lacks more is a gap."""
TELLING = 1e-3
"""Share by which the rate has to differ from the nominal one for somebody to be told."""


def even_blocks(times: npt.NDArray[np.int64], repairs: Repairs) -> npt.NDArray[np.int64]:
    """Times of samples, evenly spaced from the start of each block to the start of the one that follows it at once.

    Readers space them by the nominal rate, so that the samples of a sensor that is slower seem to pause between blocks,
    and those of a faster one to overlap.

    Args:
        times: int64 (n,), nanoseconds; equally spaced within a block.
    """
    if len(times) < 3:
        return times
    steps = np.diff(times)
    step = int(np.median(steps))
    begins = np.concatenate([[0], np.flatnonzero(steps != step) + 1])
    if len(begins) < 2 or step <= 0:
        return times
    counts = np.diff(np.append(begins, len(times)))
    lasts = np.append(np.diff(times[begins]), 0)
    nominal = counts * step
    follows = (lasts > 0) & (lasts <= LONGEST_S * 10**9)
    follows &= lasts <= nominal + np.minimum(DRIFT * nominal, SAMPLES * step)
    if follows[-2]:  # nothing says how long the last block lasts; it is as fast as the one before
        lasts[-1], follows[-1] = lasts[-2] * counts[-1] // counts[-2], True
    found = times.copy()
    for block in np.flatnonzero(follows):
        begin, count = int(begins[block]), int(counts[block])
        found[begin : begin + count] = times[begin] + np.arange(count) * int(lasts[block]) // count
    real = lasts[follows].sum() / max(1, counts[follows].sum())
    if follows.any() and abs(real / step - 1) > TELLING:
        repairs.note(f"samples are spread evenly over their blocks: {1e9 / real:.4g} Hz, not {1e9 / step:.4g} Hz")
    return found
