"""Wrist acceleration with rare falls and stretches of tremor in it, that nobody recorded: for tests and documentation.

A person sits, walks and hurries in turns, each with the own gait and the own way to wear the sensor. Now and then the
person falls: weight is gone for a moment, an impact follows that rings for a second, and then the person lies still.
In some stretches of sitting the hand trembles, at 4 to 6 Hz as in Parkinson's disease (J. Jankovic, "Parkinson's
disease: clinical features and diagnosis", 2008). The column `event` says `fall` or `tremor` there and nothing anywhere
else, as what people note of a patient does: nobody labels what is usual.

It shows that the way from a file to an anomaly score works. It says nothing of how well anybody's falls are found:
numbers were chosen to be plausible, and are measured on nobody. Same seed, same bytes; device k is the same however
many devices there are.
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
SHARES = {"sit": 0.45, "walk": 0.4, "hurry": 0.15}
"""What is done, and how often."""
SWINGS = {"sit": 0.0, "walk": 0.3, "hurry": 0.8}
"""Acceleration of the wrist with each step, g."""
FALL, TREMOR = "fall", "tremor"
FALLS_AN_HOUR, TREMBLES = 24.0, 0.35
"""Falls of a person, many more than anybody has, so that a short trace has some; share of stretches of sitting
that have a tremor in them."""
LASTS = 2.5
"""Seconds from the loss of weight until what follows is only lying."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Wearer:
    """One person.

    Attributes:
        step_hz: steps per second at a walk. strength: of movements, 1 in the middle.
        shape: harmonics of a step on three axes, complex (3, 2). down: gravity while arms hang, unit vector (3,).
        noise: of the sensor, g. tremor_hz, tremor: of the hand: per second, and g.
    """

    step_hz: float
    strength: float
    shape: npt.NDArray[np.complex128]
    down: Floats
    noise: float
    tremor_hz: float
    tremor: float


@generator("falls")
def write_fall_traces(file: Path, k: int, seed: int, minutes: float) -> Summary:
    """A CSV file per device: `time` (s), `ax`, `ay`, `az` (g), `event` (fall, tremor, or nothing); 32 Hz."""
    random = np.random.default_rng([seed, k, 59])
    person, parts, count = draw_wearer(random), list[tuple[Floats, list[str]]](), dict[str, int]()
    left = 60 * minutes * float(np.clip(random.lognormal(-0.05, 0.3), 0.5, 2.0))
    while left > 0:
        doing, seconds = str(random.choice([*SHARES], p=[*SHARES.values()])), float(random.uniform(20, 60))
        axes, events = make_stretch(person, doing, seconds, random)
        parts.append((axes, events))
        count[doing] = count.get(doing, 0) + 1
        left -= seconds
    axes, texts = np.concatenate([one for one, _ in parts]), [text for _, own in parts for text in own]
    rows = (
        f"{n / RATE:.4f},{x:.3f},{y:.3f},{z:.3f},{text}"
        for n, ((x, y, z), text) in enumerate(zip(axes.tolist(), texts, strict=True))
    )
    file.write_text("time,ax,ay,az,event\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return Summary(file.stem, len(axes), len(axes) / RATE, count)


def draw_wearer(random: np.random.Generator) -> Wearer:
    """Somebody."""
    down = np.array([0.2, -0.7, 0.6]) + random.normal(0, 0.25, 3)
    turned = np.exp(2j * np.pi * random.uniform(size=(3, 2)))
    return Wearer(
        step_hz=random.uniform(1.5, 2.1),
        strength=float(random.lognormal(0, 0.25)),
        shape=np.array([[1.0, 0.35], [0.7, 0.3], [0.5, 0.5]]) * random.lognormal(0, 0.3, (3, 2)) * turned,
        down=down / np.linalg.norm(down),
        noise=random.uniform(0.008, 0.02),
        tremor_hz=random.uniform(4.0, 6.0),
        tremor=random.uniform(0.06, 0.15),
    )


def make_stretch(person: Wearer, doing: str, seconds: float, random: np.random.Generator) -> tuple[Floats, list[str]]:
    """Acceleration (n, 3) of a stretch in which one thing is done, and what is noted of each sample."""
    count = int(seconds * RATE)
    axes, events = turned_gravity(person, count, 0.25 if doing == "sit" else 0.12, random), [""] * count
    axes += steps(person, doing, count, random) + random.normal(0, person.noise, (count, 3))
    if doing == "sit" and random.random() < TREMBLES:
        length = int(random.uniform(5, 12) * RATE)
        begin = int(random.integers(0, count - length))
        axes[begin : begin + length] += trembling(person, length, random)
        events[begin : begin + length] = [TREMOR] * length
    elif random.random() < FALLS_AN_HOUR / 3600 * seconds / (1 - SHARES["sit"] * TREMBLES):
        begin = int(random.integers(int(RATE), max(int(RATE) + 1, count - int(8 * RATE))))
        axes[begin:] = falling(person, axes[begin:], random)
        end = min(count, begin + int(LASTS * RATE))
        events[begin:end] = [FALL] * (end - begin)
    return axes, events


def turned_gravity(person: Wearer, count: int, by: float, random: np.random.Generator) -> Floats:
    """Gravity (n, 3) as the wrist turns slowly."""
    turns = np.stack([slow_noise(random, count, 6.0 * RATE) for _ in range(3)], 1)
    held = person.down + random.normal(0, 2 * by, 3) + by * turns
    return np.asarray(held / np.linalg.norm(held, axis=1, keepdims=True))


def steps(person: Wearer, doing: str, count: int, random: np.random.Generator) -> Floats:
    """What steps add, (n, 3)."""
    pace = person.step_hz * (1.35 if doing == "hurry" else 1.0) * random.normal(1, 0.04)
    phase = 2 * np.pi * np.cumsum(pace * (1 + 0.03 * slow_noise(random, count, 3.0 * RATE))) / RATE
    waves = np.stack([(person.shape[:, k] * np.exp(1j * (k + 1) * phase)[:, None]).real for k in range(2)]).sum(0)
    strength = SWINGS[doing] * person.strength * (1 + 0.25 * slow_noise(random, count, 2.0 * RATE))
    return np.asarray(waves * strength[:, None])


def trembling(person: Wearer, count: int, random: np.random.Generator) -> Floats:
    """What a tremor adds, (n, 3)."""
    phase = 2 * np.pi * np.cumsum(person.tremor_hz * (1 + 0.04 * slow_noise(random, count, RATE))) / RATE
    way = random.normal(0, 1, 3)
    strength = person.tremor * (1 + 0.4 * slow_noise(random, count, 2.0 * RATE))
    return np.asarray((strength * np.sin(phase))[:, None] * (way / np.linalg.norm(way)))


def falling(person: Wearer, axes: Floats, random: np.random.Generator) -> Floats:
    """Acceleration (n, 3) from the moment on at which weight is gone."""
    time, found = np.arange(len(axes)) / RATE, axes.copy()
    drop, way = float(random.uniform(0.25, 0.45)), random.normal(0, 1, 3)
    lying = random.normal(0, 1, 3)
    found[time < drop] *= float(random.uniform(0.2, 0.5))
    after = time >= drop
    ringing = float(random.uniform(0.9, 2.2)) * np.exp(-(time - drop) / 0.25) * np.cos(2 * np.pi * 5 * (time - drop))
    still = lying / np.linalg.norm(lying) + random.normal(0, person.noise, (len(axes), 3))
    found[after] = (still + ringing[:, None] * (way / np.linalg.norm(way)))[after]
    return np.asarray(found)
