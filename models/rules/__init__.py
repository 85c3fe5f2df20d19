"""The table of gradient rules: `RULES[operator]`, one file per family."""

from edge_sdk.models.rules import (
    convolution,
    elementwise,
    indexing,
    linear,
    normalise,
    piecewise,
    pooling,
    recurrent,
    reduction,
    resizing,
    shaping,
)
from edge_sdk.models.rules.table import RULES

__all__ = [
    "RULES",
    "convolution",
    "elementwise",
    "indexing",
    "linear",
    "normalise",
    "piecewise",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "shaping",
]
