"""What is known of a board: figures, each with the place where it was read. TOML files in `profiles/` hold them.

    name = "Raspberry Pi 4 Model B"
    architecture = "aarch64"
    models = ["Raspberry Pi 4 Model B"]      # how /proc/device-tree/model begins
    [figures.busy_watts]
    value = 6.4
    source = "..."

A figure that nobody has found is `value = "unknown"`, and its source says where one looked. Nothing is made up for it:
what would need that figure says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.errors import UsageError

FOLDER = Path(__file__).parent / "profiles"
UNKNOWN = "unknown"
FIGURES = {
    "cores": "processor cores",
    "clock_mhz": "highest clock, MHz",
    "memory_mb": "memory of the smallest variant that is sold, MiB",
    "idle_watts": "the whole board, doing nothing, W",
    "busy_watts": "the whole board, all cores busy, W",
    "throttle_celsius": "temperature of the processor from which it is slowed down, degrees Celsius",
    "gflops": "double-precision Gflop/s of High-Performance Linpack on all cores",
    "battery_wh": "energy of a full battery, Wh; 0: there is none",
}
"""Names of all figures, and what they are. Every profile has every one of them."""


@dataclass(frozen=True)
class Figure:
    """A number and where it comes from; `value` is None where it is unknown."""

    value: float | None
    source: str


@dataclass(frozen=True)
class BoardProfile:
    """What is known of a board.

    Attributes:
        key: name of its file, as `--board` takes it.
        name: for people.
        architecture: as `uname -m` prints it.
        processor: its cores, in words.
        models: how `/proc/device-tree/model` begins on it; none: it is never detected by that.
        figures: name -> figure, all of FIGURES.
    """

    key: str
    name: str
    architecture: str
    processor: str
    models: tuple[str, ...]
    figures: Mapping[str, Figure]

    def value_of(self, figure: str) -> float | None:
        """Value of a figure, None where it is unknown."""
        return self.figures[figure].value

    def estimate_watts(self, threads: int) -> float | None:
        """Power of the whole board while `threads` of its cores are busy, in W.

        The model is a straight line between the two figures, idle + (busy - idle) * threads / cores. It knows neither
        clocks nor radios. None where one of its figures is unknown.
        """
        idle, busy, cores = (self.value_of(name) for name in ("idle_watts", "busy_watts", "cores"))
        if idle is None or busy is None or not cores:
            return None
        return idle + (busy - idle) * min(threads, cores) / cores


def load_profiles(folder: Path = FOLDER) -> dict[str, BoardProfile]:
    """Loads all profiles of a folder: key -> profile, sorted.

    Raises:
        UsageError: a file is not a profile; it names the file, the key and what is wanted.
    """
    return {file.stem: read_profile(file) for file in sorted(folder.glob("*.toml"))}


def find_profile(key: str) -> BoardProfile:
    """Finds a profile by its key.

    Raises:
        UsageError: there is none of that name; it lists those that there are.
    """
    profiles = load_profiles()
    if key not in profiles:
        raise UsageError(f"board = {key!r}; there are profiles of {', '.join(profiles)}")
    return profiles[key]


def read_profile(file: Path) -> BoardProfile:
    """Reads and checks one profile."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: no profile of a board: {error}") from error
    name, architecture, processor = (read_word(file, table, key) for key in ("name", "architecture", "processor"))
    models = table.get("models")
    if not isinstance(models, list) or not all(isinstance(model, str) and model for model in models):
        raise UsageError(f"{file}: models = {models!r}, expected a list of names")
    figures = read_figures(file, table.get("figures"))
    return BoardProfile(file.stem, name, architecture, processor, tuple(models), figures)


def read_word(file: Path, table: Mapping[str, object], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{file}: {key} = {value!r}, expected a text")
    return value


def read_figures(file: Path, table: object) -> dict[str, Figure]:
    """Reads and checks the figures of a profile."""
    if not isinstance(table, dict) or set(table) != set(FIGURES):
        wrong = ", ".join(sorted(set(table) ^ set(FIGURES))) if isinstance(table, dict) else "no table"
        raise UsageError(f"{file}: figures: expected exactly {', '.join(FIGURES)}; missing or too many: {wrong}")
    return {name: read_figure(file, name, entry) for name, entry in table.items()}


def read_figure(file: Path, name: str, entry: object) -> Figure:
    """Reads and checks one figure."""
    value, source = (entry.get("value"), entry.get("source")) if isinstance(entry, dict) else (None, None)
    if not isinstance(source, str) or not source:
        raise UsageError(f"{file}: figures.{name}: a source is missing; say where the value was read")
    if value == UNKNOWN:
        return Figure(None, source)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise UsageError(f'{file}: figures.{name}: value = {value!r}, expected a number of 0 or more, or "unknown"')
    return Figure(float(value), source)
