"""Riders: what a node must know before its next question, told with that question.

A call sends one message to each child (contract/node.py), so what a phase around a method wants to tell travels around
the method's own question. The aggregator tells each hospital with every question; a hospital tells each child with the
first question after it has changed, and remembers whom it has told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from edge_sdk.contract.method import DOWN, ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in

Wrap = Callable[[Any], Any]
"""A question -> the message that carries it."""


class Rider:
    """A message around a question; a dataclass with a field `message` adds the rest."""

    message: Any

    @property
    def wrapped_kind(self) -> str:
        """Type of the question, by whose duration deadlines are measured."""
        return str(getattr(self.message, "wrapped_kind", type(self.message).__name__))

    @property
    def round(self) -> int | None:
        """The question's round, for whoever logs it."""
        return getattr(self.message, "round", None)


def told_again(inner: Role) -> Callable[..., Step]:
    """A hospital's `renew`: a child whose new disk knows nothing is told with its next question."""
    pass_in = passed_in(inner.renew)

    def renew(env: NodeEnv, s: Any, child: str) -> Step:
        s = replace(s, told=tuple(name for name in s.told if name != child))
        return (s, []) if pass_in is None else pass_in(env, s, child)

    return renew


def asks(send: Send) -> bool:
    return send.answer and send.to not in (UP, OUT, ME)


def tell_all(sends: Sequence[Send], wrap: Wrap) -> list[Send]:
    """What the aggregator sends, with a rider on each question."""
    return [replace(send, message=wrap(send.message)) if asks(send) else send for send in sends]


def tell_new(
    env: NodeEnv, told: tuple[str, ...], sends: Sequence[Send], wrap: Wrap
) -> tuple[tuple[str, ...], list[Send]]:
    """What a hospital sends, with a rider on the questions to children that are not among `told`, and who is then."""
    known, found = {*told}, list[Send]()
    for send in sends:
        names = receivers(env, send)
        new = tuple(name for name in names if name not in known)
        if not asks(send) or not new:
            found.append(send)
            continue
        old = tuple(name for name in names if name in known)
        found += [replace(send, to=old)] * bool(old) + [replace(send, to=new, message=wrap(send.message))]
        known |= {*new}
    return tuple(sorted(known)), found


def receivers(env: NodeEnv, send: Send) -> tuple[str, ...]:
    """Names of the children that a message goes to."""
    if isinstance(send.to, tuple):
        return send.to
    return tuple(env.here) if send.to == DOWN else () if send.to in (UP, OUT, ME) else (send.to,)
