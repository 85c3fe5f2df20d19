"""What a device adds to the sums of a phase, as a short vector of bounded length, and what their sums stand for. Pure.

phase      vector of one device, its numbers before it is shortened                                   length at most
scales     log of each feature's standard deviation, within +-LOGS                                       EACH sqrt(F)
means      each feature's mean in units of the fleet's scale, within +-REACH                             EACH sqrt(F)
labels     shares of its validation samples: right / 4 of each weight; wrong, right / 4 of each option       TOGETHER
settling   share that candidates get right on average / 4; of each candidate, the difference to that        TOGETHER

Lengths are constants of this module: public, and nobody who asks can fit them to anybody's data. Logarithms need no
unit, so the same range fits a sensor in g and one in degrees per second; a mean has a unit, which is what the first of
the two phases has found. A vector that is longer is shortened as a whole, so that its direction stays.

What the fleet chooses by are differences between candidates: a mean of all is told coarsely (COARSE), since a choice
does not need it, and shares with little noise in them, since it does. Of an option to label, what is wrong counts
`label_precision / (1 - label_precision)` times as much as what is right, so what is right is told coarsely, too.

Each device counts once, and as SAMPLES validation samples, however many it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.noisy_phases.messages import InScales
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.counting import Counts, no_counts
from edge_sdk.methods.settling.method import Settle
from edge_sdk.methods.settling.self_training import Examine, turns
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.aggregation.exact import split
from edge_sdk.methods.shared.membership.riders import Rider
from edge_sdk.methods.standardising.equations import LIMIT, ROUNDING, UNIT, moments, nothing, slots
from edge_sdk.methods.standardising.messages import AskFeatures, FeatureSums

Floats = npt.NDArray[np.float64]

SCALES, MEANS, LABELS, SETTLING = PHASES = ("scales", "means", "labels", "settling")
LOGS, REACH = 7.0, 8.0
"""Logarithm of a standard deviation, either way: of 1/1100 to 1100; scales that a mean may lie from 0."""
EACH = 3.0
"""Root mean square of the numbers of a device's statistics that are told in full."""
TOGETHER = 0.5
COARSE = 4.0
SAMPLES = 20
"""Validation samples that a device counts as: the usual number of one, so that the fleet's choice knows about how sure
shares of that many are."""


def phase_of(question: Any) -> str:
    """The phase that a question, with riders or without, belongs to; "": it is one of the method's own."""
    if isinstance(question, InScales):
        return MEANS
    while isinstance(question, Rider):
        question = question.message
    kinds = {AskFeatures: SCALES, Examine: LABELS, Settle: SETTLING}
    return kinds.get(type(question), "")


def name_of(question: Any) -> str:
    """The name by which a device knows a phase's question when it is asked again; "": it has none."""
    phase = phase_of(question)
    if phase != LABELS:
        return phase
    while isinstance(question, Rider):
        question = question.message
    return "" if question.round is None else f"{phase} {question.round}"


def count_answers(s: Settling, rounds: int) -> int:
    """Answers with noise of one device to all phases of a run of so many rounds."""
    labels = len(turns(s, rounds)) if s.label_times else 0
    return 1 + labels + (2 if s.statistics else 0)


def size_of(s: Settling, layout: Layout, phase: str) -> int:
    """Numbers of a phase's vector."""
    if phase == LABELS:
        return labelling.count_size(s)
    if phase == SETTLING:
        return len(s.candidates) + 1
    where = slots(layout)
    return 0 if where is None else where[0].size


def length_of(phase: str, size: int) -> float:
    """Length that a device's vector of so many numbers may have."""
    return TOGETHER if phase in (LABELS, SETTLING) else EACH * sqrt(max(1, size))


def blank(s: Settling, layout: Layout, phase: str) -> Counts | FeatureSums:
    """An answer of nothing, as the roles inside take it."""
    if phase == LABELS:
        return no_counts(labelling.count_size(s))
    return no_counts(len(s.candidates)) if phase == SETTLING else nothing(layout)


