"""The rate at which a sensor's samples come, by the times that the application gives them."""

from __future__ import annotations

from edge_sdk.data.live.resample import GAP, TOLERANCE

SECONDS, SPANS = 10.0, 3
"""Samples are counted over such spans of time; in so many of them, one after the other, they must come too fast or too
slowly before that counts: what was buffered while nobody read comes in one go, perhaps with times of its arrival."""
TOO_FAST = TOO_SLOW = 1.5
"""Times the rate that was said, and the share of it that a slow one goes below: windows would be that much shorter or
longer. Samples get lost on their way, but none come from nowhere: only what is too fast cannot pass."""
SLOWEST = 4.0
"""Times that a block may take longer than was said before the sensor is thought to have been off."""


class RateMeter:
    """Samples per second, counted from the first block after the sensor was off.

    Only the beginnings of blocks are looked at: where an application gives one time for many samples, the other times
    are made of the rate that was said.

    Args:
        said_hz: what the application says of the sensor, or the bundle's rate.

    Attributes:
        rate: of the latest span; None: too few samples have come to tell.
        began: of the first sample of the present span, seconds since 1970.
        pace: 1: those of the latest span came too fast; -1: too slowly. spans: so many in a row. since: of the first.
    """

    def __init__(self, said_hz: float) -> None:
        self.said = said_hz
        self.rate: float | None = None
        self.began, self.count = 0.0, 0
        self.pace, self.spans, self.since = 0, 0, 0.0
        self.latest, self.size = 0.0, 0  # the block that came last

    def push(self, first: float, last: float, size: int) -> None:
        """Takes the times of a block's first and last sample, and how many it has."""
        if not self.began <= self.latest <= first <= self.latest + SLOWEST * self.size / self.said + GAP:
            self.began, self.count, self.rate, self.pace, self.spans = first, 0, None, 0, 0
        elif first - self.began >= SECONDS:
            self.rate = self.count / (first - self.began)
            self.note_pace(int(self.rate > TOO_FAST * self.said) - int(self.rate < self.said / TOO_SLOW))
            self.began, self.count = first, 0
        if last - first > SLOWEST * size / self.said + GAP:  # the sensor was off within the block
            self.latest, self.size = float("inf"), 0
            return
        self.latest, self.size, self.count = first, size, self.count + size

    def note_pace(self, pace: int) -> None:
        """A span is over in which samples came too fast (1), too slowly (-1), or neither."""
        if pace != self.pace:
            self.pace, self.spans, self.since = pace, 0, self.began
        self.spans += 1

    @property
    def too_fast(self) -> bool:
        """Can what comes not be samples of the rate that was said?"""
        return self.pace > 0 and self.spans >= SPANS

    @property
    def too_slow(self) -> bool:
        """Have so few come, for as long, that as many as a window has are longer in coming?"""
        return self.pace < 0 and self.spans >= SPANS

    def describe(self) -> str:
        """What is wrong with the rate, and what to do; "": nothing, or too few samples have come to tell."""
        if self.rate is None or abs(self.rate / self.said - 1) <= TOLERANCE:
            return ""
        lost = "" if self.rate > self.said else "some are lost, or the sensor has another rate: "
        return (
            f"samples come at {self.rate:.4g} Hz by their times, where {self.said:g} Hz is expected; {lost}say what "
            f"the sensor gives with Recording(sensor_hz={self.rate:.3g}), and it is resampled"
        )
