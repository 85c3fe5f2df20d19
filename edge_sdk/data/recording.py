"""Settings of what a device records, apart from the store: a device that observes nothing has these, and no store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.errors import UsageError

Key = bytes | str | Path | None


@dataclass(frozen=True)
class StoreLimits:
    """Bounds of a sample store.

    Attributes:
        megabytes: on the disk, all in all.
        days: windows that ended longer ago are deleted.
        held_out: share of the recordings that models are judged by; fixed when the store is made.

    >>> StoreLimits(megabytes=16.0).days
    365.0
    """

    megabytes: float = 64.0
    days: float = 365.0
    held_out: float = 0.25

    def __post_init__(self) -> None:
        if not 2 <= self.megabytes < 1e6:
            raise UsageError(f"store: megabytes = {self.megabytes}, at least 2 are needed")
        if not self.days > 0:
            raise UsageError(f"store: days = {self.days}, expected a number above 0")
        if not 0 <= self.held_out < 1:
            raise UsageError(f"store: held_out = {self.held_out}, expected a share from 0 to below 1")


@dataclass(frozen=True)
class Recording:
    """Settings of what a device records.

    Attributes:
        sensor_hz: rate of what `observe` is given; None: the bundle's.
        limits: of the store.
        least: labelled windows to train on, without which the device takes part in no run.
        tells_labels: its hospital is told how many windows were given a label, in steps of 20, so that runs can begin
            when there are enough new ones. See docs/privacy.md.
        key: 32 bytes, or a file of them, under which windows are encrypted on the disk; None: they are not.

    >>> from edge_sdk import StoreLimits
    >>> Recording(sensor_hz=100.0, limits=StoreLimits(megabytes=16.0), least=30).sensor_hz
    100.0
    """

    sensor_hz: float | None = None
    limits: StoreLimits = field(default_factory=StoreLimits)
    key: Key = None
    least: int = 60
    tells_labels: bool = False

    def __post_init__(self) -> None:
        if self.sensor_hz is not None and not 0 < self.sensor_hz <= 1e6:
            raise UsageError(f"recording: sensor_hz = {self.sensor_hz}, expected samples per second, above 0")
        if self.least < 1:
            raise UsageError(f"recording: least = {self.least}, expected a number of windows, 1 or more")
