"""Counts by which the fleet chooses: what a device tells, and how a node adds up what its children tell.

A device can lie in its counts, so a node keeps them apart until its round is over, and then bounds them. A child counts
with at most HEAVY times the validation samples, per device, that its siblings have in the median: nobody decides for
the fleet by claiming a million. Where a run has a robust rule, those whose counts are unlike the others' do not count:
what is compared is the share of its samples that each candidate gets right, less the mean over candidates, as devices
with harder samples are right less often with all of them.

Without a rule a hospital leaves out such devices of four or more when they settle (`usual_near`), and never so many
that fewer than three remain: sums of two must not leave it (nodes/policy/score_filter.py). It does not when they label:
how sure they are at each threshold differs as much between honest devices as between these and liars. Where sums are
secret or have noise nobody sees single counts, and they are added up as they are.

One or two children have no majority: their counts are added up as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.versions import with_entry
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation.exact import LARGEST, Integers
from edge_sdk.methods.shared.aggregation.gather import expected, with_name

Rows = npt.NDArray[np.float64]
Near = Callable[[Rows, float], npt.NDArray[np.bool_]]
"""Rows (children, k), and a distance that is none -> which of them (children,) are like the others."""
Doubt = Callable[[int], float]
"""Devices whose counts are added up -> standard deviation of the noise in each of the sums."""

MOST_SAMPLES = 2**20
"""Validation samples that a device may count with."""
HEAVY = 3
"""Times the median of its siblings that a child's samples count at most."""
MAJORITY = 3
"""Children with which there is one."""
KEEP = 1.5
"""Times the median distance from the median within which counts are like the others': as in a run with a rule."""


@dataclass(frozen=True)
class Counts:
    """Up: sums over devices.

    Attributes:
        correct: validation samples that each candidate gets right.
        samples: validation samples.
        devices: how many devices have these samples.
    """

    correct: Integers
    samples: int = 0
    devices: int = 0

    def check(self, layout: Layout) -> None:
        if not (0 <= self.samples <= LARGEST and self.devices >= 0):
            raise ValueError(f"{self.samples} samples of {self.devices} devices: both are 0 or more")
        if not ((self.correct >= 0) & (self.correct <= self.samples)).all():
            raise ValueError(f"a count of correct answers is not between 0 and {self.samples}, the samples there are")


def no_doubt(devices: int) -> float:
    """The `Doubt` of counts without noise."""
    return 0.0


def no_counts(size: int) -> Counts:
    """The sum over no devices, of so many candidates."""
    return Counts(np.zeros(size, np.int64))


def of_device(correct: Integers, samples: int) -> Counts:
    """Counts of one device. Without samples it is not among those whose sum is told: the others may be too few."""
    return Counts(correct, samples, int(samples > 0))


def plus(a: Counts, b: Counts) -> Counts:
    """The sum of two."""
    return Counts(a.correct + b.correct, a.samples + b.samples, a.devices + b.devices)


def noted(env: NodeEnv, s: Any, sender: str, message: Any) -> Any:
    """The state after a child's counts; a state with `counts`, `apart` and `heard`.

    Raises:
        PeerError: it sent something else, counts of other candidates, or of more devices than it has.
    """
    m, most = expected(sender, message, Counts), env.sizes.get(sender, 1)
    if m.correct.shape != s.counts.correct.shape:
        raise PeerError(f"{sender} counts {m.correct.size} candidates, there are {s.counts.correct.size}")
    if m.devices > most:
        raise PeerError(f"{sender} counts {m.devices} devices, it has {most}")
    if m.samples and not m.devices:  # nothing would bound them
        raise PeerError(f"{sender} counts {m.samples} validation samples of 0 devices")
    if m.samples > MOST_SAMPLES * most:
        raise PeerError(
            f"{sender} counts {m.samples} validation samples of {most} devices: at most {MOST_SAMPLES} each"
        )
    return replace(s, apart=with_entry(s.apart, sender, m), heard=with_name(s.heard, sender))


def added_up(s: Any, near: Near | None = None) -> Counts:
    """What a node adds up to at the end of its round, of a state as of `noted`. `near`: whose counts; None: all. Who
    has no samples is in no sum: devices of version 0.2 count themselves without."""
    told = {name: m for name, m in sorted(s.apart.items()) if m.samples and m.devices}
    if len(told) >= MAJORITY:
        told = bounded(told)
        told = told if near is None else alike(told, near)
    total: Counts = reduce(plus, told.values(), s.counts)
    return total


def usual_near(rows: Rows, least: float) -> npt.NDArray[np.bool_]:
    """The `Near` of a hospital in a run without a rule: those near the median of all rows, and the MAJORITY nearest."""
    far = np.linalg.norm(rows - np.median(rows, 0), axis=1)
    limit = KEEP * max(least, float(np.median(far)))
    return np.asarray(far <= max(limit, float(np.sort(far)[MAJORITY - 1])))


def bounded(told: Mapping[str, Counts]) -> dict[str, Counts]:
    """Counts of children with no more than HEAVY times the usual number of samples per device; shares stay."""
    usual = float(np.median([m.samples / m.devices for m in told.values()]))
    return {name: shortened(m, max(1, int(HEAVY * usual * m.devices))) for name, m in told.items()}


def alike(told: Mapping[str, Counts], near: Near) -> dict[str, Counts]:
    """Counts of those that are like the others. One sample more or less of each candidate is no difference."""
    rows = np.stack([m.correct / m.samples for m in told.values()])
    usual = float(np.median([m.samples for m in told.values()]))
    kept = near(rows - rows.mean(1, keepdims=True), sqrt(rows.shape[1]) / usual)
    return {name: m for (name, m), is_near in zip(told.items(), kept, strict=True) if is_near}


def shortened(m: Counts, most: int) -> Counts:
    """Counts of at most so many samples."""
    if m.samples <= most:
        return m
    correct = np.array([int(right) * most // m.samples for right in m.correct], np.int64)  # products may have 64 bits
    return replace(m, correct=correct, samples=most)
