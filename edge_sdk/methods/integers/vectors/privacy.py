"""Settings of differential privacy: the [run.privacy] table, the noise that follows from it, and which methods can.

What is protected is a device: all that it ever holds, over the whole run. Two runs are compared that differ in one
device, whose uploads are nothing but noise in the other one. Each of its uploads has a bounded length, whatever it was
made of, so nothing else of the method matters for the guarantee, and what follows from the sums has it too.

Each device adds so much noise that `cohort` of them together have enough for one sum. The noise is a function of
nothing: it comes from the operating system's entropy, and is saved with the message that it is in.

What devices remember (FedSLR's gamma_i and p_i, FedDyn's g_k, SCAFFOLD's c_i) changes nothing of that: an upload is as
short whatever it was made of, and what the aggregator keeps of sums follows from these. But no device may remember the
noise that it has drawn: noise that comes back in a later upload no longer hides the others of its first sum. So memory
moves with the upload as it was clipped, before noise (`Method.shortened`), and the aggregator's mean of it differs from
what devices remember by the noise of all sums so far, which the method has to bear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, isfinite, sqrt
from typing import Any

from edge_sdk.algebra.secure_aggregation import rotation
from edge_sdk.algebra.secure_aggregation.discrete import LARGEST_VARIANCE
from edge_sdk.algebra.secure_aggregation.privacy import multiplier_of, rho_of_sum
from edge_sdk.algebra.secure_aggregation.rounding import MOST, WIDEST, largest, width
from edge_sdk.contract.method import Method
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import UsageError
from edge_sdk.methods.integers.vectors.settings import Uploads

NOISY: Mapping[str, Any] = {"bits": MOST, "down_bits": 8, "feedback": False}
"""Uploads of a run with noise where [run.uploads] does not say. Noise is spread over many steps: with few of them the
device's rounding would make vectors longer, and more noise would have to hide that."""
SCORES = OFF, CLEAR = "off", "clear"
TAILS = 10.0
"""Standard deviations of noise for which there is room; a number beyond is clipped, once in 1e22."""
SPREAD = 6.0
"""Root mean squares of a rotated vector's block for which there is room."""
LEAST_VARIANCE = 4
"""Of a device's noise, in steps squared: with less a sum of discrete Gaussians is not nearly one."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Settings of a run whose sums are noisy.

    Attributes:
        clip: length that a device's upload may have, as a difference to the model that it was shown.
        epsilon: of the whole run; 0: as `noise` comes to.
        delta: beside epsilon.
        noise: standard deviation of a sum's noise, in clips; 0: as `epsilon` asks.
        cohort: least number of devices of a sum that a hospital passes on; so many together have enough noise. 1: each
            device by itself has.
        scores: "off": devices send none, they are told to their own application only; "clear": they send them as in
            other runs, and epsilon says nothing about them.
    """

    clip: float
    epsilon: float = 0.0
    delta: float = 1e-5
    noise: float = 0.0
    cohort: int = 2
    scores: str = OFF

    def __post_init__(self) -> None:
        if not (isfinite(self.clip) and self.clip > 0):
            raise UsageError(f"clip = {self.clip}: the length that an upload may have, finite and above 0")
        if not 0 < self.delta < 1:
            raise UsageError(f"delta = {self.delta}: it lies between 0 and 1")
        for name in ("epsilon", "noise"):
            if not (isfinite(value := getattr(self, name)) and value >= 0):
                raise UsageError(f"{name} = {value}: it is finite, and 0 or more")
        if (self.epsilon > 0) == (self.noise > 0):
            raise UsageError(f"epsilon = {self.epsilon} and noise = {self.noise}: one of them, above 0")
        if self.cohort < 1:
            raise UsageError(f"cohort = {self.cohort}: at least 1 device")
        if self.scores not in SCORES:
            raise UsageError(f"scores = {self.scores!r}, expected {' or '.join(SCORES)}")

    def multiplier(self, rounds: int) -> float:
        """Standard deviation of a sum's noise, in clips."""
        return self.noise or multiplier_of(self.epsilon, self.delta, rounds)


