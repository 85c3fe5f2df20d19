"""The time at which a recorded sample arrives in a replay. Pure: every function takes `now`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from edge_sdk.data.traces.windows import Windows
from edge_sdk.errors import UsageError


@dataclass(frozen=True)
class ReplayClock:
    """Maps the time of a run to the time of a recording. What lies before `start` counts as recorded earlier.

    Attributes:
        began: when the run began, in the caller's clock, seconds.
        speed: recorded seconds per second of the run; inf: as fast as possible, all is there at once.
        start: recorded second at which the replay begins.
        duration: recorded seconds that are replayed; inf: to the end.
        loop: after `duration`, begin again at `start`; the last instant of a lap is the first of the next.
    """

    began: float = 0.0
    speed: float = 1.0
    start: float = 0.0
    duration: float = inf
    loop: bool = False

    def __post_init__(self) -> None:
        for name in ("speed", "duration"):
            if not getattr(self, name) > 0:
                raise UsageError(f"replay: {name} = {getattr(self, name)}; a number above 0 is needed")
        if not (isfinite(self.start) and self.start >= 0):
            raise UsageError(f"replay: start = {self.start}; recorded seconds, 0 or more, are needed")
        if self.loop and not (isfinite(self.speed) and isfinite(self.duration)):
            raise UsageError(f"replay: loop needs a finite speed and duration, got {self.speed} and {self.duration}")

    def due(self, now: float) -> float:
        """The recorded second up to which samples are there at `now`; in a loop, in the present lap."""
        played = self._played(now)
        return self.start + (played % self.duration if self.loop else min(played, self.duration))

    def lap(self, now: float) -> int:
        """Counts how often the loop has begun again."""
        return int(self._played(now) // self.duration) if self.loop else 0

    def wait_for(self, recorded: float, now: float) -> float:
        """Seconds of the run until that recorded second is there; 0: it is; inf: it will never be."""
        if recorded <= self.due(now):
            return 0.0
        end = self.start + self.duration
        if recorded > end or (self.loop and recorded == end):
            return inf
        if not isfinite(self.speed):
            return max(0.0, self.began - now)
        lap = self.lap(now) * self.duration if self.loop else 0.0
        return self.began + (lap + recorded - self.start) / self.speed - now

    def _played(self, now: float) -> float:
        """Recorded seconds since `began`, laps added up. Nothing has been played before."""
        if now < self.began:
            return 0.0
        return (now - self.began) * self.speed if isfinite(self.speed) else inf


def select_arrived(windows: Windows, recorded: float, since: float = -inf) -> Windows:
    """Selects the windows whose last sample came after second `since` and not after second `recorded` of the trace."""
    return windows.take((windows.end > since) & (windows.end <= recorded))
