"""Exports of Apple Health, `export.zip` or the `export.xml` in it: minutes of quantities, labels of workouts and sleep.

Quantities come whenever a watch, a telephone or a person notes them. Here each minute is a row: of what is measured
(heart rate) the mean of a minute, and lines between minutes that lie at most LONGEST_MIN apart; of what adds up (steps,
energy) the amount in each minute, none where there is no record. Minutes without the quantity that was measured most
often are a gap. Several sources of one quantity (watch and telephone) count the same steps: the one with the most
records is taken, or with `--by sourceName` each makes a trace of its own. So it is with stages of sleep; time in bed is
none. Routes, electrocardiograms, and what the file says of the person stay out.

The file is read as it comes, and nothing of it is kept but numbers. Its document type, in which some versions made
mistakes, is passed over, so no entity can be declared. Source: Apple, HealthKit, HKQuantityTypeIdentifier and
HKCategoryValueSleepAnalysis.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.actigraph_files import UNREADABLE
from edge_sdk.replay.imports.recording import Recorded, recorded_arrays
from edge_sdk.replay.labels.intervals import label_rows

HEALTH = (".zip", ".xml")
FOLDER, ROOT = "apple_health_export/", b"<HealthData"
BY = "sourceName"
QUANTITY, WORKOUT = "HKQuantityTypeIdentifier", "HKWorkoutActivityType"
SLEEP, STAGE = "HKCategoryTypeIdentifierSleepAnalysis", "HKCategoryValueSleepAnalysis"
STAGES = {
    **{"Awake": "awake", "Asleep": "asleep", "AsleepUnspecified": "asleep"},
    **{"AsleepCore": "asleep_core", "AsleepDeep": "asleep_deep", "AsleepREM": "asleep_rem"},
}
"""Value of a record of sleep -> its label; until 2022 there was "Asleep" alone."""
MOST_STAGES, MOST_WORKOUTS, MOST_RECORDS, MOST_CELLS = 10**6, 10**6, 5 * 10**7, 5 * 10**8
"""Of sleep, of what was done and of quantities that are kept at most, and numbers in the table that is made of these: a
packed file may have far more records than bytes."""
ADDS_UP = {
    *("step_count", "distance_walking_running", "distance_cycling", "distance_swimming", "distance_wheelchair"),
    *("active_energy_burned", "basal_energy_burned", "flights_climbed", "push_count", "swimming_stroke_count"),
    *(
        "apple_exercise_time",
        "apple_move_time",
        "apple_stand_time",
        "distance_downhill_snow_sports",
        "number_of_times_fallen",
    ),
}
"""Quantities of which records have amounts; of all others they have measurements."""
MINUTE, LONGEST_MIN, LONGEST_YEARS = 60, 10, 60
COVERED = 0.5
"""Share of the rows below which a quantity that nobody has named is left out, for its sake no row is."""
CHUNK, LONGEST_ELEMENT, DEEPEST, MOST_BYTES, MOST_SERIES = 1 << 16, 1 << 20, 32, 2**35, 2000

Key = tuple[str, str, str]
"""Channel, source and unit of some records."""
Span = tuple[float, float, str]
"""From when to when (s since 1970), and what was done or how somebody slept."""
Floats = npt.NDArray[np.float64]
Minutes = npt.NDArray[np.int64]


def is_health_export(path: Path) -> bool:
    """Is it an export of Apple Health? By the folder in an archive, or the root of a text."""
    try:
        if path.suffix.lower() == ".xml":
            with open(path, "rb") as file:
                return b"HealthData" in file.read(4096)
        with ZipFile(path) as archive:
            return any(name.startswith(FOLDER) for name in archive.namelist())
    except (OSError, *UNREADABLE):
        return False


def read_health_export(path: Path, name: str, said: Stated, repairs: Repairs) -> Iterator[Recorded]:
    """Reads the quantities of one person.

    Args:
        name: of the device, where sources are not told apart.

    Raises:
        UsageError: it is damaged or no such export, has no quantities, or one that was named is not there.
    """
    if said.by not in (None, BY):
        raise UsageError(f"{path}: --by {said.by}; of an export of Apple Health expected {BY}")
    found = HealthRecords(path)
    found.read()
    if not found.series:
        raise UsageError(f"{path}: no records of quantities ({QUANTITY}...) with a time, a unit and a number")
    sources = sorted({source for _, source, _ in found.series}) if said.by else [""]
    for source in sources:
        own = {key: parts for key, parts in found.series.items() if not said.by or key[1] == source}
        one = Repairs(path, said.strict)
        one.notes, one.found = list(repairs.notes), dict(repairs.found)
        yield minutes_of(
            path, source or name, choose_series(path, own, said, one), found.labels(source, one), said, one
        )


class HealthRecords:
    """The records of an export while it is read.

    Attributes:
        series: channel, source and unit -> when its records begin and end (s since 1970), and their values.
        workouts: from when to when what was done. sleep: source -> from when to when which stage was.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.depth, self.fed, self.kept = path, 0, 0, Counter[str]()
        self.series: dict[Key, tuple[array[float], array[float], array[float]]] = {}
        self.workouts: list[Span] = []
        self.sleep: dict[str, list[Span]] = {}

    def read(self) -> None:
        """Reads the file."""
        parser = expat.ParserCreate("UTF-8")
        parser.buffer_text, parser.ordered_attributes = True, False
        parser.StartElementHandler, parser.EndElementHandler = self.begin, self.end
        try:
            with open_export(self.path) as file:
                for part in from_root(self.path, file):
                    self.fed += len(part)
                    parser.Parse(part, False)
                    if self.fed - max(0, parser.CurrentByteIndex) > LONGEST_ELEMENT:
                        raise UsageError(f"{self.path}: an element of more than {LONGEST_ELEMENT} bytes")
                    if self.fed > MOST_BYTES:
                        raise UsageError(f"{self.path}: more than {MOST_BYTES} bytes of records")
                parser.Parse(b"", True)
        except (expat.ExpatError, OSError, *UNREADABLE) as error:
            raise UsageError(f"{self.path}: damaged, or no export of Apple Health: {error}") from error

    def begin(self, element: str, told: dict[str, str]) -> None:
        """Takes a record or a workout; those within another element are there a second time."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UsageError(f"{self.path}: elements in each other, {DEEPEST} deep")
        if self.depth != 2:
            return
        if element == "Record" and told.get("type", "").startswith(QUANTITY):
            self.take(told)
        elif element == "Record" and told.get("type") == SLEEP:
            self.take_stage(told)
        elif element == "Workout":
            began, ended = seconds_of(told.get("startDate")), seconds_of(told.get("endDate"))
            done = snake(told.get("workoutActivityType", "").removeprefix(WORKOUT))
            if done and began < ended:
                self.count("workouts", MOST_WORKOUTS)
                self.workouts.append((began, ended, done))

    def end(self, element: str) -> None:
        self.depth -= 1

    def count(self, what: str, most: int) -> None:
        """Counts one more of these. Raises UsageError if they are too many."""
        self.kept[what] += 1
        if self.kept[what] > most:
            raise UsageError(f"{self.path}: more than {most} {what}")

    def take(self, told: Mapping[str, str]) -> None:
        """Takes a record of a quantity, if it has a time and a number."""
        channel, began, ended = (
            snake(told["type"].removeprefix(QUANTITY)),
            *map(seconds_of, (told.get("startDate"), told.get("endDate"))),
        )
        try:
            value = float(told.get("value", ""))
        except ValueError:
            return
        if not channel or not np.isfinite(value) or not began <= ended:  # also of a time that is none
            return
        key = channel, told.get("sourceName", "")[:200], told.get("unit", "")[:40]
        if key not in self.series and len(self.series) >= MOST_SERIES:
            raise UsageError(f"{self.path}: more than {MOST_SERIES} kinds of records, sources and units")
        self.count("records of quantities", MOST_RECORDS)
        for numbers, number in zip(
            self.series.setdefault(key, (array("d"), array("d"), array("d"))), (began, ended, value), strict=True
        ):
            numbers.append(number)

    def take_stage(self, told: Mapping[str, str]) -> None:
        """Takes a record of sleep, if it has a time and a stage."""
        began, ended = seconds_of(told.get("startDate")), seconds_of(told.get("endDate"))
        stage = STAGES.get(told.get("value", "").removeprefix(STAGE))
        if stage is None or not began < ended:
            return
        self.count("records of sleep", MOST_STAGES)
        self.sleep.setdefault(told.get("sourceName", "")[:200], []).append((began, ended, stage))

    def labels(self, source: str, repairs: Repairs) -> list[Span]:
        """What is known of one source, or of all ("": stages of sleep are by the one with the most records); what was
        done counts more than how somebody slept, and comes later."""
        most = max(sorted(self.sleep), key=lambda name: len(self.sleep[name]), default="")
        if not source and len(self.sleep) > 1:
            others = sum(map(len, self.sleep.values())) - len(self.sleep[most])
            repairs.note(f"sleep: stages of {most}; {others} records of other sources left out (--by {BY}: each)")
        return [*sorted(self.sleep.get(source or most, ())), *sorted(self.workouts)]


@contextmanager
def open_export(path: Path) -> Iterator[IO[bytes]]:
    """The text of an export, as it stands or in its archive."""
    if path.suffix.lower() == ".xml":
        with open(path, "rb") as file:
            yield file
        return
    with ZipFile(path) as archive:
        names = [
            name for name in archive.namelist() if re.fullmatch(rf"{FOLDER}[^/]+\.xml", name) and "_cda" not in name
        ]
        if len(names) != 1:
            raise UsageError(f"{path}: {', '.join(names[:4]) or 'no text'} in {FOLDER}; expected export.xml")
        with archive.open(names[0]) as file:
            yield file


def from_root(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The parts of a text from its root on. Raises UsageError if it has none that is Apple's."""
    head = b""
    while (at := head.find(ROOT)) < 0:
        part = file.read(CHUNK)
        head += part
        if not part or len(head) > LONGEST_ELEMENT:
            raise UsageError(f"{path}: no {ROOT.decode()}> in it; expected an export of Apple Health")
    yield head[at:]
    while part := file.read(CHUNK):
        yield part


