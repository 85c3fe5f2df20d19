"""Wrist traces that nobody recorded, for a demo and tests without a download.

They have what makes the recorded ones hard: persons differ in rhythm, strength, posture, how the sensor sits and which
activities there are; bouts of one person differ from each other; the sensor is coarse. `motions` has the movements and
where their numbers are from. Same seed, same bytes; device k is the same however many devices there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Protocol

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.replay.traces.motions import ACTIVITIES, RATE, Array, Motion, Person, Rng, sense, smooth

STEP = 3.0 / 63.0  # 6 bits over +-1.5 g, as the sensor of the recorded wrist traces (about 1/21 g)
RANGE = 1.5


@dataclass(frozen=True)
class Summary:
    """The trace that was written for one device.

    Attributes:
        device: its name, and the file's.
        samples: how many.
        seconds: of recording.
        activities: name -> number of recordings.
    """

    device: str
    samples: int
    seconds: float
    activities: dict[str, int]


WriteTrace = Callable[[Path, int, int, float], Summary]
"""(file, number of the device from 1 on, seed, minutes) -> what has been written."""


class Generator(Protocol):
    """A function that writes a trace for each device, and beside them that they were generated."""

    def __call__(
        self, directory: str | Path, devices: int = ..., seed: int = ..., minutes: float = ..., *, overwrite: bool = ...
    ) -> tuple[Summary, ...]:
        """Writes the traces.

        Args:
            directory: made where it is missing.
            devices: how many persons (12).
            seed: of all that is random (7).
            minutes: recorded per person in the mean; single persons have from a third to twice of it.
            overwrite: write into a directory that has files already (those of the same name are replaced).

        Raises:
            UsageError: numbers out of range, or the directory is not empty.
        """
        ...


MARK = "GENERATED.txt"
"""A file beside generated traces that says so; a replay repeats it in its report."""


def generator(stem: str, usual: float = 13.0) -> Callable[[WriteTrace], Generator]:
    """What makes a generator of a function that writes the trace of one device.

    Args:
        stem: of the files: STEM-01.csv and so on.
        usual: minutes per person, where nothing is said.
    """

    def of(write: WriteTrace) -> Generator:
        def write_all(
            directory: str | Path, devices: int = 12, seed: int = 7, minutes: float = usual, *, overwrite: bool = False
        ) -> tuple[Summary, ...]:
            check_sizes(devices, seed, minutes)
            folder = open_folder(Path(directory), overwrite)
            (folder / MARK).write_text(f"These traces were generated, not recorded: {devices} devices, seed {seed}.\n")
            return tuple(write(folder / f"{stem}-{k:02d}.csv", k, seed, minutes) for k in range(1, devices + 1))

        write_all.__doc__ = write.__doc__
        return write_all

    return of


def check_sizes(devices: int, seed: int, minutes: float) -> None:
    """Raises UsageError for numbers out of range."""
    for name, value in (("devices", devices), ("minutes", minutes)):
        if not 1 <= value < inf:
            raise UsageError(f"{name} = {value}; a number from 1 is needed")
    if seed < 0:
        raise UsageError(f"seed = {seed}; a whole number, 0 or more, is needed")


def open_folder(folder: Path, overwrite: bool) -> Path:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a directory; traces are written into one")
    folder.mkdir(parents=True, exist_ok=True)
    if not overwrite and any(folder.iterdir()):
        raise UsageError(f"{folder}: not empty; name an empty or new directory, or say --overwrite (overwrite=True)")
    return folder


@generator("synth")
def write_traces(file: Path, k: int, seed: int, minutes: float) -> Summary:
    """A CSV file per device: `time` (ISO, local, ms), `ax`, `ay`, `az` (g, 3 decimals), `activity`; 32 Hz."""
    rng = np.random.default_rng([seed, k])
    person = draw_person(rng)
    begin = datetime(2024, 1, 8, 7) + timedelta(days=k, seconds=int(rng.uniform(0, 7200)))
    samples, seconds, count = 0, 0.0, dict[str, int]()
    with open(file, "w", encoding="utf-8", newline="\n") as out:
        out.write("time,ax,ay,az,activity\n")
        for activity, values in make_bouts(person, minutes, rng):
            seconds += rng.uniform(2.0, 45.0)
            out.write(_format_rows(begin, seconds, values, activity))
            seconds += len(values) / RATE
            samples += len(values)
            count[activity] = count.get(activity, 0) + 1
    return Summary(file.stem, samples, samples / RATE, dict(sorted(count.items())))


def _format_rows(begin: datetime, seconds: float, values: Array, activity: str) -> str:
    """CSV lines; time stamps are cut to milliseconds, as recorders do."""
    times = ((begin + timedelta(seconds=seconds + i / RATE)).isoformat("T", "milliseconds") for i in range(len(values)))
    samples = zip(times, values.tolist(), strict=True)
    return "".join(f"{time},{x:.3f},{y:.3f},{z:.3f},{activity}\n" for time, (x, y, z) in samples)


def draw_person(rng: Rng) -> Person:
    """Somebody. See `motions.Person` for the meaning of each number."""
    ratio = np.array([1.0, rng.uniform(0.2, 0.7), rng.uniform(0.05, 0.3)])
    # Near 0 the harmonics meet at the heel strike: peaks are sharp upwards, as recorded.
    timing = np.array([0.0, rng.normal(0.0, 0.7), rng.normal(0.0, 0.7)])
    stroke = np.array([1.0, rng.normal(0.0, 0.5), rng.normal(0.0, 0.5)])
    return Person(
        step_hz=rng.uniform(1.6, 2.2),
        brush_hz=rng.uniform(3.0, 5.0),
        comb_hz=rng.uniform(0.8, 1.6),
        vigour=_factor(rng),
        tempo=_factor(rng),
        reach=_factor(rng),
        twist=_factor(rng),
        swing=rng.uniform(4.0, 14.0),
        rail=bool(rng.random() < 0.4),
        harmonics=ratio * np.exp(1j * timing),
        stroke=stroke / np.linalg.norm(stroke),
        posture={name: _scatter(rng, *activity.spread) for name, activity in ACTIVITIES.items()},
        mounting=_mounting(rng),
        noise=rng.uniform(0.015, 0.035),
    )


def _factor(rng: Rng) -> float:
    """Around 1, between 2/3 and 3/2: nobody is an outlier in everything."""
    return float(np.exp(0.2 * np.clip(rng.normal(), -2.0, 2.0)))


def _scatter(rng: Rng, elevation: float, roll: float) -> tuple[float, float]:
    return float(rng.normal(0.0, elevation)), float(rng.normal(0.0, roll))


def _mounting(rng: Rng) -> Array:
    """On a left wrist y is mirrored; some wear the sensor the other way round; bands sit turned about the forearm."""
    left, reverse = rng.random() < 0.5, rng.random() < 0.25
    flip = np.diag([-1.0 if reverse else 1.0, -1.0 if reverse != left else 1.0, 1.0])
    return _rotation(*np.radians(rng.normal(0.0, (20.0, 8.0, 8.0)))) @ flip


def _rotation(a: float, b: float, c: float) -> Array:
    """Turn by a about x, then b about y, then c about z; radians."""
    x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return np.asarray(z @ y @ x)


def make_bouts(person: Person, minutes: float, rng: Rng) -> Iterator[tuple[str, Array]]:
    """A person's day: (activity, values (n, 3) in g), in the order of time."""
    band = np.zeros(3)
    for name in _plan(minutes, rng):
        activity = ACTIVITIES[name]
        motion = activity.move(person, int(rng.uniform(*activity.seconds) * RATE), rng)
        motion = _stir(_begin(_place(motion, person.posture[name], rng), rng), activity.stir * person.vigour, rng)
        band = 0.9 * band + rng.normal(0.0, np.radians(2.0), 3)  # the band slips, and is put right
        yield name, _measure(person, motion, _rotation(*band), rng)


