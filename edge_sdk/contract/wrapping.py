"""What stands around a method's roles: its own state beside the method's, which what is not its own passes through.

Such a state is a frozen dataclass with a field `inner`. Who saves it has to know the type of that: `state_around`
writes it down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from edge_sdk.contract.method import NodeEnv, Role, Step

S = TypeVar("S")


@cache
def state_around(kind: type[S], inner: Any) -> type[S]:
    """A kind of state with the type of what is inside written down, for those who save it; the same class each time."""
    return make_dataclass(kind.__name__, [("inner", inner)], bases=(kind,), frozen=True)


def role_around(
    inner: Role,
    kind: type[S],
    receive: Callable[..., Step],
    close: Callable[..., Step],
    refuse: Callable[..., Step] | None = None,
    renew: Callable[..., Step] | None = None,
) -> Role:
    """A role that begins as the one inside, with a state of this kind around its state."""
    outer: Any = kind
    made: Any = state_around(outer, inner.state)

    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return made(state), sends

    return Role(start, receive, close, made, refuse, renew)


def passed_in(function: Callable[..., Step] | None) -> Callable[..., Step] | None:
    """A function of the role inside, given the state around that one's; None: it has none."""
    if function is None:
        return None

    def passed(env: NodeEnv, s: Any, *given: Any) -> Step:
        state, sends = function(env, s.inner, *given)
        return replace(s, inner=state), sends

    return passed


def inside(inner: Role, env: NodeEnv, s: Any, sender: str, message: Any) -> Step:
    """A message for the method itself."""
    state, sends = inner.receive(env, s.inner, sender, message)
    return replace(s, inner=state), sends


def closed(inner: Role, env: NodeEnv, s: Any) -> Step:
    """The end of a round of the method itself."""
    state, sends = inner.close(env, s.inner)
    return replace(s, inner=state), sends
