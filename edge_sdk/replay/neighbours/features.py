"""Numbers that a linear model and trees are given of a sample: features of windows, else the values themselves.

Windows (N, channels, samples) have those of `edge_sdk.algebra.window_features`; tables (N, d) are taken as they are;
images and other floats are flattened while a sample has no more than MOST_VALUES. Integers are numbers of words or of
states, whose size means nothing: they have no features, and there the network is the only neighbour.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.window_features import window_features
from edge_sdk.replay.neighbours.holders import Array

Floats = npt.NDArray[np.float64]
MOST_VALUES = 4096
"""Values of a sample that are taken one by one, at most: an image of 64 by 64."""
SHORTEST = 4
"""Samples that a window has at least, for its spectrum to say anything."""
FEATURES, VALUES, PIXELS, NONE = "features", "values", "pixels", ""


def kind_of_features(x: Array) -> str:
    """What the samples of an array (N, ...) are described by; "": by nothing."""
    shape = x.shape[1:]
    if x.dtype.kind != "f" or np.prod(shape) == 0:
        return NONE
    if len(shape) == 2 and shape[1] >= SHORTEST:
        return FEATURES
    if np.prod(shape) > MOST_VALUES:
        return NONE
    return VALUES if len(shape) < 3 else PIXELS


def features_of(x: Array) -> Floats:
    """Features (N, F), all finite. `x`: of a kind that has some."""
    found = window_features(x) if kind_of_features(x) == FEATURES else x.reshape(len(x), math.prod(x.shape[1:]))
    return np.asarray(np.nan_to_num(found), np.float64)
