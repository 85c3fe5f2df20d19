"""Suspension: a child whose uploads are refused several times in a row is left out until somebody has looked at it.

It is not asked any more, what it still sends counts for nothing, and so do its scores; the final model it is given all
the same. The last child that is not suspended never is: a node without children could not go on. Which suspensions are
lifted is said by the node's settings (`Limits.lift`), as a number for each child: a suspension of which that number
says nothing is in force. So lifting one does not lift the next, and it is no event that could be lost with a process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.shared.aggregation.guard import Guard, measure_of


@dataclass(frozen=True)
class Suspended:
    """To the application of a hospital or the aggregator: a child is left out from now on.

    Attributes:
        times: how many suspensions it has had, with this one.
        reason: why its last upload was refused.
    """

    sender: str
    times: int
    reason: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "suspended", "sender": self.sender, "times": self.times, "reason": self.reason}

    def to_sentence(self) -> str:
        return (
            f"{self.sender} is suspended: several uploads in a row were refused, the last because {self.reason}; it is "
            f"left out until somebody has looked at it and set limits.lift.{self.sender} = {self.times} in this node's "
            "settings file, which it reads again at SIGHUP"
        )


def is_suspended(env: NodeEnv, guard: Guard, child: str) -> bool:
    return guard.suspended.get(child, 0) > env.limits.lift.get(child, 0)


def list_suspended(env: NodeEnv, guard: Guard) -> dict[str, int]:
    """Child that is left out -> how often it has been suspended."""
    return {child: times for child, times in sorted(guard.suspended.items()) if is_suspended(env, guard, child)}


def without_suspended(env: NodeEnv, guard: Guard) -> NodeEnv:
    """The env in which only those children are here that are not suspended."""
    if not guard.suspended:
        return env
    left = tuple(child for child in env.here if not is_suspended(env, guard, child))
    return env if len(left) == len(env.here) else replace(env, here=left)


def note_refusal(env: NodeEnv, guard: Guard, child: str, reason: str) -> tuple[Guard, list[Suspended]]:
    """The guard after a refused upload, and the suspension if this was one too many."""
    count = guard.refusals.get(child, 0) + 1
    others = {c for c in {*env.sizes, *env.here} if c != child and not is_suspended(env, guard, c)}
    if not 0 < env.limits.suspend_after <= count or not others:
        return replace(guard, refusals={**guard.refusals, child: count}), []
    times = max(guard.suspended.get(child, 0), env.limits.lift.get(child, 0)) + 1
    left = {c: n for c, n in guard.refusals.items() if c != child}
    return replace(guard, refusals=left, suspended={**guard.suspended, child: times}), [Suspended(child, times, reason)]


def note_upload(guard: Guard, child: str, message: Any) -> Guard:
    """The guard after an answer that was counted: if it is an upload, refusals before it are forgiven."""
    if child not in guard.refusals or measure_of(message) is None:
        return guard
    return replace(guard, refusals={c: n for c, n in guard.refusals.items() if c != child})
