"""What sensors give, written down as traces: CSV files that `auscult replay` reads, so that what happened is replayed.

    DIR/NAME.csv          time,CHANNEL ...,activity        a line for each sample; NAME-2.csv after the clock went back
    DIR/NAME.availability.csv   battery, charger, link ... a line every minute, for a replay of days
    DIR/telemetry.jsonl   heat, clocks, load ...           the same minute with all that Linux tells
    DIR/sensors.json      unit, rate and text of each sensor

A block of whole lines is one write, so a process that is killed leaves whole lines. A sample that a trace cannot hold
(a value that is no number, a time that is not later than the one before) is left out and counted.
"""

from __future__ import annotations

import csv
import io
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from edge_sdk.errors import AuscultError, UsageError, say_reason
from edge_sdk.hardware.boards.telemetry import Telemetry, read_telemetry
from edge_sdk.hardware.sensors.availability import AvailabilityFiles
from edge_sdk.hardware.sensors.sensor import (
    Reading,
    Sensor,
    SensorEnded,
    SensorError,
    check_units,
    checked_values,
    opened,
)

WAIT = 0.2
"""Seconds that a sensor is waited for at once, so that the end of a recording does not wait long."""
CLOCK_WENT_BACK = 1.0
"""Seconds; a time earlier by more than this is another clock, and a trace of its own."""
MINUTE = 60.0
UNLABELLED = "unlabelled"
LIVE = 60.0
"""Seconds; a sensor that is further from now has a clock of its own: a recording that is played back."""


class Labels:
    """What is being done, from when on. Set by one thread, read by others.

    Args:
        first: what is done until something else is said.
    """

    def __init__(self, first: str = UNLABELLED) -> None:
        self.said = [(-math.inf, self.check(first))]

    def say(self, label: str, at: float) -> None:
        """From `at` (seconds since 1970) on, `label` is done."""
        self.said.append((max(at, self.said[-1][0]), self.check(label)))

    def find(self, at: float) -> str:
        """What was being done at a time."""
        return next(label for began, label in reversed(self.said) if began <= at)

    @staticmethod
    def check(label: str) -> str:
        if not label.strip() or not label.isprintable() or len(label) > 200:
            raise UsageError(f"label = {label!r:.80}; expected the name of what is done, 1 to 200 characters")
        return label.strip()


@dataclass
class TraceFile:
    """A sensor's trace while it is written.

    Attributes:
        samples: that were written.  left_out: that a trace cannot hold.
    """

    folder: Path
    name: str
    channels: Sequence[str]
    labels: Labels
    samples: int = 0
    left_out: int = 0
    last: float = -math.inf
    parts: int = 0
    file: io.FileIO | None = field(default=None, repr=False)

    def write(self, readings: Sequence[Reading]) -> None:
        """Writes readings as one block of lines, in a new file where the clock went back.

        Raises:
            SensorError: one of them has not a value for each channel, and none of them is written.
        """
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        for reading in readings:
            checked_values(self.name, reading.values, self.channels)
        for reading in readings:
            if self.last - reading.time > CLOCK_WENT_BACK:
                self.flush(text)
                self.close()
                self.last = -math.inf
            stamp = f"{reading.time:.6f}"
            if float(stamp) <= self.last or not all(map(math.isfinite, reading.values)):
                self.left_out += 1
                continue
            rows.writerow([stamp, *(f"{value:.9g}" for value in reading.values), self.labels.find(reading.time)])
            self.samples, self.last = self.samples + 1, float(stamp)
        self.flush(text)

    def flush(self, text: io.StringIO) -> None:
        data = text.getvalue().encode()
        text.seek(0)
        text.truncate()
        if data:
            file = self.open()
            with naming(self.folder / f"{self.file_name}.csv"):
                file.write(data)

    @property
    def file_name(self) -> str:
        """Name of the file that is written now, without its suffix."""
        return self.name if self.parts <= 1 else f"{self.name}-{self.parts}"

    def open(self) -> io.FileIO:
        if self.file is None:
            self.parts += 1
            self.file = io.FileIO(self.folder / f"{self.file_name}.csv", "x")
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(["time", *self.channels, "activity"])
            self.file.write(header.getvalue().encode())
        return self.file

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


