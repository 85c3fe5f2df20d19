"""The length of rounds when hospitals wait for each other, and when they do not: a simulator and the theory.

The model is that of FedBCD's experiments (Wu et al., sections 3.3 and 4): a device of a hospital asks for work after an
exponential time; the hospital accepts the first |Q|; each takes K times an exponential time to train; the hospital is
ready when the last of them is. Aggregation and the links between hospitals cost nothing.

    clocks      sync        all wait for the slowest hospital
                restart     the first B end the round, the others throw away what they have done (the paper's analysis)
                fifo        the first B end the round, the others keep working and join when ready (first-B as built)
                rigorous    the first B end the round; the others finish theirs, then go on: nobody skips a round
    theory      tau_(B), the B-th smallest of N i.i.d. times, against tau_(N): the ratio of round lengths
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Times = npt.NDArray[np.float64]
Quantile = Callable[[float], float]
"""F^-1 of a hospital's time."""

CLOCKS = ("sync", "restart", "fifo", "rigorous")
COMPUTING = ("mult", "sum", "pull-only")


# How long a hospital takes --------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Hospitals:
    """The random times of some equal hospitals; the defaults are the paper's.

    Attributes:
        hospitals: N.
        devices: of each.
        accepted: |Q|, devices that take part in a round.
        steps: K_x; K is uniform on 1..K_x.
        arrival: mean time until a device asks for work.
        processing: mean time of one local iteration.
        computing: "mult": K times one draw (the paper's formula); "sum": K draws; "pull-only": none, FedBCD-I
            has trained before it asks.
    """

    hospitals: int = 10
    devices: int = 10
    accepted: int = 3
    steps: int = 5
    arrival: float = 2.0
    processing: float = 1.0
    computing: str = "mult"

    def __post_init__(self) -> None:
        for name in ("hospitals", "devices", "accepted", "steps", "arrival", "processing"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} = {getattr(self, name)}: above 0")
        if self.accepted > self.devices:
            raise UsageError(f"accepted = {self.accepted}: a hospital has {self.devices} devices")
        if self.computing not in COMPUTING:
            raise UsageError(f"computing = {self.computing!r}: one of {', '.join(COMPUTING)}")


def draw_device_times(random: np.random.Generator, h: Hospitals, rounds: int) -> Times:
    """Draws (rounds, N, |Q|): when each accepted device, in order of arrival, has answered since the phase opened."""
    arrivals = random.exponential(h.arrival, (rounds, h.hospitals, h.devices))
    accepted = np.sort(arrivals, axis=2)[:, :, : h.accepted]
    if h.computing == "pull-only":
        return accepted
    steps = random.integers(1, h.steps + 1, accepted.shape)
    if h.computing == "mult":
        return accepted + steps * random.exponential(h.processing, accepted.shape)
    return accepted + random.gamma(steps, h.processing)


def draw_hospital_times(random: np.random.Generator, h: Hospitals, rounds: int) -> Times:
    """Draws tau, (rounds, N): the time until a hospital is ready."""
    times: Times = draw_device_times(random, h, rounds).max(2)
    return times


# Clocks ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Schedule:
    """The rounds that a clock makes of drawn times.

    Attributes:
        ends: (rounds,), when each round is over.
        members: (rounds, N), who was ready.
    """

    ends: Times
    members: npt.NDArray[np.bool_]

    @property
    def mean_round(self) -> float:
        return float(self.ends[-1]) / len(self.ends)


def make_schedule(clock: str, tau: Times, ready: int) -> Schedule:
    """Makes the rounds of a clock.

    Args:
        clock: one of CLOCKS.
        tau: (rounds, N); row t is used up by those who start a phase in round t.
        ready: B.

    Raises:
        UsageError: there is no such clock, or B is not between 1 and N.
    """
    if clock not in CLOCKS:
        raise UsageError(f"clock = {clock!r}: one of {', '.join(CLOCKS)}")
    if not 1 <= ready <= tau.shape[1]:
        raise UsageError(f"ready = {ready}: between 1 and the {tau.shape[1]} hospitals")
    if clock == "sync":
        return Schedule(np.cumsum(tau.max(1)), np.ones(tau.shape, bool))
    if clock == "restart":
        lengths = np.partition(tau, ready - 1, axis=1)[:, ready - 1]
        return Schedule(np.cumsum(lengths), tau <= lengths[:, None])
    return carry_work(tau, ready, alone=clock == "rigorous")


def carry_work(tau: Times, ready: int, alone: bool) -> Schedule:
    """Makes rounds in which late hospitals keep their work, and join when they are ready.

    Args:
        alone: a late hospital begins its next phase by itself; otherwise it begins with the next round.
    """
    ends, members = np.empty(len(tau)), np.empty(tau.shape, bool)
    done = tau[0].copy()
    for t in range(len(tau)):
        ends[t] = np.partition(done, ready - 1)[ready - 1]
        members[t] = done <= ends[t]
        if t + 1 < len(tau):
            begun = np.maximum(done, ends[t]) if alone else np.where(members[t], ends[t], 0.0)
            done = np.where(members[t] | alone, begun + tau[t + 1], done)
    return Schedule(ends, members)


def read_at(ends: Sequence[float] | Times, values: Sequence[float], at: Sequence[float] | Times) -> Times:
    """Reads a curve at some times: the value of the last round that was over; NaN before the first.

    Args:
        ends: when each round was over, ascending.
        values: after each round, e.g. accuracies.
    """
    index = np.searchsorted(np.asarray(ends), np.asarray(at), side="right")
    return np.concatenate([[np.nan], np.asarray(values, np.float64)])[index]