def seconds_of(text: str | None) -> float:
    """Seconds since 1970 of "2024-04-30 15:13:30 +0200"; NaN where it is no time."""
    try:
        return datetime.fromisoformat(f"{(text or '')[:19]}{(text or '')[20:]}").timestamp()
    except (ValueError, OverflowError):
        return float("nan")


def snake(text: str) -> str:
    """`heart_rate` of "HeartRate"; "" of what is no such word."""
    return (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()
        if re.fullmatch(r"\w{1,80}", text, re.ASCII)
        else ""
    )


# Minutes --------------------------------------------------------------------------------------------------------
def choose_series(
    path: Path, series: Mapping[Key, Sequence[Any]], said: Stated, repairs: Repairs
) -> dict[str, tuple[str, Floats, Floats, Floats]]:
    """Channel -> unit, begins, ends and values of the source and unit with the most records.

    Raises:
        UsageError: a channel that was named is not there.
    """
    found: dict[str, tuple[str, Floats, Floats, Floats]] = {}
    for channel in sorted({key[0] for key in series}):
        own = sorted((key for key in series if key[0] == channel), key=lambda key: (-len(series[key][0]), key))
        began, ended, values = (np.array(numbers, np.float64) for numbers in series[own[0]])
        found[channel] = own[0][2], began, ended, values
        if others := own[1:]:
            count = sum(len(series[key][0]) for key in others)
            more = "" if said.by else f" (--by {BY}: a trace of each source)"
            repairs.note(f"{channel}: {count} records of other sources or units left out{more}")
    if unknown := [name for name in said.channels or () if name not in found]:
        raise UsageError(f"{path}: no channel {unknown[0]!r} among {', '.join(found)}")
    return {name: found[name] for name in said.channels or found}


