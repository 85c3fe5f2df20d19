"""The table of gradient rules: `RULES[operator]`, one file per family."""

from models.rules import (
    convolution,
    elementwise,
    indexing,
    linear,
    normalise,
    pooling,
    recurrent,
    reduction,
    resizing,
    shaping,
)
from models.rules.table import RULES

__all__ = [
    "RULES",
    "convolution",
    "elementwise",
    "indexing",
    "linear",
    "normalise",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "shaping",
]
