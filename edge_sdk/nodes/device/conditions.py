"""Conditions of a machine that a training budget asks for, made of two looks at Linux's files; and joules of today."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from logging import Logger
from pathlib import Path
from typing import Protocol

from edge_sdk.atomic import write_text
from edge_sdk.hardware.boards.energy import find_counters, find_sensor
from edge_sdk.hardware.boards.profile import BoardProfile
from edge_sdk.hardware.boards.telemetry import Telemetry
from edge_sdk.hardware.probe import cpu_seconds
from edge_sdk.nodes.policy.budget import Conditions

BUSY_OVER = 2.0
"""Seconds between two looks from which the share of others can be told."""


class Clock(Protocol):
    """What tells the time; in a replay of many days it is a virtual one."""

    def time(self) -> float:
        """Seconds since 1970, as the wall clock has them."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that does not go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait so long."""
        ...


class OthersShare:
    """Share of the processor that other processes use, between two looks."""

    def __init__(self) -> None:
        self.before: tuple[float, float, float] | None = None
        self.share: float | None = None

    def measure(self, telemetry: Telemetry) -> float | None:
        """The share since the look before; that of before where too little time has passed. None: nothing tells."""
        if telemetry.cpu_seconds is None:
            return None
        now = (*telemetry.cpu_seconds, cpu_seconds())
        if self.before is None:
            self.before = now
        busy, total, own = (after - before for after, before in zip(now, self.before, strict=True))
        if total >= BUSY_OVER:
            self.share, self.before = min(1.0, max(0.0, (busy - own) / total)), now
        return self.share


def find_conditions(
    telemetry: Telemetry, busy: float | None, metered_links: Sequence[str], joules: float | None, at: float
) -> Conditions:
    """The conditions of this moment. `joules`: of today. `at`: seconds since 1970."""
    local = datetime.fromtimestamp(at)
    return Conditions(
        battery=telemetry.battery,
        charging=telemetry.charging,
        celsius=telemetry.hottest,
        busy=busy,
        metered=telemetry.is_metered(metered_links),
        joules=joules,
        minute=60 * local.hour + local.minute,
    )


# Joules ---------------------------------------------------------------------------------------------------------
@dataclass
class Joules:
    """Energy that training takes: from a counter, else from a sensor of power, else from watts that are known.

    Attributes:
        watts: of the machine while it trains, where no file tells; None: nobody knows.
        last: what the counters said at the latest look.
    """

    read_counters: Callable[[], list[float | None]]
    wraps: Sequence[Callable[[float, float], float | None]]
    read_power: Callable[[], float | None]
    watts: float | None
    last: list[float | None]

    def count(self, seconds: float) -> float | None:
        """Joules of a stretch of so many seconds that ends now; None where nothing tells."""
        if self.wraps:
            before, self.last = self.last, self.read_counters()
            parts = [
                None if a is None or b is None else wrap(b, a)
                for wrap, a, b in zip(self.wraps, self.last, before, strict=True)
            ]
            return None if None in parts else sum(part for part in parts if part is not None)
        watts = self.read_power()
        watts = self.watts if watts is None else watts
        return None if watts is None else watts * seconds

    def skip(self) -> None:
        """Leave out what the counters have counted until now: nothing was trained."""
        self.last = self.read_counters()


def find_joules(root: Path, profile: BoardProfile | None, threads: int, watts: float) -> Joules:
    """The best that this machine has. `watts`: of the budget, where no file tells; 0: then the profile's model."""
    counters, sensor = find_counters(root), find_sensor(root)
    known = watts or (None if profile is None else profile.estimate_watts(threads))

    def read() -> list[float | None]:
        return [counter.read() for counter in counters]

    wraps = [counter.measure for counter in counters]
    return Joules(read, wraps, (lambda: None) if sensor is None else sensor.read, known, read())


class DayLedger:
    """Joules that training has taken today, in a file, so that a restart does not begin a new day.

    Args:
        path: of the file.
        at: seconds since 1970, now.
    """

    def __init__(self, path: Path, at: float, log: Logger):
        self.path, self.log = path, log
        self.day, self.joules = day_of(at), 0.0
        self.saved = 0.0
        if path.exists():
            self.load()

    def load(self) -> None:
        try:
            table = json.loads(self.path.read_text(encoding="utf-8"))
            if table["day"] == self.day:
                self.joules = self.saved = max(0.0, float(table["joules"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.log.warning("%s: cannot be read (%s); today's joules are counted anew", self.path, error)

    def add(self, joules: float, at: float) -> None:
        self.turn(at)
        self.joules += joules

    def turn(self, at: float) -> None:
        """Begin a new day, if it is one."""
        if (day := day_of(at)) != self.day:
            self.day, self.joules = day, 0.0

    def save(self) -> None:
        if self.joules == self.saved:
            return
        try:
            write_text(self.path, json.dumps({"day": self.day, "joules": self.joules}))
        except OSError as error:
            self.log.warning("%s: today's joules are not saved: %s", self.path, error)
        self.saved = self.joules


def day_of(at: float) -> str:
    """The local day."""
    return datetime.fromtimestamp(at).date().isoformat()
