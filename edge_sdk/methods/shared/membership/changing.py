"""Devices and hospitals that come or leave for good while a run goes on, as far as methods have it in common.

`NodeEnv.sizes` says who there is at each call. A method whose mathematics cannot do with another set than that of the
start says so in `Method.fixed` or `Method.fixed_hospitals`, and the change waits for the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv

V = TypeVar("V")


def always_fixed(why: str) -> Callable[[Any], str]:
    """A `Method.fixed` of a method whose devices are those with which a run begins."""
    return lambda settings: why


def fixed_while_unseen(settings: Any) -> str:
    """A `Method.fixed` of a method that keeps some devices out of training, whom it draws once."""
    unseen: float = settings.unseen
    return "unseen > 0: who is kept out of training is drawn once, among the devices of the start" if unseen else ""


def fixed_unless_in_step(settings: Any) -> str:
    """A `Method.fixed_hospitals` of a method whose hospitals mix as they become ready, unless cloud = "sync"."""
    some: str = "" if settings.cloud == "sync" else settings.cloud
    return f"cloud = {some!r}: who is ready mixes, and only who was asked at the start is ever ready" if some else ""


def unless_in_step(settings: Any) -> bool:
    """A `Method.late_counts` of such a method: who is not among the first goes on, and mixes when it is ready."""
    return bool(settings.cloud != "sync")


def departed(env: NodeEnv, names: Iterable[str]) -> frozenset[str]:
    """Names among these of children that belong to this node no more; none, where it does not know its children."""
    return frozenset(names) - {*env.sizes} if env.sizes else frozenset()


def remaining(env: NodeEnv, table: Mapping[str, V]) -> dict[str, V]:
    """What is left of a table by children, when some have left; all of it, where this node does not know them."""
    gone = departed(env, table)
    return {child: value for child, value in table.items() if child not in gone}


def with_size(env: NodeEnv, sizes: Mapping[str, int], child: str) -> Mapping[str, int]:
    """A table of how many devices there were behind children when they answered, with this one's; one alone needs no
    entry."""
    size = env.sizes.get(child, 1)
    return {**sizes, child: size} if size > 1 else sizes


def as_they_came(env: NodeEnv, sizes: Mapping[str, int]) -> NodeEnv:
    """The env for answers that were kept: in it children are as large as in a table of `with_size`, also those that
    have left since, whose answers count."""
    alike = all(env.sizes.get(child) == size for child, size in sizes.items())
    return env if alike else replace(env, sizes={**env.sizes, **sizes})


def mean_over(mean: Vector, before: int, now: int) -> Vector:
    """The mean of vectors over `now` devices, where it was over `before`: those that have come are at zero, and so were
    those that have left. `before` = 0: it is not known, and was the same."""
    return mean if before in (0, now) else mean * (before / now)