@dataclass(frozen=True)
class Noise:
    """What a device does to its upload.

    Attributes:
        clip: length to which it is clipped.
        step: size of one step of the integers.
        bits: of an integer. reach: largest number before noise, in steps.
        bound: length of the rounded vector, in steps.
        variance: of a device's noise, in steps squared.
        size: numbers of an upload.
    """

    clip: float
    step: float
    bits: int
    reach: int
    bound: float
    variance: int
    size: int

    @property
    def half(self) -> float:
        """Largest number that an integer stands for."""
        return self.step * largest(self.bits)

    def rho(self, terms: int) -> float:
        """rho of a sum of so many uploads."""
        return rho_of_sum(self.bound, self.variance, terms, self.size)


@cache
def noise_of(p: Privacy, rounds: int, bits: int, rotates: bool, size: int) -> Noise:
    """The noise of a run's uploads: the finest steps for which the bits suffice.

    Raises:
        UsageError: there are too few bits.
    """
    low, high = 0.0, p.clip
    if not fits(p, rounds, bits, rotates, size, high):
        raise UsageError(f"bits = {bits}: too few for this noise on {size} numbers; at most {MOST}, or less noise")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle and fits(p, rounds, bits, rotates, size, middle) else (middle, high)
    return noise_at(p, rounds, bits, rotates, size, high)


def fits(p: Privacy, rounds: int, bits: int, rotates: bool, size: int, step: float) -> bool:
    n = noise_at(p, rounds, bits, rotates, size, step)
    return n.variance <= LARGEST_VARIANCE and n.reach + TAILS * sqrt(n.variance) <= largest(bits)


def noise_at(p: Privacy, rounds: int, bits: int, rotates: bool, size: int, step: float) -> Noise:
    """The noise with steps of that size. Rounding makes a vector longer, and the noise is to hide that too."""
    bound = rounded_length(p.clip, step, size) / step
    variance = max(LEAST_VARIANCE, ceil((p.multiplier(rounds) * bound) ** 2 / p.cohort))
    largest_number = p.clip * min(1.0, SPREAD / sqrt(rotation.block_size(size))) if rotates else p.clip
    return Noise(p.clip, step, bits, ceil(largest_number / step), bound, variance, size)


def rounded_length(clip: float, step: float, size: int) -> float:
    """Length that a clipped vector may have after rounding; another draw is made where it is longer (Kairouz et al.,
    eq. 5 with beta = exp(-1/2), so that at least 0.39 of the draws are short enough)."""
    usual = clip**2 + step**2 * size / 4 + step * (clip + step * sqrt(size) / 2)
    return min(sqrt(usual), clip + step * sqrt(size))


def check_privacy(
    method: Method, method_settings: Any, traffic: VectorTraffic, p: Privacy, uploads: Uploads, opens: bool
) -> None:
    """Raises UsageError for a run in which noise does not give what it promises; the sentence says why."""
    why = ""
    mirrored = method.mirrored or method.plain_sums(method_settings, "aggregator", "noise")
    if mirrored and method.shortened is None:
        why = "devices keep vectors that move with their uploads, and it does not say how if these are shortened"
    if len(traffic.up) != 1 or any(len(paths) != 1 for paths in traffic.up.values()):
        why = "an upload is of several vectors, whose lengths no one clip bounds"
    if not traffic.adds:
        why = "its hospitals keep each device's latest upload, so one upload is in the sums of many rounds"
    if why:
        raise UsageError(f"run.privacy with method {method.name}: {why}")
    if opens and not why:
        raise UsageError("run.privacy with run.robust: a rule looks at single uploads, and only sums have enough noise")
    if uploads.feedback:
        raise UsageError("run.uploads.feedback with run.privacy: it would take back what clipping and noise have done")
    if width(uploads.bits, p.cohort) > WIDEST:
        raise UsageError(f"cohort = {p.cohort}: sums of {uploads.bits} bits of so many devices do not fit 32 bits")
