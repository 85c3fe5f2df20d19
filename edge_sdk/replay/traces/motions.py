"""Movements of a wrist: pure functions from a person to angles of the forearm and accelerations on top of gravity.

Frame of the forearm: x to the hand, y to the thumb, z out of the back of the hand. `elevation` lifts the hand above
the elbow, `roll` turns the forearm about x (0: palm down). A sensor at rest feels 1 g upwards.

What the numbers are from ("recorded": the ADL data set with wrist-worn accelerometer of Bruno et al. 2013, strongest
frequency of pieces of 8 s, medians per person):
    walking: steps of 1.6 to 2.2 Hz                     Pachi & Ji 2005 (means 1.8, 2.0 Hz); recorded: 1.0 to 1.75,
                                                        lowest where the arm swing, at half the rate, is the strongest
    arm swing: one cycle per two steps                  textbook
    cycles of a gait differ by a few percent            see Hausdorff 2005 on the variability of gait
    stairs: slower up, faster and harder down           recorded: 1.25 to 1.6 Hz up, 1.9 to 2.0 Hz down
    movements from point to point have minimum jerk     Flash & Hogan 1985
    breathing 12 to 18 per minute, tremor 8 to 12 Hz    textbook
    tooth brushing 3 to 5 Hz                            recorded: 4.4 and 5.1 Hz, two persons
    combing 0.8 to 1.6 Hz                               recorded: 0.9 to 1.6 Hz, three persons
    strength of accelerations and of noise              adjusted until medians were near the recorded ones
    postures and phases of gestures                     chosen by eye, after plots of the recorded ones
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RATE = 32.0
ARM = 0.5 / 9.81  # length of the swinging arm, metres, over g: angular acceleration to g

Array = npt.NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True)
class Person:
    """The numbers in which one person's movements differ from another's.

    Attributes:
        step_hz, brush_hz, comb_hz: frequencies.
        vigour: factor of accelerations.
        tempo, reach, twist: factors of the duration of gestures, of their elevations and of their turns.
        swing: amplitude of the arm swing, degrees. rail: a hand on the rail of stairs.
        harmonics: complex (3,), amplitude and phase of the step's harmonics 1 to 3 (the first is 1).
        stroke: unit vector (3,), direction in which teeth are brushed.
        posture: activity -> (elevation, roll), degrees away from everybody's mean.
        mounting: (3, 3), from the frame of the forearm to that of the sensor: turned, mirrored on the left wrist.
        noise: of the sensor, g.
    """

    step_hz: float
    brush_hz: float
    comb_hz: float
    vigour: float
    tempo: float
    reach: float
    twist: float
    swing: float
    rail: bool
    harmonics: npt.NDArray[np.complex128]
    stroke: Array
    posture: Mapping[str, tuple[float, float]]
    mounting: Array
    noise: float


@dataclass(frozen=True)
class Motion:
    """Elevation and roll in degrees, each (n,); push (n, 3): g in the frame of the forearm, gravity not included."""

    elevation: Array
    roll: Array
    push: Array


def sense(motion: Motion) -> Array:
    """float64 (n, 3): what an ideal sensor in the frame of the forearm measures, g."""
    return up(motion.elevation, motion.roll) + motion.push


def up(elevation: Array, roll: Array) -> Array:
    """float64 (n, 3): the vertical in the frame of the forearm."""
    e, r = np.radians(elevation), np.radians(roll)
    return np.stack([np.sin(e), np.cos(e) * np.sin(r), np.cos(e) * np.cos(r)], axis=1)


def _forward(elevation: Array, roll: Array) -> Array:
    """float64 (n, 3): the direction in which the hand goes when the elevation grows."""
    return up(elevation + 90.0, roll)


def _phase(rng: Rng, n: int, hz: float, variation: float = 0.025) -> Array:
    """Phase (n,) of a rhythm whose cycles differ by `variation`, from a random start."""
    knots = rng.normal(1.0, variation, int(n / RATE * hz) + 3)
    factor = np.interp(np.arange(n) * hz / RATE, np.arange(len(knots)), knots)
    return np.asarray(rng.uniform(0, 2 * np.pi) + np.cumsum(2 * np.pi * hz * factor / RATE))


def _wander(rng: Rng, n: int, size: float, seconds: float = 2.0) -> Array:
    """A slow random movement (n,): minimum jerk between normal knots of standard deviation `size`."""
    knots = np.asarray(rng.normal(0.0, size, int(n / RATE / seconds) + 3), np.float64)
    return _through(np.arange(float(len(knots))) * seconds, knots, n)


def _through(seconds: Array, values: Array, n: int) -> Array:
    """The minimum jerk movement (n,) through `values` at `seconds` (Flash & Hogan 1985)."""
    t = np.arange(n) / RATE
    i = np.clip(np.searchsorted(seconds, t, "right") - 1, 0, len(seconds) - 2)
    s = np.clip((t - seconds[i]) / (seconds[i + 1] - seconds[i]), 0.0, 1.0)
    return np.asarray(values[i] + s**3 * (10 - 15 * s + 6 * s**2) * (values[i + 1] - values[i]))


def _gait(person: Person, n: int, rng: Rng, pace: float, impact: float, sharp: float, rail: bool) -> Motion:
    """Steps. `impact` in g; `sharp`: factor of the upper harmonics; `rail`: the hand is led, the arm hardly swings."""
    hz = person.step_hz * pace * rng.normal(1.0, 0.02)
    phase = _phase(rng, n, hz)
    strength = impact * person.vigour * rng.lognormal(0.0, 0.12) * (1 + _wander(rng, n, 0.12))
    weights = person.harmonics * np.array([1.0, sharp, sharp])
    bounce = sum((np.real(w * np.exp(1j * k * phase)) for k, w in enumerate(weights, 1)), np.zeros(n))
    swing = np.radians(person.swing * (0.25 if rail else 1.0) * rng.lognormal(0.0, 0.12))
    omega = np.pi * hz
    elevation = (-35.0 if rail else -72.0) + np.degrees(swing) * np.sin(phase / 2) + _wander(rng, n, 2.0)
    roll = (20.0 if rail else 70.0) + _wander(rng, n, 4.0)
    push = up(elevation, roll) * (strength * bounce)[:, None]
    push -= _forward(elevation, roll) * (ARM * swing * omega**2 * np.sin(phase / 2))[:, None]
    push[:, 0] -= ARM * (swing * omega * np.cos(phase / 2)) ** 2
    return Motion(elevation, roll, push)


def walk(person: Person, n: int, rng: Rng) -> Motion:
    return _gait(person, n, rng, pace=1.0, impact=0.24, sharp=1.0, rail=False)


def climb_stairs(person: Person, n: int, rng: Rng) -> Motion:
    return _gait(person, n, rng, pace=0.86, impact=0.20, sharp=0.7, rail=person.rail)


def descend_stairs(person: Person, n: int, rng: Rng) -> Motion:
    return _gait(person, n, rng, pace=1.06, impact=0.32, sharp=1.4, rail=person.rail)


def _bursts(rng: Rng, n: int, work: float, rest: float) -> Array:
    """Envelope (n,) between 0 and 1: about `rest` seconds of nothing, `work` seconds of activity, and so on."""
    cycles = int(n / RATE / (work + rest)) * 2 + 6
    edges = np.cumsum(rng.gamma(4.0, 0.25, 2 * cycles) * np.tile([rest, work], cycles))
    on = np.searchsorted(edges, np.arange(n) / RATE) % 2
    return np.asarray(smooth(on.astype(np.float64), 8))


def slow_noise(rng: Rng, count: int, samples: float) -> Array:
    """Noise (count,) of about one standard deviation that changes within so many samples."""
    knots = rng.normal(0, 1, max(2, int(count / samples) + 2))
    return np.interp(np.arange(count) / samples, np.arange(len(knots)), knots)


def smooth(values: Array, width: int) -> Array:
    """The mean (n,) over about `width` samples around each, weighted by a Hann window."""
    weights = np.hanning(2 * width + 1)
    return np.convolve(np.pad(values, width, "edge"), weights / weights.sum(), "valid")


def brush_teeth(person: Person, n: int, rng: Rng) -> Motion:
    """Fast strokes, now on this side, now on that, with short pauses."""
    phase = _phase(rng, n, person.brush_hz * rng.normal(1.0, 0.04), 0.05)
    side = _wander(rng, n, 25.0, 4.0)
    force = 0.65 * person.vigour * rng.lognormal(0.0, 0.15) * _bursts(rng, n, 6.0, 1.0)
    push = np.outer(force * (np.sin(phase) + 0.25 * np.sin(2 * phase)), person.stroke)
    return Motion(15.0 + 0.4 * side + 3 * np.sin(phase), 30.0 + side, push)


def comb_hair(person: Person, n: int, rng: Rng) -> Motion:
    """Slow strokes with a raised hand: the forearm turns with each of them."""
    phase = _phase(rng, n, person.comb_hz * rng.normal(1.0, 0.05), 0.08)
    force = person.vigour * rng.lognormal(0.0, 0.15) * _bursts(rng, n, 7.0, 1.2)
    stroke = np.sin(phase + 0.5 * np.sin(phase))
    push = np.outer(0.45 * force * stroke, [0.8, 0.0, 0.6])
    turn = 30.0 * force * stroke
    return Motion(45.0 * person.reach + turn + _wander(rng, n, 8.0), 20.0 + 0.8 * turn + _wander(rng, n, 15.0), push)


# Phases of a gesture: seconds to get there, elevation, roll. After the last one the gesture begins again.
Phases = tuple[tuple[float, float, float], ...]
DRINK: Phases = ((1.5, -5, 65), (1.8, -5, 65), (1.3, 32, 60), (0.9, 42, 25), (2.2, 45, 18), (1.3, 0, 65))
SOUP: Phases = ((0.8, -12, 25), (0.6, -10, 0), (1.2, 24, 30), (0.8, 28, 42), (1.2, -8, 25), (1.4, -10, 22))
POUR: Phases = ((1.0, 0, 75), (1.2, 18, 75), (1.8, 8, 15), (2.4, 4, -5), (1.4, 18, 70), (1.4, 0, 75))


def _gesture(person: Person, n: int, rng: Rng, phases: Phases) -> Motion:
    seconds, elevation, roll = np.array(phases * (int(n / RATE / 3.0) + 2)).T
    pauses = seconds * person.tempo * rng.lognormal(0.0, 0.2, len(seconds))
    times = np.cumsum(pauses) - rng.uniform(0.0, 6.0)
    elevation = person.reach * elevation + rng.normal(0.0, 3.0, len(times))
    roll = person.twist * (roll - 45.0) + 45.0 + rng.normal(0.0, 5.0, len(times))
    return Motion(_through(times, elevation, n), _through(times, roll, n), _tremor(rng, n, 0.012))


def _tremor(rng: Rng, n: int, size: float) -> Array:
    waves = [np.sin(_phase(rng, n, rng.uniform(8.0, 12.0), 0.1)) for _ in range(3)]
    return np.asarray(size * np.stack(waves, axis=1))


def drink_glass(person: Person, n: int, rng: Rng) -> Motion:
    return _gesture(person, n, rng, DRINK)


def eat_soup(person: Person, n: int, rng: Rng) -> Motion:
    return _gesture(person, n, rng, SOUP)


def pour_water(person: Person, n: int, rng: Rng) -> Motion:
    return _gesture(person, n, rng, POUR)


def _rest(n: int, rng: Rng, elevation: float, roll: float) -> Motion:
    """Nearly still: breathing, and now and then the hand finds another place."""
    breath = 0.6 * np.sin(_phase(rng, n, rng.uniform(0.2, 0.3), 0.1))
    shifts = np.cumsum(rng.random(n) < 1 / (12 * RATE))
    places = rng.normal(0.0, 6.0, (2, int(shifts[-1]) + 1))
    lift, turn = (smooth(where[shifts], 9) for where in places)
    return Motion(elevation + breath + lift, roll + turn, np.zeros((n, 3)))


def sit_chair(person: Person, n: int, rng: Rng) -> Motion:
    return _rest(n, rng, -4.0, 15.0)


def lie_bed(person: Person, n: int, rng: Rng) -> Motion:
    return _rest(n, rng, -2.0, 30.0)


def standup_chair(person: Person, n: int, rng: Rng) -> Motion:
    """The hand goes from the lap to the hanging arm; the trunk pushes up, then brakes."""
    rise = 1.7 * person.tempo * rng.lognormal(0.0, 0.15)
    begin = rng.uniform(0.2, 0.5) * (n / RATE - rise)
    times = np.array([begin, begin + rise])
    done = _through(times, np.array([0.0, 1.0]), n)
    elevation, roll = -6.0 - 64.0 * done, 15.0 + 50.0 * done + _wander(rng, n, 2.0)
    jolt = 0.35 * person.vigour * np.sin(2 * np.pi * done) * (np.abs(done - 0.5) < 0.5)
    return Motion(elevation + _wander(rng, n, 2.0), roll, up(elevation, roll) * jolt[:, None])


@dataclass(frozen=True)
class Activity:
    """One activity, as everybody does it.

    Attributes:
        move: the motion of one bout of n samples.
        seconds: shortest and longest bout.
        spread: how far persons' postures (elevation, roll) lie apart, standard deviation in degrees.
        stir: what the hand does besides, g.
    """

    move: Callable[[Person, int, Rng], Motion]
    seconds: tuple[float, float]
    spread: tuple[float, float]
    stir: float


ACTIVITIES: Mapping[str, Activity] = {
    "brush_teeth": Activity(brush_teeth, (20.0, 40.0), (15.0, 30.0), 0.08),
    "climb_stairs": Activity(climb_stairs, (9.0, 16.0), (7.0, 15.0), 0.07),
    "comb_hair": Activity(comb_hair, (14.0, 28.0), (12.0, 25.0), 0.08),
    "descend_stairs": Activity(descend_stairs, (9.0, 16.0), (7.0, 15.0), 0.08),
    "drink_glass": Activity(drink_glass, (10.0, 24.0), (8.0, 18.0), 0.05),
    "eat_soup": Activity(eat_soup, (20.0, 40.0), (8.0, 18.0), 0.05),
    "lie_bed": Activity(lie_bed, (14.0, 36.0), (14.0, 35.0), 0.0),
    "pour_water": Activity(pour_water, (9.0, 16.0), (8.0, 18.0), 0.05),
    "sit_chair": Activity(sit_chair, (14.0, 36.0), (12.0, 25.0), 0.0),
    "standup_chair": Activity(standup_chair, (8.0, 10.0), (7.0, 15.0), 0.04),
    "walk": Activity(walk, (14.0, 40.0), (7.0, 15.0), 0.07),
}
