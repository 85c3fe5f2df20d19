"""Nights of a wrist, with movement, heart rate and stages of sleep, that nobody slept: for tests and documentation.

A night is a chain of stages, each of which lasts for a time that is drawn: after some minutes awake come cycles of an
hour or two of light, deep, light and REM sleep, between which people sometimes wake. Deep sleep is long in the first
cycle and gone in the fourth, REM sleep grows from cycle to cycle (M. A. Carskadon and W. C. Dement, "Normal human
sleep", Principles and Practice of Sleep Medicine). Heart rate falls from waking to deep sleep and becomes even, in REM
sleep it is higher and restless (F. Snyder et al., Journal of Applied Physiology 1964); it follows movement, and falls
through the night. Movement of the wrist is frequent awake and rare in deep sleep (R. J. Cole et al., Sleep 1992).

In the column `stage` stands the stage of each 30 seconds; nothing stands in about one of thirty, which who scored them
could not tell. It shows that the way from a file to a stage for each epoch works, and says nothing of how well
anybody's stages are found: numbers were chosen to be plausible, and are measured on nobody. Same seed, same bytes;
device k is the same however many devices there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.replay.traces.motions import slow_noise
from edge_sdk.replay.traces.synth import Summary, generator

STAGES = ("wake", "light", "deep", "rem")
STEP, EPOCH = 5.0, 30.0
"""Seconds from one row to the next, and of what has one stage."""
ROWS = int(EPOCH / STEP)
NIGHT, DAY = 450.0, 1440.0
"""Minutes of a night in the mean, and from one evening to the next."""
UNSCORED = 1 / 30
MOVES = (0.5, 0.10, 0.02, 0.06)
"""Share of rows with a movement, by stage."""
BEATS = (8.0, 0.0, -2.5, 3.5)
"""Beats per minute above those of light sleep, by stage."""
RESTLESS = (3.0, 1.2, 0.6, 2.8)
"""Standard deviation of the heart rate about its course, by stage, beats per minute."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sleeper:
    """One person.

    Attributes:
        rest: heart rate in light sleep, beats per minute. falls: by how much it falls in a night.
        swing, restless: of what stages do to it, times the usual. stirs: of how often, strength: of how much the person
            moves, times the usual. wakes: chance to wake after a cycle. depth: of the lengths of deep sleep.
    """

    rest: float
    falls: float
    swing: float
    restless: float
    stirs: float
    strength: float
    wakes: float
    depth: float


@generator("sleep", 3 * NIGHT)
def write_sleep_traces(file: Path, k: int, seed: int, minutes: float) -> Summary:
    """A CSV file per device: `time` (s), `move` (counts), `heart` (bpm), `stage`; a row each 5 seconds."""
    random = np.random.default_rng([seed, k, 71])
    person, lines, count = draw_sleeper(random), ["time,move,heart,stage"], dict[str, int]()
    lengths = np.clip(random.normal(1, 0.07, max(1, round(minutes / NIGHT))), 0.7, 1.3)
    for night, length in enumerate((minutes * lengths / lengths.sum()).tolist()):
        stages = draw_night(person, length, random)
        move, heart = make_signals(person, stages, random)
        scored = np.repeat(random.random(len(stages) // ROWS + 1) >= UNSCORED, ROWS)
        began = 60 * (night * DAY + float(random.uniform(0, 60)))
        for n, (stage, m, h, known) in enumerate(zip(stages, move.tolist(), heart.tolist(), scored, strict=False)):
            lines.append(f"{began + n * STEP:.0f},{m:.2f},{h:.1f},{STAGES[stage] if known else ''}")
        for stage in stages[np.flatnonzero(np.diff(stages, prepend=-1))]:
            count[STAGES[stage]] = count.get(STAGES[stage], 0) + 1
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Summary(file.stem, len(lines) - 1, (len(lines) - 1) * STEP, count)


def draw_sleeper(random: np.random.Generator) -> Sleeper:
    """Somebody."""
    return Sleeper(
        rest=float(random.uniform(48, 68)),
        falls=float(random.uniform(1, 6)),
        swing=float(random.lognormal(0, 0.3)),
        restless=float(random.lognormal(0, 0.25)),
        stirs=float(random.lognormal(0, 0.3)),
        strength=float(random.lognormal(0, 0.4)),
        wakes=float(random.uniform(0.2, 0.7)),
        depth=float(random.uniform(0.5, 1.2)),
    )


def draw_night(person: Sleeper, minutes: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """The stage of each row of a night, as a place in STAGES; it changes between epochs only."""
    wake, light, deep, rem = range(len(STAGES))
    chain, cycle = [(wake, random.uniform(5, 25))], 0
    while sum(length for _, length in chain) < minutes:
        slow = person.depth * max(0.0, 38 - 13 * cycle) * random.lognormal(0, 0.2)
        chain += [(light, random.uniform(8, 25)), (deep, slow), (light, random.uniform(15, 35))]
        chain += [(rem, (7 + 7 * cycle) * random.lognormal(0, 0.25))]
        if random.random() < person.wakes:
            chain.append((wake, random.gamma(1.5, 3.0) + 1))
        cycle += 1
    epochs = [stage for stage, length in chain for _ in range(round(60 * length / EPOCH))]
    return np.repeat(np.array(epochs, np.int64), ROWS)[: round(60 * minutes / STEP)]


def make_signals(person: Sleeper, stages: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[Floats, Floats]:
    """Movement (counts, 0 and more) and heart rate (beats per minute) of each row."""
    count = len(stages)
    stirs = random.random(count) < np.clip(person.stirs * np.array(MOVES)[stages], 0, 0.9)
    strength = person.strength * random.gamma(1.2, 6.0, count) * np.where(stages == STAGES.index("rem"), 0.4, 1.0)
    move = stirs * strength + random.exponential(0.15, count)
    minute, course = int(60 / STEP), person.swing * np.array(BEATS)[stages]
    eased = np.convolve(np.pad(course, minute, mode="edge"), np.ones(2 * minute + 1) / (2 * minute + 1), "valid")
    restless = person.restless * np.array(RESTLESS)[stages] * slow_noise(random, count, 40.0 / STEP)
    lively = np.convolve(move, np.exp(-np.arange(12) / 4), "full")[:count]
    heart = person.rest - person.falls * np.arange(count) / max(1, count) + eased + restless + 0.12 * lively
    return move, heart + random.normal(0, 0.7, count)
