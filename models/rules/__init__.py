"""The table of gradient rules: `RULES[operator]`, one file per family."""

from edge_sdk.models.rules import (
    elementwise,
    indexing,
    linear,
    normalise,
    own_gradient,
    piecewise,
    reduction,
    resizing,
    shaping,
)
from edge_sdk.models.rules.table import RULES
from edge_sdk.models.rules.windows import convolution, pooling, recurrent

__all__ = [
    "RULES",
    "convolution",
    "elementwise",
    "indexing",
    "linear",
    "normalise",
    "own_gradient",
    "piecewise",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "shaping",
]
