"""Few labels: a device's owner has labelled only the first seconds of each class."""

from __future__ import annotations

import numpy as np

from edge_sdk.data.traces.windows import Windows


def keep_labelled(windows: Windows, samples: int) -> Windows:
    """The windows that lie in the first so many samples of each class, recording after recording; 0: all windows.

    A window that reaches beyond the last labelled sample is left out, so a class has none where `samples` are fewer
    than a window.

    Args:
        windows: of one device, in time order; every recording is of one class.
        samples: labelled ones of each class.
    """
    if samples == 0:
        return windows
    keep, length = np.zeros(len(windows), np.bool_), windows.x.shape[2]
    for code in np.unique(windows.codes):
        left = samples
        for name in np.unique(windows.recording[windows.codes == code]):
            own = np.flatnonzero(windows.recording == name)
            ends = windows.first[own] + length - windows.first[own[0]]
            keep[own[ends <= left]] = True
            left -= int(ends[-1])
            if left < length:
                break
    return windows.take(keep)
