"""Questions with a reference: how they are read, and how they are written for each child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, ME, OUT, UP, NodeEnv, Send
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.labels import joined, parted, put_vectors, take_label, take_vectors
from edge_sdk.methods.integers.vectors.messages import Changes
from edge_sdk.methods.integers.vectors.reference import Reference, written
from edge_sdk.methods.integers.vectors.uploads import Scale


def read_question(env: NodeEnv, traffic: VectorTraffic, model: Vector, m: Changes) -> Any:
    """The method's own question.

    Raises:
        PeerError: the method has no such question.
    """
    paths = traffic.down.get(getattr(type(m.label), "origin", object))
    if paths is None or type(m.label).paths != paths:
        raise PeerError(f"the parent sent changes with a {type(m.label).__name__}, which is no question's")
    return put_vectors(env.layout, m.label, parted(paths, model))


def model_in(env: NodeEnv, traffic: VectorTraffic, sends: Sequence[Send]) -> Vector | None:
    """The vectors that questions show, one behind the other; None: there is no such question.

    All questions of one call show the same: a node has one model for all of its children.
    """
    found: Vector | None = None
    seen = set[int]()
    for send in sends:
        if not is_shown(traffic, send) or send.to == () or id(send.message) in seen:
            continue
        seen.add(id(send.message))
        model = joined(take_vectors(env.layout, send.message, traffic.down[type(send.message)]))
        if found is not None and not np.array_equal(found, model):
            raise ValueError(f"{type(send.message).__name__}: two children are shown different models")
        found = model
    return found


def factors_in(traffic: VectorTraffic, sends: Sequence[Send]) -> Packed | None:
    """The model of questions as their method has packed it; None where their vectors are something else."""
    for send in sends:
        if is_shown(traffic, send) and send.to != ():
            paths = traffic.down[type(send.message)]
            value = getattr(send.message, paths[0], None)
            return value if len(paths) == 1 and isinstance(value, Packed) else None
    return None


def is_shown(traffic: VectorTraffic, send: Send) -> bool:
    return send.to not in (UP, OUT, ME) and type(send.message) in traffic.down


def addressed(env: NodeEnv, traffic: VectorTraffic, r: Reference, scale: Scale, sends: Sequence[Send]) -> list[Send]:
    """The sends, with questions written for each child as the difference to what it holds."""
    found = list[Send]()
    for send in sends:
        if is_shown(traffic, send):
            found += for_each(env, traffic, r, scale, send)
        else:
            found.append(send)
    return found


def for_each(env: NodeEnv, traffic: VectorTraffic, r: Reference, scale: Scale, send: Send) -> list[Send]:
    """One send for all children that hold the same version; to nobody, where there is nobody."""
    to = env.here if send.to == DOWN else (send.to,) if isinstance(send.to, str) else send.to
    groups: dict[int, list[str]] = {}
    for child in to:
        groups.setdefault(r.held.get(child, 0), []).append(child)
    if not groups:
        return [replace(send, to=())]
    label = take_label(send.message, traffic.down[type(send.message)])
    return [
        replace(send, to=tuple(some), message=written(r, some[0], label, scale.bits, scale.half))
        for _, some in sorted(groups.items())
    ]
