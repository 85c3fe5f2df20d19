"""Noisy uploads: clipped, rotated, rounded within a bound, and noise added in the integers.

No noise of one round is carried into the next: error feedback would take back what clipping and noise have done, and
noise that is taken back no longer hides the others of its sum (privacy.py). Numbers beyond the integers' range are
clipped, which happens to noise once in 1e22 numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.discrete import draw_gaussian
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.integers.vectors.labels import joined, label_type, take_label, take_vectors
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.privacy import Noise, noise_of
from edge_sdk.methods.integers.vectors.rounded import UPWARD, Rounding, upward
from edge_sdk.methods.integers.vectors.uploads import IntegersPlan, Scale, anchor_of
from edge_sdk.methods.shared.aggregation.exact import has_diverged
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum

Whole = npt.NDArray[np.int64]


def noise_for(env: NodeEnv, plan: IntegersPlan, size: int) -> Noise:
    """The noise of uploads of that size in this run."""
    assert plan.privacy is not None  # only such runs come here
    return noise_of(plan.privacy, env.rounds + plan.phases, plan.settings.bits, plan.settings.rotate, size)


def write_noisy(
    env: NodeEnv, plan: IntegersPlan, reference: Vector, version: int, scale: Scale, message: Sum | Nobody
) -> tuple[Integers, float]:
    """An upload as noisy integers, and the share of its movement that is in it: it counts with weight 1, and says
    nothing beside its vector.

    What has diverged counts as no movement at all, with the same noise. So does `Nobody`: whether a device has anything
    to send follows from what it holds.

    Raises:
        PeerError: the question asks for another scale than the run's clip and noise come to.
        UsageError: this node was given no entropy.
    """
    ((kind, paths),) = plan.traffic.up.items()
    if isinstance(message, Nobody):
        label = label_type(kind, paths)(weight=1.0, count=1, scores={})
        return noisy_integers(env, plan, version, scale, label, paths, np.zeros(reference.size))[0], 0.0
    message = message.weighing(1.0)
    vectors = take_vectors(env.layout, message, paths)
    label, there = take_label(message, paths), tuple(sorted(vectors))
    near = anchor_of(env, plan.traffic, env.me, label, there, reference)
    moved = joined(vectors).astype(np.float64) - near
    return noisy_integers(env, plan, version, scale, label, there, moved)


def noisy_integers(
    env: NodeEnv, plan: IntegersPlan, version: int, scale: Scale, label: Any, there: tuple[str, ...], moved: Vector
) -> tuple[Integers, float]:
    """A movement as noisy integers, and the share of it that is in them."""
    noise = noise_for(env, plan, moved.size)
    if (scale.bits, scale.half) != (noise.bits, noise.half):
        raise PeerError(
            f"the question asks for {scale.bits} bits up to {scale.half:.6g}, the noise of this run needs "
            f"{noise.bits} up to {noise.half:.6g}"
        )
    how = upward(env, plan.settings, version, scale.bits)
    packed, share = packed_with_noise(env, noise, how, moved, env.random(version, UPWARD))
    return Integers(quiet(label), there, moved.size, noise.bits, noise.half, 1, 0.0, packed), share


def packed_with_noise(
    env: NodeEnv, noise: Noise, how: Rounding, moved: Vector, random: np.random.Generator
) -> tuple[rounding.Octets, float]:
    """A vector shortened, rounded and with noise, as packed integers, and the share of it that is in them.

    What is no vector of finite numbers counts as zeros.

    Raises:
        UsageError: this node was given no entropy.
    """
    if env.entropy is None:
        raise UsageError(f"{env.me}: noise needs a source of entropy")
    share = 0.0 if has_diverged(moved) else share_of(moved, noise.clip)
    x = share * moved if share else np.zeros(moved.size)
    whole = round_within(how, noise, x, random)
    whole += draw_gaussian(noise.variance, whole.size, env.entropy)
    top = rounding.largest(noise.bits)
    return rounding.pack((np.clip(whole, -top, top) + top).astype(np.uint32), noise.bits), share


def share_of(x: Vector, length: float) -> float:
    """The largest share of a vector that is not longer than that; 1: all of it."""
    found = float(np.linalg.norm(x))
    return length / found if found > length else 1.0


def round_within(how: Rounding, noise: Noise, x: Vector, random: np.random.Generator) -> Whole:
    """Steps (n,) of a clipped vector: rounded up or down at random, again and again until they are short enough.

    The bound holds for every upload, not only on average: privacy rests on it. Clipping single numbers comes first,
    and makes nothing longer.
    """
    turned = np.clip(how.turned(x) / noise.step, -noise.reach, noise.reach)
    while True:
        steps: Whole = np.floor(turned + random.random(turned.size)).astype(np.int64)
        if float(steps @ steps) <= noise.bound**2:
            return steps


def quiet(label: Any) -> Any:
    """An upload's label without scores."""
    return replace(label, scores={})


def check_noisy(m: Integers, sender: str) -> None:
    """Raises PeerError for noisy integers that count with another weight than their number, or bring scores."""
    if m.label.weight != m.terms or m.label.count != m.terms or m.label.scores:
        raise PeerError(f"{sender} sent {m.terms} noisy uploads that count {m.label.weight:g}, or with scores")