# A device's vector ----------------------------------------------------------------------------------------------
def vector_of(s: Settling, phase: str, message: Any, scales: Floats) -> Floats:
    """A device's numbers for a phase, before they are shortened; zeros, where it has nothing to say.

    Args:
        message: its `Counts` or `FeatureSums`, of itself alone. scales: of features (F,), in the phase of means.
    """
    if isinstance(message, FeatureSums):
        return feature_vector(message, scales if phase == MEANS else None)
    shares = message.correct / max(1, message.samples)
    return label_vector(s, shares) if phase == LABELS else settling_vector(shares)


def feature_vector(m: FeatureSums, scales: Floats | None) -> Floats:
    """Logarithms of a device's standard deviations (F,), or its means in units of `scales`."""
    if not m.devices:
        return np.zeros(m.high.size // 2)
    mean, square = moments(m.high, m.low, m.devices)
    if scales is not None:
        return np.asarray(np.clip(mean / scales, -REACH, REACH))
    least = np.maximum(np.exp(-LOGS), ROUNDING * np.abs(mean))
    return np.asarray(np.clip(np.log(np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), least)), -LOGS, LOGS))


def label_vector(s: Settling, shares: Floats) -> Floats:
    right, pairs = shares[: len(s.label_weights)], shares[len(s.label_weights) :].reshape(-1, 2)
    return np.concatenate([right / COARSE, pairs[:, 0] - pairs[:, 1], pairs[:, 1] / COARSE])


def settling_vector(shares: Floats) -> Floats:
    mean = shares.mean(keepdims=True)
    return np.concatenate([mean / COARSE, shares - mean])


# What sums stand for --------------------------------------------------------------------------------------------
def counts_of(s: Settling, phase: str, total: Floats, devices: int) -> Counts:
    """The counts that a sum over so many devices stands for; with noise in them, they may be below zero."""
    shares = label_shares(s, total) if phase == LABELS else total[1:] + COARSE * total[0]
    return Counts(np.rint(SAMPLES * shares).astype(np.int64), SAMPLES * devices, devices)


def label_shares(s: Settling, total: Floats) -> Floats:
    right, wrong, sure_right = np.split(total, [len(s.label_weights), len(s.label_weights) + len(labelling.options(s))])
    pairs = np.stack([wrong + COARSE * sure_right, COARSE * sure_right], 1)
    return np.concatenate([COARSE * right, pairs.ravel()])


def scales_of(total: Floats, devices: int, noise: float = 0.0) -> npt.NDArray[np.float32]:
    """Scales of features (F,) by the sum of their logarithms; 1, where there is none.

    Args:
        noise: standard deviation of the noise in each number of the sum.
    """
    logs = total / max(1, devices)
    near = shrunk(logs, logs.mean() if logs.size else 0.0, noise / max(1, devices))
    return np.exp(np.clip(near, -LOGS, LOGS)).astype(np.float32)


def shrunk(values: Floats, centre: float, noise: float) -> Floats:
    """Values, nearer to a centre the more of their spread about it is noise: all the way, where it may be all noise.

    With much noise this errs less than the values as they are, and of sums that are noisy already it costs no epsilon.
    Source: B. Efron, C. Morris, "Stein's Estimation Rule and Its Competitors", JASA 68 (1973), empirical Bayes.
    """
    spread = float(np.mean((values - centre) ** 2)) if values.size else 0.0
    share = max(0.0, 1 - noise**2 / spread) if spread else 1.0
    return np.asarray(centre + share * (values - centre))


def features_of(total: Floats, devices: int, scales: npt.NDArray[np.float32], noise: float = 0.0) -> FeatureSums:
    """The sums of one device that has the fleet's scales and its means in units of these. `noise`: of `scales_of`."""
    scale, means = scales.astype(np.float64), shrunk(total / max(1, devices), 0.0, noise / max(1, devices))
    means = np.clip(scale * np.clip(means, -REACH, REACH), -LIMIT, LIMIT)
    return FeatureSums(*split(np.concatenate([means, UNIT * (means**2 + scale**2)])), 1)


def coarse_of(phase: str) -> float:
    """By how much the noise of a count that the fleet's choice looks at is larger than that of a number told."""
    return COARSE if phase == LABELS else 1.0


def checked_scales(values: Sequence[float] | npt.NDArray[np.float32], size: int) -> Floats:
    """Scales of so many features. Raises ValueError for another number."""
    if len(values) != size:
        raise ValueError(f"scales of {len(values)} features, the model standardises {size}")
    return np.asarray(values, np.float64)
