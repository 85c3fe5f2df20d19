"""The samples that a [data] table names, those with a label and those without.

The latter are read when a run wants them: most runs do not, and they may be many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_sdk.data.cut import Cut
from edge_sdk.data.samples import (
    UNLABELLED,
    Normalise,
    SplitSamples,
    Stored,
    Unlabelled,
    check_arrays,
    read_gathered,
    read_samples,
)
from edge_sdk.errors import UsageError


def samples_of(data: Cut | Stored, normalise: Normalise | None = None) -> SplitSamples:
    """Reads the samples that a [data] table names.

    Args:
        normalise: windows (N, channels, window) of a trace -> as the model takes them; stored samples are ready.

    Raises:
        UsageError: the trace cannot be read, or is too short for one window in training and test part; the file is not
            as above.
    """
    if isinstance(data, Stored):
        return read_samples(data.samples)
    from edge_sdk.data.cutting import cut_samples  # what reads traces is large

    return cut_samples(data, normalise)


def unlabelled_of(data: Cut | Stored, normalise: Normalise | None = None) -> Unlabelled | None:
    """Reads the samples without a label that a [data] table names; None: there are none.

    Args:
        normalise: as of `samples_of`: what is done to windows with a label is done to these.

    Raises:
        UsageError: the trace or the file cannot be read, or is not as it should be.
    """
    found = read_unlabelled(data.samples) if isinstance(data, Stored) else cut_unlabelled(data, normalise)
    return found if found is not None and len(found) else None


def cut_unlabelled(data: Cut, normalise: Normalise | None = None) -> Unlabelled:
    """Cuts the windows of a trace that have no label, or none that the device is to know."""
    from edge_sdk.data.cutting import cut_trace, labelled_part, three_parts
    from edge_sdk.data.traces.unlabelled import find_stretches, unlabelled_rows

    trace, cuts = cut_trace(data)
    train = three_parts(cuts, data)[0]
    rows = unlabelled_rows(cuts, train, labelled_part(train, round(data.labelled * trace.rate_hz), data.asked))
    x = cuts.x[rows]
    found = x if normalise is None or not len(x) else normalise(x)
    return Unlabelled(np.ascontiguousarray(found, np.float32), find_stretches(trace, cuts, rows, data.gap))


def read_unlabelled(path: Path) -> Unlabelled | None:
    """Reads these arrays of an NPZ file, and no others; None: it has none."""
    names = (f"{UNLABELLED}x", f"{UNLABELLED}recording")
    found = read_gathered(path, lambda name: name.startswith(UNLABELLED), (UNLABELLED,))
    if not found:
        return None
    file = check_arrays(path, found, names)
    try:
        return Unlabelled(np.ascontiguousarray(file[names[0]]), file[names[1]])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
