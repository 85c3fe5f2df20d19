"""Wrist pulse and acceleration with the heart rate beside them, that nobody recorded: for tests and documentation.

A person rests, walks and runs in turns. The heart rate follows the effort with a delay of its own, and breathing moves
it; the optical pulse has its harmonics, breathing in its baseline, and what the wrist's movement adds to it, which at a
walk is as large as the pulse itself. The column `heart_rate` is what a chest strap would say: whole beats per minute,
once a second, a mean over the last five seconds.

It shows that the way from a file to an error in bpm works. It says nothing of how well anybody's heart rate can be
read from a wrist: skin, sensors that come off, arrhythmias and most movements are not in it. Its numbers were chosen to
be plausible for healthy adults (rest 50 to 78 bpm, kinetics of half a minute or so, breathing that moves the rate by a
few bpm), and are measured on nobody. Same seed, same bytes; device k is the same however many devices there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.replay.traces.motions import slow_noise
from edge_sdk.replay.traces.synth import Summary, generator

RATE = 32.0
"""Samples per second."""
LAG = 5.0
"""Seconds over which a strap takes its mean."""
LEVELS = {"rest": (0.0, 0.08), "walk": (0.25, 0.5), "run": (0.6, 0.95)}
"""Effort -> share of the way from a person's rest to the highest rate, at least and at most."""
STEPS = {"rest": 0.0, "walk": 0.25, "run": 0.9}
"""Effort -> acceleration of the wrist with each step, in g."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Heart:
    """One person.

    Attributes:
        rest, highest: beats per minute. rises, falls: seconds in which two thirds of a change are done.
        breath_hz: breaths per second. sway: by how many bpm breathing moves the rate.
        wave: shares of the pulse's harmonics, complex (3,). noise, mixed: of the optical sensor: its own, and how much
            of the wrist's acceleration is in it.
        step_hz: steps per second at a walk.
    """

    rest: float
    highest: float
    rises: float
    falls: float
    breath_hz: float
    sway: float
    wave: npt.NDArray[np.complex128]
    noise: float
    mixed: float
    step_hz: float


@generator("heart")
def write_heart_traces(file: Path, k: int, seed: int, minutes: float) -> Summary:
    """A CSV file per device: `time` (s), `ppg` (no unit), `ax`, `ay`, `az` (g), `heart_rate` (bpm); 32 Hz."""
    random = np.random.default_rng([seed, k, 31])
    person = draw_heart(random)
    efforts = draw_efforts(minutes * float(np.clip(random.lognormal(-0.05, 0.3), 0.5, 2.0)), random)
    columns = make_signals(person, efforts, random)
    rows = (",".join([f"{t:.4f}", f"{p:.4f}", *(f"{a:.3f}" for a in axes), f"{h:.0f}"]) for t, p, axes, h in columns)
    file.write_text("time,ppg,ax,ay,az,heart_rate\n" + "\n".join(rows) + "\n", encoding="utf-8")
    count = {name: sum(one == name for one, _, _ in efforts) for name in LEVELS}
    samples = sum(int(seconds * RATE) for _, _, seconds in efforts)
    return Summary(file.stem, samples, samples / RATE, {name: n for name, n in count.items() if n})


def draw_heart(random: np.random.Generator) -> Heart:
    """Somebody."""
    phases = np.exp(1j * random.normal(0.0, 0.5, 3))
    return Heart(
        rest=random.uniform(50, 78),
        highest=random.uniform(158, 188),
        rises=random.uniform(18, 35),
        falls=random.uniform(35, 70),
        breath_hz=random.uniform(0.18, 0.32),
        sway=random.uniform(1.0, 4.0),
        wave=np.array([1.0, random.uniform(0.3, 0.6), random.uniform(0.05, 0.25)]) * phases,
        noise=random.uniform(0.1, 0.3),
        mixed=random.uniform(1.0, 3.0),
        step_hz=random.uniform(1.6, 2.1),
    )


def draw_efforts(minutes: float, random: np.random.Generator) -> list[tuple[str, float, float]]:
    """What is done one after the other: effort, its level between rest and the highest rate, seconds."""
    left, found = 60 * minutes, list[tuple[str, float, float]]()
    while left > 0:
        name = str(random.choice([*LEVELS], p=[0.45, 0.35, 0.2]))
        seconds = min(left, float(random.uniform(40, 150)))
        found.append((name, float(random.uniform(*LEVELS[name])), max(1.0, seconds)))
        left -= seconds
    return found


def make_signals(
    person: Heart, efforts: list[tuple[str, float, float]], random: np.random.Generator
) -> list[tuple[float, float, list[float], float]]:
    """Rows: time, pulse, three accelerations, heart rate."""
    lengths = [int(seconds * RATE) for _, _, seconds in efforts]
    level, steps = (
        np.concatenate([np.full(n, value) for n, value in zip(lengths, values, strict=True)])
        for values in ([e[1] for e in efforts], [STEPS[e[0]] for e in efforts])
    )
    time = np.arange(len(level)) / RATE
    rate = follow(person, level) + person.sway * np.sin(2 * np.pi * person.breath_hz * time) * (1 - 0.7 * level)
    walk = np.cumsum(
        np.where(steps > 0.5, 1.4, 1.0) * person.step_hz * (1 + 0.03 * slow_noise(random, len(time), 4.0 * RATE))
    )
    moved = steps * (1 + 0.2 * slow_noise(random, len(time), 2.0 * RATE))
    phase = 2 * np.pi * walk / RATE
    push = np.stack([moved * np.sin(phase), 0.6 * moved * np.sin(phase + 1.0), 0.5 * moved * np.cos(2 * phase)], 1)
    down = np.array([0.2, -0.5, 0.84]) + 0.15 * np.stack(
        [slow_noise(random, len(time), 8.0 * RATE) for _ in range(3)], 1
    )
    axes = down + push + random.normal(0, 0.015, (len(time), 3))
    return [
        (t, p, a, h)
        for t, p, a, h in zip(
            time.tolist(),
            pulse(person, rate, push, random).tolist(),
            axes.tolist(),
            strap(rate).tolist(),
            strict=True,
        )
    ]


def follow(person: Heart, level: Floats) -> Floats:
    """The rate (n,) that follows the effort: slower down than up."""
    wanted = person.rest + level * (person.highest - person.rest)
    rate, now = np.empty(len(level)), float(wanted[0])
    for i, goal in enumerate(wanted.tolist()):
        now += (goal - now) / (RATE * (person.rises if goal > now else person.falls))
        rate[i] = now
    return rate


def pulse(person: Heart, rate: Floats, push: Floats, random: np.random.Generator) -> Floats:
    """What the optical sensor sees, (n,)."""
    time, beats = np.arange(len(rate)) / RATE, 2 * np.pi * np.cumsum(rate / 60) / RATE
    strength = 1 + 0.2 * slow_noise(random, len(rate), 10.0 * RATE)
    wave = sum((person.wave[k] * np.exp(1j * (k + 1) * beats)).real for k in range(3)) * strength
    breath = 0.4 * np.sin(2 * np.pi * person.breath_hz * time)
    mixed = person.mixed * push @ np.array([0.7, 0.5, 0.5])
    return np.asarray(wave + breath + mixed + random.normal(0, person.noise, len(rate)))


def strap(rate: Floats) -> Floats:
    """What a chest strap says, (n,): the mean over the last seconds, in whole beats, renewed once a second."""
    total = np.concatenate([[0.0], np.cumsum(rate)])
    second = (np.arange(len(rate)) // int(RATE) * int(RATE)) + 1
    since = np.maximum(0, second - int(LAG * RATE))
    return np.asarray(np.round((total[second] - total[since]) / (second - since)))
