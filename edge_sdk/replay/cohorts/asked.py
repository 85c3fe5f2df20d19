"""Questions that an oracle answers in a replay before training begins: whoever wears the device knows what was done.

A device has the labels of some seconds of each class (`labelled`). It grows a forest on these, looks for the stretches
whose label would help most (edge_sdk/algebra/asking.py), and is told what was recorded there. At random it asks for
stretches of the same kind, drawn: what choosing them is worth shows beside that.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.asking import choose, margins, means_of, stretches
from edge_sdk.algebra.forest import grow, vote
from edge_sdk.algebra.window_features import window_features
from edge_sdk.data.cut import Cut
from edge_sdk.data.cutting import labelled_part, three_parts
from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.unlabelled import find_stretches, unlabelled_rows
from edge_sdk.data.traces.windows import Windows, cut_windows

PURPOSE = 11
"""Of the random stream."""
TREES = 50
LONGEST = 30.0
"""Seconds of a stretch, as of `Device.questions`."""
Rows = npt.NDArray[np.int64]


def asked_windows(trace: Trace, data: Cut, most: int, at_random: bool, seed: int) -> tuple[int, ...]:
    """First samples of the windows whose labels an oracle tells, in so many answers at most.

    Args:
        data: how the trace is cut, and how much of it is labelled before. at_random: stretches are drawn.
    """
    cuts = cut_windows(trace, window=data.window, stride=data.stride, gap=data.gap)
    train = three_parts(cuts, data)[0]
    labelled = labelled_part(train, round(data.labelled * trace.rate_hz))
    rows = unlabelled_rows(cuts, train, labelled)
    rows = rows[cuts.y[rows] >= 0]  # of others nothing was recorded
    if not len(rows):
        return ()
    random = np.random.default_rng([seed, PURPOSE, crc32(trace.name.encode())])
    p, features = guesses(labelled, cuts, rows, random)
    ended = cuts.end[rows]
    began = ended - (data.window - 1) / trace.rate_hz
    parts = stretches(find_stretches(trace, cuts, rows, data.gap), p.argmax(1), began, ended, LONGEST)
    if at_random:
        chosen = random.permutation(len(parts))[:most].tolist()
    else:
        known = window_features(labelled.x)
        middle = np.array([(began[begin] + ended[end - 1]) / 2 for begin, end in parts])
        chosen = choose(margins(means_of(p, parts)), means_of(features, parts), known, middle, most)
    return tuple(first for at in chosen for first in answered(cuts, rows[slice(*parts[at])]))


def guesses(
    labelled: Windows, cuts: Windows, rows: Rows, random: np.random.Generator
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Probabilities (N, classes) of windows by a forest on the labelled ones, and their features (N, F)."""
    features = window_features(cuts.x[rows])
    forest = grow(window_features(labelled.x), labelled.y, len(cuts.classes), TREES, random)
    return vote(forest, features), features


def answered(cuts: Windows, rows: Rows) -> list[int]:
    """First samples of those windows of a stretch in which was done what was done in most of it."""
    names, counts = np.unique(cuts.y[rows], return_counts=True)
    return [int(first) for first in cuts.first[rows[cuts.y[rows] == names[counts.argmax()]]]]
