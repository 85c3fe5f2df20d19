"""Electrocardiograms with the findings in them, several at once, that nobody recorded: for tests and documentation.

One lead at 64 Hz. Each beat is a sum of Gaussian waves (P, Q, R, S, T) along its cycle, as in P. E. McSharry et al.,
"A dynamical model for generating synthetic electrocardiogram signals", IEEE TBME 2003; breathing moves the rate and the
baseline. On that lie findings, each in episodes of its own, so that they overlap:

af      atrial fibrillation: intervals from beat to beat that follow no rhythm, no P wave, waves of 4 to 8 Hz between
pvc     premature ventricular beats: one beat in three to five comes early, wide and without P, and a pause follows
noise   electrode and muscle: steps of the baseline, and noise that is larger than the P wave

In the column `labels` stands the set of an episode, such as `af+noise`, or `none`; nothing stands in about one episode
in ten, which nobody has looked at. How often a person has which finding differs: some never have one. It shows that the
way from a file to scores of each label works. It says nothing of how well arrhythmias can be found: the numbers were
chosen to be plausible, and are measured on nobody. Same seed, same bytes; device k is the same however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.replay.traces.motions import slow_noise
from edge_sdk.replay.traces.synth import Summary, generator

RATE = 64.0
"""Samples per second."""
FINDINGS = ("af", "pvc", "noise")
WAVES = {"p": (-0.17, 0.13, 0.024), "q": (-0.035, -0.12, 0.011), "r": (0.0, 1.1, 0.014), "s": (0.035, -0.25, 0.012)}
"""Wave -> seconds from the R wave, height in mV, standard deviation in seconds. The T wave follows the interval."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rhythm:
    """One person's heart and electrode.

    Attributes:
        rate: beats per minute. breath_hz: breaths per second. sway: share of an interval by which breathing moves it.
        heights: of the waves P, Q, R, S, T, times the usual ones.
        burden: finding -> share of the episodes in which it is there.
        noise: mV, of the electrode where there is no finding.
    """

    rate: float
    breath_hz: float
    sway: float
    heights: tuple[float, ...]
    burden: dict[str, float]
    noise: float


@generator("rhythm")
def write_rhythm_traces(file: Path, k: int, seed: int, minutes: float) -> Summary:
    """A CSV file per device: `time` (s), `ecg` (mV), `labels` (a set, or nothing); 64 Hz."""
    random = np.random.default_rng([seed, k, 47])
    person = draw_rhythm(random)
    left, parts, count = 60 * minutes * float(np.clip(random.lognormal(-0.05, 0.3), 0.5, 2.0)), [], dict[str, int]()
    while left > 0:
        seconds = min(left, float(random.uniform(20, 45)))
        found = {name for name in FINDINGS if random.random() < person.burden[name]}
        text = "" if random.random() < 0.1 else "+".join(n for n in FINDINGS if n in found) or "none"
        parts.append((make_episode(person, found, max(8.0, seconds), random), text))
        count[text or "unlabelled"] = count.get(text or "unlabelled", 0) + 1
        left -= seconds
    wave = np.concatenate([one for one, _ in parts])
    texts = [text for one, text in parts for _ in range(len(one))]
    rows = (f"{n / RATE:.4f},{v:.3f},{text}" for n, (v, text) in enumerate(zip(wave.tolist(), texts, strict=True)))
    file.write_text("time,ecg,labels\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return Summary(file.stem, len(wave), len(wave) / RATE, count)


def draw_rhythm(random: np.random.Generator) -> Rhythm:
    """Somebody."""
    burden = {"af": random.choice([0.0, 0.3, 0.6]), "pvc": random.choice([0.0, 0.3, 0.5]), "noise": 0.25}
    return Rhythm(
        rate=random.uniform(58, 88),
        breath_hz=random.uniform(0.18, 0.32),
        sway=random.uniform(0.02, 0.06),
        heights=tuple(random.lognormal(0, 0.25, 5)),
        burden={name: float(share) for name, share in burden.items()},
        noise=random.uniform(0.01, 0.03),
    )


def make_episode(person: Rhythm, found: set[str], seconds: float, random: np.random.Generator) -> Floats:
    """The lead in one episode, mV (n,)."""
    time = np.arange(int(seconds * RATE)) / RATE
    wave = 0.05 * np.sin(2 * np.pi * person.breath_hz * time + random.uniform(0, 6)) + random.normal(
        0, person.noise, len(time)
    )
    for at, interval, early in draw_beats(person, found, seconds, random):
        add_beat(wave, time, person, at, interval, "ventricular" if early else "af" if "af" in found else "sinus")
    if "af" in found:
        turns = 2 * np.pi * np.cumsum(random.uniform(5, 7) + slow_noise(random, len(time), 0.6 * RATE)) / RATE
        wave += 0.06 * (1 + 0.4 * slow_noise(random, len(time), 1.5 * RATE)) * np.sin(turns)
    if "noise" in found:
        wave += random.normal(0, random.uniform(0.12, 0.3), len(time)) + 0.3 * slow_noise(random, len(time), 0.7 * RATE)
    return wave


def draw_beats(
    person: Rhythm, found: set[str], seconds: float, random: np.random.Generator
) -> list[tuple[float, float, bool]]:
    """Beats of an episode: time of the R wave, seconds since the one before, does it come early from a ventricle?"""
    beats, at, until = list[tuple[float, float, bool]](), float(random.uniform(0, 0.5)), int(random.integers(1, 5))
    while at < seconds:
        if "af" in found:
            interval = 60 / (1.25 * person.rate) * float(np.clip(random.lognormal(0, 0.24), 0.55, 1.9))
        else:
            interval = 60 / person.rate * (1 + person.sway * np.sin(2 * np.pi * person.breath_hz * at))
            interval *= float(random.normal(1, 0.01))
        early = "pvc" in found and until == 0
        until = int(random.integers(2, 5)) if early else until - 1
        at += interval * (0.62 if early else 1.38 if beats and beats[-1][2] else 1.0)
        beats.append((at, interval, early))
    return beats


def add_beat(wave: Floats, time: Floats, person: Rhythm, at: float, interval: float, kind: str) -> None:
    """Adds one beat, in place."""
    p, q, r, s, t = person.heights
    if kind == "ventricular":
        shape = [(0.0, 1.3 * r, 0.045), (0.09, -0.5 * s, 0.04), (0.3, -0.4 * t, 0.07)]
    else:
        usual = zip(WAVES.values(), (p if kind == "sinus" else 0.0, q, r, s), strict=True)
        shape = [(lag, height * own, width) for (lag, height, width), own in usual]
        shape.append((0.28 * np.sqrt(interval), 0.3 * t, 0.05 * np.sqrt(interval)))
    near = slice(*np.searchsorted(time, [at - 0.4, at + 0.7]))
    for lag, height, width in shape:
        wave[near] += height * np.exp(-((time[near] - at - lag) ** 2) / (2 * width**2))
