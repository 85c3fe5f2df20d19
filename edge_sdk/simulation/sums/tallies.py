"""Exact sums that are spread over ranks: adding them up before a hospital's round is closed, and spreading them again.

A tally adds integers, so a sum over clients is the same on however many ranks, and in whatever order, it is made. The
rule between two closes: the sum over ranks of their tallies is the hospital's tally. So after a close, a tally that is
still in the state stays with rank 0 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.contract.method import NodeEnv, Role, Step
from edge_sdk.methods.shared.aggregation.exact import Integers
from edge_sdk.methods.shared.aggregation.gather import MANY, Tally, carried
from edge_sdk.methods.shared.aggregation.guard import Guard
from edge_sdk.simulation.processes.ranks import Ranks
from edge_sdk.simulation.sums.open_sums import OpenSum


def with_tallies(value: Any, change: Callable[[Tally], Tally]) -> Any:
    """Plain data with each tally in it changed; what has none in it stays the same object."""
    if isinstance(value, Tally):
        return change(value)
    if isinstance(value, Guard):  # a number for each client, and no tally
        return value
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in fields(value)}
        new = {name: with_tallies(item, change) for name, item in held.items()}
        changes = {name: item for name, item in new.items() if item is not held[name]}
        return replace(value, **changes) if changes else value
    if isinstance(value, Mapping) and any(isinstance(item, Tally) or is_dataclass(item) for item in value.values()):
        made = {key: with_tallies(value[key], change) for key in value}
        return made if any(made[key] is not value[key] for key in made) else value
    if isinstance(value, (tuple, list)) and any(is_dataclass(item) for item in value):
        return type(value)(with_tallies(item, change) for item in value)
    return value


def whole(value: Any, ranks: Ranks) -> Any:
    """Plain data with each tally as the sum over ranks. All ranks must call it."""

    def add_up(tally: Tally) -> Tally:
        high, low = integers_of(tally)
        if ranks.count > 1:
            high, low = np.split(ranks.add(np.concatenate([high, low])), 2)
        tally = replace(tally, high=high, low=low)
        return tally if len(tally.heard) < MANY else carried(tally, "a rank")  # one way to write each sum

    return with_tallies(value, add_up)


def integers_of(tally: Tally) -> tuple[Integers, Integers]:
    """The integers of a tally of this rank, with all that waits to be added."""
    return tally.high.close() if isinstance(tally.high, OpenSum) else (tally.high, tally.low)


def written_out(value: Any) -> Any:
    """Plain data with the integers of this rank in each tally, as a checkpoint has them."""

    def write(tally: Tally) -> Tally:
        high, low = integers_of(tally)
        return tally if high is tally.high else replace(tally, high=high, low=low)

    return with_tallies(value, write)


def spread(value: Any, ranks: Ranks) -> Any:
    """Plain data with tallies that rank 0 alone has, as the rule wants it."""
    if ranks.number == 0:
        return value
    return with_tallies(value, lambda t: replace(t, high=np.zeros_like(t.high), low=np.zeros_like(t.low)))


def closing_together(role: Role, ranks: Ranks) -> Role:
    """A hospital's role whose sums are made whole before each close."""

    def close(env: NodeEnv, state: Any) -> Step:
        after, sends = role.close(env, whole(state, ranks))
        return spread(after, ranks), sends

    return replace(role, close=close)
