"""What a round of training costs on a board, from a few measured steps: pure arithmetic, without clock or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

WORTH = 1.3
"""How much faster each doubling of threads must be to be chosen: a device has other things to do with its cores."""
SAME = 1.05
"""Batches whose time for a sample differs by less are equally fast; the smallest of them takes the least memory."""
REST_MB = 30.0
"""MiB that a device has beside its model: connection, store, buffers (73 MB measured as a step, 96 MB as a device)."""
HEADERS = 2500
"""Bytes of a round beside its two bodies: question, acknowledgements, topics (measured: 0.9 to 2.5 kB each way)."""


@dataclass(frozen=True)
class StepCost:
    """Measured cost of a training step.

    Attributes:
        threads: of onnxruntime.  batch: samples.
        seconds: mean of a step.
        peak_mb: of the process that made it, MiB.
        joules: of a step; None where nothing tells. source: what told it.
    """

    threads: int
    batch: int
    seconds: float
    peak_mb: float
    joules: float | None = None
    source: str = ""

    @property
    def per_sample(self) -> float:
        """Seconds for one sample."""
        return self.seconds / self.batch


@dataclass(frozen=True)
class RoundForecast:
    """What one round is expected to cost a device.

    Attributes:
        steps: training steps.  seconds: of them.
        joules: None where unknown.
        bytes_up, bytes_down: of a method that sends the whole model once in each direction.
        memory_mb: peak of the device's process, MiB.
    """

    steps: int
    seconds: float
    joules: float | None
    bytes_up: int
    bytes_down: int
    memory_mb: float


def choose_step(costs: Sequence[StepCost]) -> StepCost:
    """Chooses threads and batch: the fastest for each sample, where more threads and more memory must be worth it.

    Args:
        costs: measured ones, at least one; those that do not fit have been left out.
    """
    best = {t: choose_batch([c for c in costs if c.threads == t]) for t in sorted({c.threads for c in costs})}
    chosen, *more = best.values()
    for cost in more:
        if chosen.per_sample / cost.per_sample >= WORTH ** log2(cost.threads / chosen.threads):
            chosen = cost
    return chosen


def choose_batch(costs: Sequence[StepCost]) -> StepCost:
    """The smallest batch that is as fast for each sample as any."""
    fastest = min(cost.per_sample for cost in costs)
    return min((c for c in costs if c.per_sample <= fastest * SAME), key=lambda cost: cost.batch)


def forecast_round(cost: StepCost, *, samples: int, epochs: int, parameters: int, sample_bytes: int) -> RoundForecast:
    """Forecasts one round.

    Args:
        cost: of the chosen step.
        samples: that the device has.  epochs: over them in one round.
        parameters: of the model, float32.
        sample_bytes: of one sample in memory.
    """
    steps = epochs * ceil(samples / cost.batch)
    body = 4 * parameters + HEADERS
    return RoundForecast(
        steps=steps,
        seconds=steps * cost.seconds,
        joules=None if cost.joules is None else steps * cost.joules,
        bytes_up=body,
        bytes_down=body,
        memory_mb=cost.peak_mb + REST_MB + samples * sample_bytes / 2**20,
    )


def floor_mb(file_bytes: int, parameters: int) -> float:
    """Memory that a model needs at the very least, MiB: its file, and theta, gradient and personal theta in float32."""
    return (file_bytes + 3 * 4 * parameters) / 2**20


def expect_peak(costs: Sequence[StepCost], batch: int) -> float:
    """Peak of a larger batch, MiB: the straight line through the two largest that were measured.

    One measured batch alone says nothing of the slope; its peak is then taken as it is.
    """
    if len(costs) < 2:
        return costs[-1].peak_mb
    one, two = costs[-2:]
    return two.peak_mb + max(0.0, two.peak_mb - one.peak_mb) / (two.batch - one.batch) * (batch - two.batch)
