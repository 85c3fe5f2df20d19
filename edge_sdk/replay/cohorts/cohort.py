"""What both kinds of data come to: hospitals with their devices, and a way to write down each one's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import OutputTask
from edge_sdk.replay.datasets.table import Floats

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""Input of a bundle -> shape of one sample there."""
Tables = Mapping[str, Mapping[str, Any]]
"""Node -> the [data] table of its settings."""
Wanted = Callable[[str], Shapes]
"""Node -> shapes that its model wants."""


def count_nodes(tree: Mapping[str, tuple[str, ...]]) -> str:
    """Numbers of devices and of hospitals, in words."""
    sizes = {"device": sum(map(len, tree.values())), "hospital": len(tree)}
    return " in ".join(f"{n} {noun}" if n == 1 else f"{n} {noun}s" for noun, n in sizes.items())


@dataclass(frozen=True)
class Cohort:
    """Who takes part, and what they hold.

    Attributes:
        summary: one line about it, for people.
        tree: hospital -> its devices.
        classes: names of the labels.
        shapes: of a sample, by the names of a bundle's inputs: "x", "x.hospital" and "x.device" for a split model, or
            the inputs of samples that have several.
        reshape: a sample may be given to the model in another shape of the same size.
        generated: not measured on anybody.
        tables: writes the data files into a directory, and returns the [data] tables that name them.
        public: float32 (P, ...), inputs that all devices know; None: there are none.
        task: what is to be predicted, where the samples are in no classes: `classes` has the names of the values or of
            the labels, and ranges of values are stated, or those of the data. None: they are in classes.
        unit: of these values, as somebody has stated it; "": nobody has.
        signal: what windows are of, for a network that is compiled for them; None: it needs not know.
        step: seconds from the start of a window to that of the next; 0: nobody knows.
        channels: of windows, in their order; empty: there are none.
        units: of these, as noted beside the traces, "" where none is.
        rate_hz: of the traces that windows are cut from; 0: there are none.
        largest: value in the samples, where these are one array of whole numbers from 0; None: they are something else.
        chooses: each device has samples to make choices on, unless the options of the data say that there are none.
        notes: what a person should know of how these devices were chosen, a sentence each.
    """

    summary: str
    tree: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    shapes: Shapes
    reshape: bool
    generated: bool
    tables: Callable[[Path, Wanted], Tables]
    public: Floats | None = None
    notes: tuple[str, ...] = ()
    task: OutputTask | None = None
    unit: str = ""
    signal: SignalSpec | None = None
    step: float = 0.0
    channels: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    rate_hz: float = 0.0
    largest: int | None = None
    chooses: bool = True

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all devices, hospital by hospital."""
        return tuple(device for devices in self.tree.values() for device in devices)


def shapes_fit(found: Shapes, model: Shapes, reshape: bool) -> bool:
    """Can samples of these shapes be given to a model?"""
    if len(found) == len(model) == 1:  # by whatever name
        model = dict(zip(found, model.values(), strict=True))
    if {*found} != {*model}:
        return False
    return all(found[k] == model[k] or (reshape and prod(found[k]) == prod(model[k])) for k in found)