class Recorder:
    """Writes what several sensors give, each on a thread of its own, until they are over or somebody stops it.

    Args:
        sensors: text -> sensor, as `make_sensor` makes it of the text.
        folder: new or empty.
        labels: what is being done.
        root: directory below which Linux's files are read.
    """

    def __init__(
        self,
        sensors: Mapping[str, Sensor],
        folder: Path,
        labels: Labels,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        for sensor in sensors.values():
            check_channels(sensor)
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder}: not empty; name a new directory, or an empty one")
        self.sensors, self.folder, self.root, self.clock = dict(sensors), folder, root, clock
        names = name_files(list(sensors.values()))
        self.files = {
            text: TraceFile(folder, name, sensor.channels, labels)
            for (text, sensor), name in zip(sensors.items(), names, strict=True)
        }
        self.availability = AvailabilityFiles(folder)
        self.stopping = threading.Event()
        self.faults: list[Exception] = []

    def now(self) -> float:
        """The time of what is being recorded: now, or the latest sample's where a recording is played back.

        Before the first sample it is -inf: nobody can say a label for less than all that comes.
        """
        at, latest = self.clock(), max(file.last for file in self.files.values())
        return at if abs(latest - at) < LIVE else latest

    def run(self, seconds: float = math.inf) -> None:
        """Records for so many seconds, or until all sensors are over, or `stopping` is set.

        Raises:
            SensorError: a sensor could not be opened, and nothing is written; or it failed, and what there was is.
        """
        with ExitStack() as stack:
            for text, sensor in self.sensors.items():
                with blaming(text):
                    stack.enter_context(opened(sensor))
            self.folder.mkdir(parents=True, exist_ok=True)
            self.describe()
            self.note_telemetry()
            self.follow_all(seconds)
        if self.faults:
            raise self.faults[0]

    def follow_all(self, seconds: float) -> None:
        """Starts a thread for each sensor, and waits until one has failed, all are over, or the time is up."""
        threads = [
            threading.Thread(target=self.follow, args=(text,), name=f"record-{file.name}", daemon=True)
            for text, file in self.files.items()
        ]
        for thread in threads:
            thread.start()
        until, note = time.monotonic() + seconds, time.monotonic()
        try:
            while any(thread.is_alive() for thread in threads) and time.monotonic() < until and not self.faults:
                if time.monotonic() - note >= MINUTE:
                    self.note_telemetry()
                    note = time.monotonic()
                elif any(file.parts and file.file_name not in self.availability.last for file in self.files.values()):
                    self.note_availability(read_telemetry(self.root))
                if self.stopping.wait(min(WAIT, max(0.0, until - time.monotonic()))):
                    break
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()
            self.note_availability(read_telemetry(self.root))

    def follow(self, text: str) -> None:
        """Writes what one sensor gives, to its end."""
        sensor, file = self.sensors[text], self.files[text]
        try:
            with blaming(text):
                while not self.stopping.is_set():
                    file.write(sensor.read(WAIT))
        except SensorEnded:
            pass
        except Exception as error:  # whatever ends this thread, `run` tells it
            self.faults.append(error)
        finally:
            file.close()

    def describe(self) -> None:
        """Writes what a trace itself cannot say of its sensor."""
        table = {
            file.name: {"sensor": text, "channels": s.channels, "units": s.units, "rate_hz": s.rate_hz}
            for (text, file), s in zip(self.files.items(), self.sensors.values(), strict=True)
        }
        (self.folder / "sensors.json").write_text(json.dumps(table, indent=2) + "\n")

    def note_telemetry(self) -> None:
        told = read_telemetry(self.root)
        path = self.folder / "telemetry.jsonl"
        with naming(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": self.clock(), **asdict(told)}) + "\n")
        self.note_availability(told)

    def note_availability(self, told: Telemetry) -> None:
        """Adds a line beside each trace that has begun."""
        for trace in self.files.values():
            if trace.parts:
                with naming(self.folder / f"{trace.file_name}.availability.csv"):
                    self.availability.note(trace.file_name, self.now(), told)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Lets an error of the system name the file: a full disk says only that there is no space."""
    try:
        yield
    except OSError as error:
        raise SensorError(f"{path}: cannot be written: {say_reason(error)}; what is in it is whole lines") from error


@contextmanager
def blaming(text: str) -> Iterator[None]:
    """Lets whatever a sensor raises name it."""
    try:
        yield
    except AuscultError:
        raise
    except Exception as error:
        raise SensorError(f"{text}: {type(error).__name__}: {error}") from error


def check_channels(sensor: Sensor) -> None:
    """Checks that a trace can have these columns, and that each has a unit."""
    check_units(sensor)
    names = sensor.channels
    if not names or len(set(names)) < len(names) or {"time", "activity"} & set(names):
        raise UsageError(f"{sensor.name}: channels {names}; a trace has each name once, and neither time nor activity")


def name_files(sensors: Sequence[Sensor]) -> list[str]:
    """Names of files, of the sensors' names; two of one name get numbers."""
    plain = ["".join(c if c.isalnum() or c in "-_." else "-" for c in sensor.name) or "sensor" for sensor in sensors]
    return [f"{name}_{n}" if plain.count(name) > 1 else name for n, name in enumerate(plain, 1)]
