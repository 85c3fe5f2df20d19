"""Uploads as integers: written by whoever sends one, opened or added up by its parent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors import rungs
from edge_sdk.methods.integers.vectors.labels import joined, parted, put_vectors, take_label, take_vectors
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.privacy import Privacy
from edge_sdk.methods.integers.vectors.rounded import UPWARD, read_vector, round_vector, upward
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation.exact import has_diverged


@dataclass(frozen=True)
class IntegersPlan:
    """What does not change in a run.

    Attributes:
        settings: of the run.
        traffic: of the method.
        opens: hospitals open uploads, because they do more with them than add them up.
        privacy: noise that devices add; None: they add none.
        shortened: as of `Method`.
        phases: answers with noise of each device to phases around the method, beside one in each round.
    """

    settings: Uploads
    traffic: VectorTraffic
    opens: bool
    privacy: Privacy | None = None
    shortened: Callable[[Any, Any, Any, Any, float], Any] | None = None
    phases: int = 0


@dataclass(frozen=True)
class Scale:
    """What a question says of the integers of its answers.

    Attributes:
        bits: of a number.
        half: the largest number; 0: as each sender likes, so that such uploads are opened and not added up.
    """

    bits: int
    half: float


def anchor_of(
    env: NodeEnv, traffic: VectorTraffic, who: str, label: Any, there: tuple[str, ...], reference: Vector
) -> Any:
    """What lies near the vectors of an upload, one behind the other, and 0.0 for those that nothing lies near."""
    found = {path: traffic.anchor(env, who, label, path, reference) for path in there}
    sizes = [v.size for v in found.values() if v is not None]
    if not sizes:
        return 0.0
    return joined({path: np.zeros(sizes[0]) if v is None else v for path, v in found.items()})


def is_plain(env: NodeEnv, traffic: VectorTraffic, message: Any) -> bool:
    """True for a message that has no vector to be rounded, and travels as it is."""
    paths = traffic.up.get(type(message))
    return paths is None or not take_vectors(env.layout, message, paths)


def write_upload(
    env: NodeEnv, plan: IntegersPlan, reference: Vector, version: int, scale: Scale, message: Any, left: Vector
) -> tuple[Any, Vector]:
    """An upload as integers, and what rounding has left of it for the next one.

    What has diverged stays as it is: the round is dropped (shared/evaluation/healing.py).
    """
    vectors = take_vectors(env.layout, message, plan.traffic.up[type(message)])
    label, there = take_label(message, plan.traffic.up[type(message)]), tuple(sorted(vectors))
    v = joined(vectors)
    if has_diverged(v):
        return message, left
    x = (v - anchor_of(env, plan.traffic, env.me, label, there, reference)).astype(v.dtype)
    if plan.settings.feedback and left.size == x.size:
        x = x + left
    how = upward(env, plan.settings, version, scale.bits)
    rounded = round_vector(how, x, scale.half, env.random(version, UPWARD))
    packed = rounding.pack(rounded.steps, scale.bits)
    spread = rungs.round_spread(rounded.spread) if plan.settings.sums_only else rounded.spread
    upload = Integers(label, there, x.size, scale.bits, rounded.half, 1, spread, packed)
    return upload, rounded.left if plan.settings.feedback else left


def check_upload(env: NodeEnv, plan: IntegersPlan, scale: Scale, sender: str, m: Integers) -> None:
    """Raises PeerError for integers of another kind than was asked for."""
    if scale.half and (m.bits, m.half) != (scale.bits, scale.half):
        raise PeerError(
            f"{sender} sent {m.bits} bits up to {m.half:.6g}, asked for {scale.bits} up to {scale.half:.6g}"
        )
    if m.terms > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} sent a sum of {m.terms} uploads, it has {env.sizes.get(sender, 1)} devices")
    paths = plan.traffic.up.get(getattr(type(m.label), "origin", object))
    if paths is None or not set(m.there) <= set(paths) or type(m.label).paths != paths:
        raise PeerError(f"{sender} sent integers with a {type(m.label).__name__}, which is no upload's")


def open_upload(
    env: NodeEnv, plan: IntegersPlan, reference: Vector, version: int, sender: str, m: Integers, like: Vector
) -> Any:
    """The method's own message, with vectors in the float type of `like`.

    Raises:
        PeerError: it is not what the method takes.
    """
    how = upward(env, plan.settings, version, m.bits)
    moved = read_vector(how, m.steps, m.half, m.terms, like)
    vector = moved + anchor_of(env, plan.traffic, sender, m.label, m.there, reference)
    message = put_vectors(env.layout, m.label, parted(m.there, vector.astype(like.dtype)))
    return plan.traffic.mend(env, sender, message)


def without_numbers(env: NodeEnv, m: Integers) -> Any:
    """The method's own message with zeros in place of its vectors."""
    return put_vectors(env.layout, m.label, parted(m.there, np.zeros(m.size, env.theta0.dtype)))