def _plan(minutes: float, rng: Rng) -> list[str]:
    """Which bouts, in which order. Persons differ in how many activities they have and how much of each."""
    names = list(ACTIVITIES)
    kinds = int(rng.integers(2, 5) if rng.random() < 0.25 else rng.integers(6, len(names) + 1))
    chosen = [names[i] for i in rng.permutation(len(names))[:kinds]]
    seconds = 60 * minutes * min(2.0, max(0.33, rng.lognormal(-0.1, 0.5)))
    shares = seconds * rng.dirichlet(np.full(kinds, 1.5))
    counts = [max(2, round(s / np.mean(ACTIVITIES[name].seconds))) for name, s in zip(chosen, shares, strict=True)]
    plan = [name for name, count in zip(chosen, counts, strict=True) for _ in range(count)]
    return [plan[i] for i in rng.permutation(len(plan))]


def _place(motion: Motion, posture: tuple[float, float], rng: Rng) -> Motion:
    """The motion in this person's posture, and a bit differently in each bout."""
    elevation, roll = posture
    lift, turn = rng.normal(0.0, 5.0), rng.normal(0.0, 10.0)
    return Motion(motion.elevation + elevation + lift, motion.roll + roll + turn, motion.push)


def _begin(motion: Motion, rng: Rng) -> Motion:
    """A bout begins somewhere else: for up to 2 s the hand comes from there."""
    n = len(motion.roll)
    own = smooth((np.arange(n) > rng.uniform(0.0, 2.0) * RATE).astype(np.float64), 16)
    elevation = rng.uniform(-70.0, 10.0) * (1 - own) + motion.elevation * own
    return Motion(elevation, rng.uniform(0.0, 80.0) * (1 - own) + motion.roll * own, motion.push * own[:, None])


def _stir(motion: Motion, size: float, rng: Rng) -> Motion:
    """Adds the small movements that a hand makes besides, below about 8 Hz, now more, now less."""
    shakes = np.stack([smooth(axis, 2) for axis in rng.normal(0.0, size, motion.push.T.shape)], axis=1)
    much = smooth(rng.exponential(1.5, len(shakes)), 24)
    return Motion(motion.elevation, motion.roll, motion.push + shakes * much[:, None])


def _measure(person: Person, motion: Motion, slip: Array, rng: Rng) -> Array:
    """float64 (n, 3): turned into the sensor's frame, with noise and drift, clipped and rounded to its steps."""
    values = sense(motion) @ (slip @ person.mounting).T
    drift = np.linspace(0.0, 1.0, len(values))[:, None] * rng.normal(0.0, 0.01, 3)
    values = np.clip(values + drift + rng.normal(0.0, person.noise, values.shape), -RANGE, RANGE)
    return np.asarray(np.round((values + RANGE) / STEP) * STEP - RANGE)