def find_time(ends: Sequence[float] | Times, values: Sequence[float], target: float) -> float:
    """Time at which a value was first reached; inf: never."""
    reached = np.flatnonzero(np.asarray(values) >= target)
    return float(ends[reached[0]]) if len(reached) else inf


class Delays(Mapping[tuple[str, int], float]):
    """Answer times of devices for a run over the loopback (`NetworkFaults.slow`), in its virtual time.

    At each question of a hospital its devices arrive anew; those asked are the first to arrive, and start to work then.
    Hospitals themselves answer at once.

    Args:
        tree: hospital -> its devices.
        times: how long things take; the number of devices is that of each hospital in `tree`.
        seed: of the draws.
    """

    def __init__(self, tree: Mapping[str, Sequence[str]], times: Hospitals, seed: int = 0) -> None:
        self.tree, self.times, self.seed = tree, times, seed
        self.parent = {d: h for h, devices in tree.items() for d in devices}
        self.left: dict[tuple[str, int], list[float]] = {}

    def __getitem__(self, key: tuple[str, int]) -> float:
        device, question = key
        phase = self.parent[device], question  # KeyError: no device
        if phase not in self.left:
            self.left[phase] = self.drawn(*phase)
        return self.left[phase].pop(0)

    def drawn(self, hospital: str, question: int) -> list[float]:
        count = len(self.tree[hospital])
        one = replace(self.times, hospitals=1, devices=count, accepted=count)
        random = np.random.default_rng([self.seed, sorted(self.tree).index(hospital), question])
        return [float(t) for t in draw_device_times(random, one, 1)[0, 0]]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(())

    def __len__(self) -> int:
        return 0


# Theory: r = E tau_(B) / E tau_(N) ------------------------------------------------------------------------------
def checked_share(ready: int, hospitals: int) -> float:
    """beta = B / N."""
    if not 1 <= ready <= hospitals:
        raise UsageError(f"ready = {ready}: between 1 and the {hospitals} hospitals")
    return ready / hospitals


def harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def exponential_ratio(ready: int, hospitals: int) -> float:
    """Exactly, for exponential times: (H_N - H_{N-B}) / H_N."""
    checked_share(ready, hospitals)
    return (harmonic(hospitals) - harmonic(hospitals - ready)) / harmonic(hospitals)


def quantile_ratio(quantile: Quantile, ready: int, hospitals: int) -> float:
    """Eq. (8): F^-1(beta) / F^-1(1 - 1/N), an upper estimate for large N. It needs B < N and N > 1."""
    beta = checked_share(ready, hospitals)
    return quantile(beta) / quantile(1 - 1 / hospitals)


def normal_order_statistic(
    quantile: Quantile, density: Callable[[float], float], ready: int, hospitals: int
) -> tuple[float, float]:
    """Mean and variance of tau_(B) for large N: F^-1(beta) and beta (1 - beta) / (N f(F^-1(beta))^2)."""
    beta = checked_share(ready, hospitals)
    middle = quantile(beta)
    return middle, beta * (1 - beta) / (hospitals * density(middle) ** 2)


def weibull_ratio(ready: int, hospitals: int, shape: float) -> float:
    """Eq. (8) for Weibull times of any scale: (-ln(1 - beta) / ln N)^(1/shape).

    The paper prints the minus sign outside the power, where it is undefined for most shapes.
    """
    beta = checked_share(ready, hospitals)
    return inf if beta == 1 or hospitals == 1 else float((-log(1 - beta) / log(hospitals)) ** (1 / shape))


def bounded_ratio(quantile: Quantile, ready: int, hospitals: int, longest: float) -> float:
    """The limit for large N where no hospital takes longer than `longest`: F^-1(beta) / longest."""
    return quantile(checked_share(ready, hospitals)) / longest


# Table ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """Mean round lengths of one B, and their ratio to that of sync, simulated and by eq. (8) on the empirical F."""

    ready: int
    restart: float
    fifo: float
    rigorous: float
    ratio: float
    estimate: float


def make_table(h: Hospitals, readies: Sequence[int], rounds: int = 20_000, seed: int = 0) -> list[Row]:
    """Simulates some B, and sets the theory beside them."""
    tau = draw_hospital_times(np.random.default_rng(seed), h, rounds)
    sync = make_schedule("sync", tau, h.hospitals).mean_round

    def quantile(share: float) -> float:
        return float(np.quantile(tau, share))

    def row(ready: int) -> Row:
        lengths: dict[str, Any] = {c: make_schedule(c, tau, ready).mean_round for c in CLOCKS[1:]}
        estimate = quantile_ratio(quantile, ready, h.hospitals) if ready < h.hospitals else 1.0
        return Row(ready, **lengths, ratio=lengths["restart"] / sync, estimate=estimate)

    return [row(ready) for ready in readies]


def format_table(rows: Sequence[Row]) -> str:
    """Formats the table, for people."""
    head = f"{'B':>3} {'restart':>9} {'fifo':>9} {'rigorous':>9} {'ratio':>7} {'eq. (8)':>8}"
    lines = [
        f"{r.ready:>3} {r.restart:>9.2f} {r.fifo:>9.2f} {r.rigorous:>9.2f} {r.ratio:>7.3f} {r.estimate:>8.3f}"
        for r in rows
    ]
    return "\n".join([head, *lines])
