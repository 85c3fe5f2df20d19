"""theta in two parts: slots that all devices share, and slots that stay on each device.

Which slots stay is a setting, `personal_slots`: words with commas between them. A word stands for
    a slot, a layer or a block   by its name: "head.2.weight", "head.2", "head"
    a layer group of the bundle  by its name
    a kind of slot               "norm", "bias", "conv", ...: all slots of that kind
    "last"                       the layer whose parameters come last in theta, usually the classifier; running
                                 statistics of a normalisation, which lie behind all parameters, do not count
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Layout, Slot, Vector
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import Gradient, KeptGradient

LAST = "last"
Spans = tuple[slice, ...]


@dataclass(frozen=True)
class Parts:
    """The two parts of theta, each as spans of theta in ascending order. Together they cover it once."""

    shared: Spans
    personal: Spans


def parts(layout: Layout, words: str) -> Parts:
    """The parts of theta where these words say which slots are personal.

    Raises:
        UsageError: a word stands for no slot, or one of the two parts would be empty.
    """
    stays = named(layout, words)
    found = Parts(spans(s for s in layout.slots if s not in stays), spans(s for s in layout.slots if s in stays))
    if not found.shared:
        raise UsageError(f"personal_slots = {words!r}: that is the whole model, and nothing is left to share")
    return found


def named(layout: Layout, words: str, key: str = "personal_slots") -> set[Slot]:
    """The slots that the words stand for. `key`: the setting that they are of, for an error.

    Raises:
        UsageError: a word stands for no slot.
    """
    found: set[Slot] = set()
    for word in (w.strip() for w in words.split(",")):
        slots = {s for s in layout.slots if matches(s, word)}
        if word == LAST and not slots:
            last = next((s for s in reversed(layout.slots) if not s.is_statistic), layout.slots[-1])
            slots = {s for s in layout.slots if layer(s) == layer(last)}
        if not slots:
            known = ", ".join(dict.fromkeys([*map(layer, layout.slots), *(s.kind for s in layout.slots), LAST]))
            raise UsageError(f"{key} = {words!r}: this model has no {word!r}; there are: {known}")
        found |= slots
    return found


def matches(slot: Slot, word: str) -> bool:
    return word != "" and (word in (slot.name, slot.kind, slot.group) or slot.name.startswith(word + "."))


def layer(slot: Slot) -> str:
    """The name of the module that the slot is a parameter of: "head.2" for "head.2.weight"."""
    return slot.name.rpartition(".")[0] or slot.name


def spans(slots: Iterable[Slot]) -> Spans:
    """Where these slots lie, in ascending order; neighbours are one span."""
    found: list[slice] = []
    for slot in sorted(slots, key=lambda s: s.offset):
        if found and found[-1].stop == slot.offset:
            found[-1] = slice(found[-1].start, slot.span.stop)
        else:
            found.append(slot.span)
    return tuple(found)


def size(where: Spans) -> int:
    return sum(span.stop - span.start for span in where)


def taken(theta: Vector, where: Spans) -> Vector:
    """A part of theta as a vector of its own, (k,)."""
    return np.concatenate([theta[span] for span in where])


def put(theta: Vector, where: Spans, values: Vector) -> None:
    """Writes a part into theta."""
    start = 0
    for span in where:
        stop = start + span.stop - span.start
        theta[span] = values[start:stop]
        start = stop


def joined(p: Parts, shared: Vector, personal: Vector) -> Vector:
    """theta (n,) from its two parts."""
    theta = np.empty(len(shared) + len(personal), shared.dtype)
    put(theta, p.shared, shared)
    put(theta, p.personal, personal)
    return theta


def along(grad_fn: Gradient, theta: Vector, where: Spans) -> Gradient:
    """The loss as a function of one part of theta, the rest being frozen as it is in `theta` now.

    The gradient of the frozen part is computed and thrown away: `grad_fn` knows no parts.
    """
    whole = theta.copy()

    def at(values: Vector, indices: Any = None) -> tuple[float, Vector]:
        put(whole, where, values)
        loss, gradient = grad_fn(whole, indices)
        return loss, taken(gradient, where)

    return replace(grad_fn, call=at) if isinstance(grad_fn, KeptGradient) else at
