"""Energy that a stretch of work takes: from a counter, from a sensor of power, else from the profile's model.

    counter   sys/class/powercap/intel-rapl:N/energy_uj   microjoules of one processor package; wraps round
              sys/class/hwmon/hwmon*/energyN_input        microjoules
    power     sys/bus/i2c/drivers/ina3221x/*/iio:device*/in_power0_input  milliwatts of a Jetson's whole board
              sys/class/hwmon/hwmon*/power1_input         microwatts, e.g. of an INA219 in the supply line
              sys/class/power_supply/*/power_now          microwatts out of a battery that is not charged
    model     the profile's idle and busy watts

The first that is there and may be read is taken, and the result names it: a package's joules are not a board's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from edge_sdk.hardware.boards.linux_files import list_folders, read_number, read_text
from edge_sdk.hardware.boards.profile import BoardProfile

INTERVAL = 0.05
"""Seconds between two readings of a sensor of power."""


@dataclass(frozen=True)
class EnergyCounter:
    """A counter of joules. `wrap` is where it begins again at 0, in joules; None: it does not."""

    file: Path
    scale: float
    wrap: float | None

    def read(self) -> float | None:
        """Joules so far."""
        return read_number(self.file, self.scale)

    def measure(self, before: float, after: float) -> float | None:
        """Joules between two readings; None where the counter went back and nobody knows how far it goes."""
        if after >= before:
            return after - before
        return after + self.wrap - before if self.wrap else None


@dataclass(frozen=True)
class PowerSensor:
    """A file with the power that is drawn now."""

    file: Path
    scale: float

    def read(self) -> float | None:
        """Watts now, without a sign: some drivers tell discharge as a negative number."""
        watts = read_number(self.file, self.scale)
        return None if watts is None else abs(watts)


@dataclass(frozen=True)
class Energy:
    """Joules of a stretch of work.

    Attributes:
        joules: None where nothing tells.
        source: "measured: ..." with the file, "modelled: ..." with the profile, or "unknown: ..." with the reason.
    """

    joules: float | None
    source: str


def find_counters(root: Path = Path("/")) -> list[EnergyCounter]:
    """Finds counters of energy that may be read: all processor packages, else a counter of hwmon."""
    found = []
    for zone in list_folders(root / "sys/class/powercap", "intel-rapl:[0-9]*"):
        if zone.name.count(":") == 1 and (read_text(zone / "name") or "").startswith("package"):
            wrap = read_number(zone / "max_energy_range_uj", 1e-6)
            found.append(EnergyCounter(zone / "energy_uj", 1e-6, wrap))
    readable = [counter for counter in found if counter.read() is not None]
    if found and len(readable) == len(found):
        return readable
    for chip in list_folders(root / "sys/class/hwmon", "hwmon*"):
        counter = EnergyCounter(chip / "energy1_input", 1e-6, None)
        if counter.read() is not None:
            return [counter]
    return []


def find_sensor(root: Path = Path("/")) -> PowerSensor | None:
    """Finds a sensor of the power that the machine draws."""
    candidates = [
        PowerSensor(file, 1e-3)
        for file in sorted((root / "sys/bus/i2c/drivers/ina3221x").glob("*/iio:device*/in_power0_input"))
    ]
    candidates += [
        PowerSensor(chip / "power1_input", 1e-6) for chip in list_folders(root / "sys/class/hwmon", "hwmon*")
    ]
    for supply in list_folders(root / "sys/class/power_supply", "*"):
        if read_text(supply / "type") == "Battery" and read_text(supply / "status") == "Discharging":
            candidates.append(PowerSensor(supply / "power_now", 1e-6))
    return next((sensor for sensor in candidates if sensor.read() is not None), None)


class EnergyMeter:
    """Measures or models the energy of what happens inside it, as a context manager; then `energy` has it.

    Args:
        profile: of the board, for the model.
        threads: busy cores, for the model.
        root: directory below which Linux's files are read.
        clock: seconds; tests give their own.
    """

    def __init__(
        self,
        profile: BoardProfile,
        threads: int = 1,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.profile, self.threads, self.clock = profile, threads, clock
        self.counters, self.sensor = find_counters(root), find_sensor(root)
        self.energy = Energy(None, "unknown: nothing was measured yet")

    def __enter__(self) -> EnergyMeter:
        self.began = self.clock()
        self.before = [counter.read() for counter in self.counters]
        self.readings: list[tuple[float, float]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="auscult-energy", daemon=True)
        if self.sensor and not self.counters:
            self.note()
            self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
            self.note()
        self.energy = self.count() or self.integrate() or self.model(self.clock() - self.began)

    def watch(self) -> None:
        while not self.over.wait(INTERVAL):
            self.note()

    def note(self) -> None:
        watts = self.sensor.read() if self.sensor else None
        if watts is not None:
            self.readings.append((self.clock(), watts))

    def count(self) -> Energy | None:
        """Joules of the counters; None where there are none or one of them failed on the way."""
        parts = []
        for counter, before in zip(self.counters, self.before, strict=True):
            after = counter.read()
            if before is None or after is None or (part := counter.measure(before, after)) is None:
                return None
            parts.append(part)
        files = ", ".join(str(counter.file) for counter in self.counters)
        return Energy(sum(parts), f"measured: {files}") if parts else None

    def integrate(self) -> Energy | None:
        """Joules of the readings of the sensor, by the trapezoid rule."""
        if self.sensor is None or len(self.readings) < 2:
            return None
        pairs = zip(self.readings, self.readings[1:], strict=False)
        joules = sum((late - early) * (low + high) / 2 for (early, low), (late, high) in pairs)
        return Energy(joules, f"measured: {self.sensor.file}")

    def model(self, seconds: float) -> Energy:
        """Joules after the profile's straight line."""
        return model_energy(self.profile, self.threads, seconds)


def model_energy(profile: BoardProfile, threads: int, seconds: float) -> Energy:
    """Energy of the whole board after its profile's model.

    Args:
        profile: of the board.
        threads: busy cores.
        seconds: of work.
    """
    watts = profile.estimate_watts(threads)
    if watts is None:
        return Energy(None, f"unknown: no file of this machine tells, and {profile.name} has no figures of power")
    return Energy(watts * seconds, f"modelled: {watts:.1f} W of {profile.name}, from its idle and busy power")