def minutes_of(
    path: Path,
    name: str,
    series: Mapping[str, tuple[str, Floats, Floats, Floats]],
    labels: Sequence[Span],
    said: Stated,
    repairs: Repairs,
) -> Recorded:
    """The rows of one device."""
    begins = min(float(began.min()) for _, began, _, _ in series.values())
    ends = max(float(ended.max()) for _, _, ended, _ in series.values())
    first, last = int(begins // MINUTE), int(ends // MINUTE)
    if last - first > LONGEST_YEARS * 366 * 1440:
        raise UsageError(
            f"{path}: records from {begins:.0f} to {ends:.0f} (s since 1970); expected {LONGEST_YEARS} years at most"
        )
    measured = {channel: means(*each[1:]) for channel, each in series.items() if channel not in ADDS_UP}
    most = max(measured, key=lambda channel: len(measured[channel][0]), default=None)
    rows = np.arange(first, last + 1) if most is None else measured[most][0]
    covered = {channel: np.isin(rows, minutes).mean() for channel, (minutes, _) in measured.items()}
    scarce = [channel for channel, share in covered.items() if said.channels is None and share < COVERED]
    if scarce:
        repairs.note(f"{', '.join(scarce)} left out, known for less than half of the minutes (--channels names them)")
    kept = [channel for channel in series if channel not in scarce]
    if len(kept) * len(rows) > MOST_CELLS:
        raise UsageError(f"{path}: {len(rows)} minutes of {len(kept)} channels; name fewer with --channels")
    repairs.note(
        f"a row each minute: means of what is measured (lines over up to {LONGEST_MIN} min), amounts of what adds up"
    )
    units = {channel: series[channel][0] + "/min" * (channel in ADDS_UP) for channel in kept}
    starts = rows.astype(np.float64) * MINUTE
    columns = [
        amounts(starts, *series[channel][1:]) if channel in ADDS_UP else at_rows(rows, *measured[channel])
        for channel in kept
    ]
    found = recorded_arrays(path, name, Stated(), time=starts, values=np.stack(columns, 1), channels=kept, units=units)
    found.repairs = repairs
    label_rows(found.rows, labels)
    return found


def means(began: Floats, ended: Floats, values: Floats) -> tuple[Minutes, Floats]:
    """Minutes since 1970, in order, and the means of the measurements in them, by the middle of their time. Between two
    that are few minutes apart there are those on the line, and none elsewhere: so these are no more than LONGEST_MIN
    times the records, however many years lie between them."""
    there, which = np.unique(((began + ended) / 2 // MINUTE).astype(np.int64), return_inverse=True)
    mean = np.bincount(which, values) / np.bincount(which)
    gaps = np.diff(there)
    steps = np.append(np.where(gaps <= LONGEST_MIN, gaps, 1), 1)
    minutes = np.repeat(there, steps) + np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
    return minutes, np.interp(minutes, there, mean)


def at_rows(rows: Minutes, minutes: Minutes, values: Floats) -> Floats:
    """Values of some minutes at those of all rows; NaN where there is none."""
    place = np.minimum(np.searchsorted(minutes, rows), len(minutes) - 1)
    return np.where(minutes[place] == rows, values[place], np.nan)


def amounts(starts: Floats, began: Floats, ended: Floats, values: Floats) -> Floats:
    """The amount in each minute, by its start, of amounts that are spread evenly over their time, a second at least."""
    lasts = np.maximum(ended - began, 1.0)
    times = np.concatenate([began, began + lasts])
    order = np.argsort(times, kind="stable")
    slope = np.cumsum(np.concatenate([values / lasts, -values / lasts])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times[order]))])
    found: Floats = np.interp(starts + MINUTE, times[order], total) - np.interp(starts, times[order], total)
    return np.maximum(np.round(found, 6), 0.0)
