"""A folder that an Empatica E4 wrote: a CSV file for each sensor, with its start and its rate in the first two lines.

`tags.csv` has the moments at which the button was pressed. What lies between the first and the second of them, the
third and the fourth and so on, has the label `tagged`. Accelerations are in 64ths of g, and are written as g.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.recording import Recorded, RecordedSignal, join_signals
from edge_sdk.replay.labels.intervals import label_rows

SENSORS = {"ACC": ("ax", "ay", "az"), "BVP": ("bvp",), "EDA": ("eda",), "HR": ("hr",), "TEMP": ("temp",)}
UNITS = {"ax": "g", "ay": "g", "az": "g", "bvp": "", "eda": "uS", "hr": "bpm", "temp": "Cel"}
STEPS = 64.0
"""Of the converter of accelerations for one g."""
TAGGED = "tagged"


def is_empatica(folder: Path) -> bool:
    """Did an E4 write this folder?"""
    if not (folder / "ACC.csv").is_file():
        return False
    with open(folder / "ACC.csv", encoding="utf-8", errors="replace") as file:
        return file.readline().strip()[:1].isdigit()


def read_empatica(folder: Path, name: str, repairs: Repairs) -> Recorded:
    """Reads a folder.

    Raises:
        UsageError: a file is not as they are written; it names the file.
    """
    signals, start = list[RecordedSignal](), ""
    for sensor, channels in SENSORS.items():
        file = folder / f"{sensor}.csv"
        if file.is_file():
            signal = read_sensor(file, channels)
            signals.append(signal)
            start = start or repr(float(signal.time[0]))
    rows = join_signals(signals, repairs)
    if any("ax" in signal.names for signal in signals):
        repairs.note("accelerations in 64ths of g are written as g")
    others = [file.stem for file in sorted(folder.glob("*.csv")) if file.stem not in (*SENSORS, "tags")]
    if others:
        repairs.note(f"{', '.join(others)} left out, of which there is no row for each moment")
    tags = read_tags(folder / "tags.csv")
    if len(tags) % 2:
        repairs.note(f"{len(tags)} tags, an odd number: what they are of is not known, so nothing is labelled by them")
        tags = tags[:0]
    label_rows(rows, [(float(a), float(b), TAGGED) for a, b in zip(tags[::2], tags[1::2], strict=True)])
    return Recorded(name, folder, rows, repairs, start, dated=True, units=UNITS)


def read_sensor(file: Path, channels: tuple[str, ...]) -> RecordedSignal:
    """Reads the file of a sensor."""
    try:
        numbers = np.loadtxt(file, delimiter=",", ndmin=2)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}; expected start, rate and rows of {len(channels)} numbers") from error
    if numbers.shape[1] != len(channels) or len(numbers) < 4 or not numbers[0, 0] > 1e8 or not 0 < numbers[1, 0] < 1e5:
        said = f"{len(numbers)} rows of {numbers.shape[1]} numbers"
        raise UsageError(f"{file}: {said}; expected its start (since 1970), its rate and {len(channels)} a row")
    values = numbers[2:] / (STEPS if channels[0] == "ax" else 1.0)
    return RecordedSignal(channels, numbers[0, 0] + np.arange(len(values)) / numbers[1, 0], values)


def read_tags(file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Moments at which the button was pressed, seconds since 1970, rising."""
    try:
        lines = file.read_text().split()
        return np.unique(np.array(lines, np.float64))
    except OSError:
        return np.zeros(0)
    except ValueError as error:
        raise UsageError(f"{file}: {error}; expected a moment in each line, seconds since 1970") from error
