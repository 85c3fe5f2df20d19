"""Torch definitions of the models that papers and devices use. `ZOO[name]` says how to build and compile one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from models.zoo import dense, wearable


@dataclass(frozen=True)
class Entry:
    """How to build a model: `build(**options)`, its input without batch, its number of classes."""

    build: Callable[..., nn.Module]
    input: tuple[int, ...]
    classes: int


ZOO: dict[str, Entry] = {
    "mlp": Entry(dense.MLP, (561,), 6),
    "wrist": Entry(wearable.Wrist, (3, 64), 14),
}
