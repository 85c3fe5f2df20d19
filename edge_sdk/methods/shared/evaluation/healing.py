"""Training that diverges, on a device: that round is dropped, its state is what it was before, and it is said.

A glitch of one sensor value, a step size that is too large for this device alone: then numbers grow without bound or
are none. Sent, they would be refused; kept, they would make each later round of this device useless, because training
begins where the last one ended. So neither happens. The device answers that it has nothing, which costs its part of
this round, and goes on from the state before. Where that state is of no use either, it begins as on the first day; to
its method this is a device that has lost its disk, of which each method knows what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.methods.shared.aggregation.exact import has_diverged
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.guard import measure_of
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.reports import Diverged

DROPPED = "training diverged; its round is dropped, and the device goes on from the state before"
RESET = "training diverged, and so had the private state; the device begins as on the first day"
UNTUNED = "training of the personal model diverged; the device predicts with the global one"

PLAIN = frozenset({type(None), bool, int, float, str})
"""Types of what holds no array, as most of what there is."""

UPLOADS = frozenset({Sum, VectorSum})
"""Types of messages that hold one vector, of which `measure` tells the length per unit of weight."""
SHORT = 2.0**20
"""A length far below exact.LARGEST, however it is rounded."""


def is_sound(value: Any) -> bool:
    """True if no array of floats in plain data holds a number that may not travel: none, or above exact.LARGEST."""
    if type(value) in PLAIN:
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or not has_diverged(value)
    if type(value) in UPLOADS and is_short(value):
        return True
    if isinstance(value, dict) or is_dataclass(value):
        held = value if isinstance(value, dict) else vars(value)
        return all([is_sound(item) for item in held.values() if type(item) not in PLAIN])
    if isinstance(value, Mapping):
        return all(map(is_sound, value.values()))
    return not isinstance(value, (tuple, list)) or all(map(is_sound, value))


def is_short(upload: Sum) -> bool:
    """True if an upload's vector is shorter than any number that may not travel: it is measured once, for this and for
    what is looked at later."""
    found = measure_of(upload)
    return found is not None and found.length * upload.weight <= SHORT


def heal(role: Role, env: NodeEnv, before: Any, step: Step, round: int) -> Step:
    """A device's step or, where it has diverged, none: the state to go on with, and what is said of it.

    Args:
        before: the state that the step began with.
        round: for the report.
    """
    state, sends = step
    if is_sound(state) and all(is_sound(send.message) for send in sends if send.to == UP):
        return step
    kept, what = (before, DROPPED) if is_sound(before) else (role.start(replace(env, earlier={}))[0], RESET)
    answer = [Send(UP, Nobody())] if any(send.to == UP for send in sends) else []
    return kept, [Send(OUT, Diverged(round, what)), *answer]


def heal_personal(round: int, models: Mapping[str, Vector]) -> tuple[Mapping[str, Vector], list[Send]]:
    """A device's models, the global one in place of a personal one whose training diverged, and what is said of it.

    Args:
        models: name -> theta, as `Method.models` has them.
    """
    if "personal" not in models or "global" not in models:
        return models, []
    if not has_diverged(models["personal"]) or has_diverged(models["global"]):
        return models, []
    return {**models, "personal": models["global"]}, [Send(OUT, Diverged(round, UNTUNED))]
