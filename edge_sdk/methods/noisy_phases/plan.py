"""What does not change in a run whose phases add noise: settings, and the noise that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

from edge_sdk.algebra.secure_aggregation.rounding import MOST
from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.privacy import Noise, Privacy, noise_of
from edge_sdk.methods.noisy_phases.contents import (
    LABELS,
    MEANS,
    PHASES,
    SAMPLES,
    SCALES,
    SETTLING,
    coarse_of,
    count_answers,
    length_of,
    size_of,
)
from edge_sdk.methods.noisy_phases.messages import NoisySums
from edge_sdk.methods.settling.counting import Doubt
from edge_sdk.methods.settling.settings import Settling


@dataclass(frozen=True)
class PhasesPlan:
    """Settings of phases with noise.

    Attributes:
        settling: of the run.
        privacy: of the run.
        rounds: of the run: each device gives one noisy answer in each of them, beside those to phases.
    """

    settling: Settling
    privacy: Privacy
    rounds: int

    @property
    def answers(self) -> int:
        """Answers with noise of one device in the whole run; all of them cost the same."""
        return self.rounds + count_answers(self.settling, self.rounds)

    def phases(self) -> tuple[str, ...]:
        """Phases that this run has."""
        here = {SCALES: self.settling.statistics, MEANS: self.settling.statistics, SETTLING: True}
        return tuple(phase for phase in PHASES if here.get(phase, self.settling.label_times > 0))

    def noise(self, size: int, phase: str) -> Noise:
        """The noise of a phase's vector of so many numbers. Raises UsageError where there are too few bits for it."""
        return noise_of(replace(self.privacy, clip=length_of(phase, size)), self.answers, MOST, False, size)

    def noise_for(self, env: NodeEnv, phase: str) -> Noise:
        return self.noise(size_of(self.settling, env.layout, phase), phase)

    def doubt(self, phase: str, devices: int) -> float:
        """Standard deviation of the noise in a count of LABELS or SETTLING over so many devices, in the units of
        `contents.counts_of`."""
        noise = self.noise(size_of(self.settling, EMPTY_LAYOUT, phase), phase)
        return SAMPLES * coarse_of(phase) * noise.step * sqrt(devices * noise.variance)

    def doubts(self) -> tuple[Doubt, Doubt]:
        """`doubt` of settling, and of self-training."""
        return partial(self.doubt, SETTLING), partial(self.doubt, LABELS)

    def check(self, env: NodeEnv, sender: str, phase: str, m: NoisySums) -> None:
        """Raises PeerError for a sum of another phase, scale or size than is asked for, or of more devices than there
        are."""
        if not phase or m.phase != phase:
            raise PeerError(f"{sender} sent a sum of {m.phase!r}, asked for {phase or 'none'!r}")
        if m.terms > env.sizes.get(sender, 1):
            raise PeerError(f"{sender} sent a sum of {m.terms} devices, it has {env.sizes.get(sender, 1)}")
        noise = self.noise_for(env, phase)
        if m.terms and (m.size, m.bits, m.half) != (noise.size, noise.bits, noise.half):
            raise PeerError(
                f"{sender} sent {m.size} numbers of {m.bits} bits up to {m.half:.6g}, the noise of this run needs "
                f"{noise.size} of {noise.bits} up to {noise.half:.6g}"
            )
