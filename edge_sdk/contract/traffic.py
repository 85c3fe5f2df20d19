"""Which vectors of a method's messages may travel as integers, and what they are measured from (methods/integers).

A vector is named by the path of fields to it: "total", or "sums.total" inside another message. What travels is the
difference to an *anchor* that both sides know: uploads lie near the model that they answer, and differences are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edge_sdk.algebra.vectors import Vector

Anchor = Callable[[Any, str, Any, str, Vector], Vector | None]


def weighted(env: Any, who: str, label: Any, path: str, reference: Vector) -> Vector | None:
    """The anchor of a sum with a `weight`: every device's share of it lies near the model."""
    weight: float = label.weight
    return weight * reference


def unchanged_message(env: Any, who: str, message: Any) -> Any:
    return message


def first_model(env: Any) -> Vector:
    """The model that every node has before the run begins."""
    theta0: Vector = env.theta0
    return theta0


@dataclass(frozen=True, kw_only=True)
class VectorTraffic:
    """The vectors of a method's messages.

    Attributes:
        down: type of a question -> paths of the vectors (or `Packed` models) in it, all of one length; together they
            are the *reference*, in the order of their names. A hospital passes on what it was sent.
        up: type of an upload -> paths of its vectors, all of one length; those that are None are left out.
        anchor: (env, whose upload, upload without its vectors, path, reference) -> what lies near that vector; None:
            nothing does, and it travels as it is.
        first: env -> the reference that every node holds before the first question.
        adds: hospitals do nothing with uploads but add up the vectors of a round; then they need not open them.
        moves: True: an upload says how far devices have moved, so the aggregator counts from its own model, of which
            the reference is a rounded copy. False: it says where devices are.
        counts: types of answers that are nothing but whole numbers, which are added up.
        was_counted: (env, device's state, question) -> True if the device's last upload was counted, False if it was
            not; None: what was counted does not matter any more. Where uploads build on each other, what rounding took
            from one that was not counted must not be added to the next. None in its place: they do not.
        mend: (env, whose upload, upload) -> the upload back inside the set that rounding may have led it out of.
    """

    down: Mapping[type, tuple[str, ...]]
    up: Mapping[type, tuple[str, ...]]
    anchor: Anchor = weighted
    first: Callable[[Any], Vector] = first_model
    adds: bool = True
    moves: bool = True
    counts: tuple[type, ...] = ()
    was_counted: Callable[[Any, Any, Any], bool | None] | None = None
    mend: Callable[[Any, str, Any], Any] = unchanged_message
