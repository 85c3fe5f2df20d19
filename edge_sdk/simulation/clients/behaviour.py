"""Behaviour of clients on the virtual clock: when they are there, how long they take, and which answers never come.

Everything that is drawn is a function of the seed, the client's name, and the hour or question: it is the same however
many ranks there are, and after a restart.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, isfinite
from pathlib import Path
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import from_mapping

HOUR = 3600.0
PATIENCE = 24 * 366
"""Hours of which it is tried whether a client is there."""
ARRIVES, SPEED, SLOW, PRESENT, LOST, TAKES, TRACE = range(7)
"""Purposes of random numbers."""
Ids = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Ways of clients; the defaults are a client that is always there and answers at once.

    Attributes:
        work: seconds that a typical client needs for an answer.
        spread: of the clients' speeds: deviation of their logarithm, once for each client.
        jitter: of a client's seconds: deviation of their logarithm, for each answer.
        slow: share of clients that are slower than the others.
        slower: times that these take.
        up, down: bytes per second of a client's link; 0: no time is needed.
        drop: probability that an answer never comes.
        online: probability that a client is there in an hour: (p,), or 24 of them for the hours of a day.
        arrive: seconds over which clients join, evenly; 0: all are there from the start.
        trace: CSV file with the columns device, from, until (seconds): when devices were there. Each client is one of
            its devices, drawn; it repeats after its last second. "": there is none.
    """

    work: float = 0.0
    spread: float = 0.0
    jitter: float = 0.0
    slow: float = 0.0
    slower: float = 10.0
    up: float = 0.0
    down: float = 0.0
    drop: float = 0.0
    online: tuple[float, ...] = (1.0,)
    arrive: float = 0.0
    trace: str = ""

    def __post_init__(self) -> None:
        for name in ("work", "spread", "jitter", "up", "down", "arrive"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UsageError(f"behave: {name} = {getattr(self, name)}: a number, 0 or more")
        if not self.slower >= 1:
            raise UsageError(f"behave: slower = {self.slower}: times that slow clients take, at least 1")
        for name, least in (("slow", 0.0), ("drop", 0.0)):
            if not least <= getattr(self, name) <= 1:
                raise UsageError(f"behave: {name} = {getattr(self, name)}: a share between 0 and 1")
        if len(self.online) not in (1, 24) or not all(0 <= p <= 1 for p in self.online) or not any(self.online):
            raise UsageError(f"behave: online = {self.online}: a probability above 0, or 24 of them")

    @property
    def always_there(self) -> bool:
        return all(p == 1 for p in self.online) and not self.arrive and not self.trace


def behaviour_of(table: Mapping[str, Any], where: str) -> Behaviour:
    """The behaviour that a table of values describes; `online` may be one number.

    Raises:
        UsageError: an unknown key, or a value that cannot be.
    """
    online = table.get("online")
    listed = {**table, "online": [online]} if isinstance(online, (int, float)) else table
    found: Behaviour = from_mapping(Behaviour, listed, where)
    return found


def identify(name: str) -> int:
    """The number by which a client's draws are its own."""
    return crc32(name.encode())


def uniform(seed: int, ids: Ids, purpose: int, number: int = 0) -> npt.NDArray[np.float64]:
    """Uniform numbers in (0, 1) for clients (k,), one for each purpose and number: splitmix64 of all four."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64) ^ np.uint64((seed * 0x9E3779B97F4A7C15 + purpose * 0xD1B54A32D192ED03) % 2**64)
        for more in (np.uint64(number), np.uint64(0)):
            x = x + np.uint64(0x9E3779B97F4A7C15) + more * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


class ClientHabits:
    """A behaviour with a seed: asked about clients, it answers.

    Raises:
        UsageError: the trace cannot be read.
    """

    def __init__(self, behaviour: Behaviour, seed: int) -> None:
        self.how, self.seed, self.at_once = behaviour, seed, behaviour == Behaviour()
        self.spans = read_spans(Path(behaviour.trace)) if behaviour.trace else []
        self.period = max((end for spans in self.spans for _, end in spans), default=0.0)

    def here(self, ids: Ids, now: float) -> npt.NDArray[np.bool_]:
        """True for the clients (k,) that are there at a time."""
        hour = int(now // HOUR)
        there = uniform(self.seed, ids, PRESENT, hour) < self.how.online[hour % len(self.how.online)]
        if self.how.arrive:
            there &= uniform(self.seed, ids, ARRIVES) * self.how.arrive <= now
        if self.spans:
            at = now % self.period
            on = np.array([any(a <= at < b for a, b in spans) for spans in self.spans])
            there &= on[self.traced(ids)]
        return there

    def traced(self, ids: Ids) -> npt.NDArray[np.int64]:
        """The device of the trace that each client is."""
        return (uniform(self.seed, ids, TRACE) * len(self.spans)).astype(np.int64)

    def next_change(self, now: float) -> float:
        """A time after `now` until which nobody comes or goes; inf: nobody ever does."""
        if self.how.always_there:
            return inf
        following = [(now // HOUR + 1) * HOUR]
        if self.how.arrive and now < self.how.arrive:
            following.append(now + self.how.arrive / 1000)
        if self.spans:
            ends = {edge for spans in self.spans for span in spans for edge in span}
            base = now // self.period * self.period
            following.append(min(e for p in (base, base + self.period) for e in (p + x for x in ends) if e > now))
        return min(following)

    def answer_at(self, name: str, question: int, now: float, down: int, up: int) -> float:
        """When a client's answer arrives that was asked now; inf: never.

        Args:
            question: a number that tells this question from others.
            down, up: bytes of question and answer.
        """
        if self.at_once:
            return now
        how, ids = self.how, np.array([identify(name)], np.uint64)
        if how.drop and uniform(self.seed, ids, LOST, question)[0] < how.drop:
            return inf
        done = now + self.seconds(ids, question, down, up)
        if how.always_there:
            return done
        for _ in range(PATIENCE):
            if self.here(ids, done)[0]:
                return done
            done = self.next_change(done)
        return inf

    def seconds(self, ids: Ids, question: int, down: int, up: int) -> float:
        """What a client needs for the way down, the work and the way up."""
        how, factor = self.how, 1.0
        if how.spread:
            factor *= exp(how.spread * NormalDist().inv_cdf(float(uniform(self.seed, ids, SPEED)[0])))
        if how.jitter:
            factor *= exp(how.jitter * NormalDist().inv_cdf(float(uniform(self.seed, ids, TAKES, question)[0])))
        if how.slow and uniform(self.seed, ids, SLOW)[0] < how.slow:
            factor *= how.slower
        return how.work * factor + (down / how.down if how.down else 0.0) + (up / how.up if how.up else 0.0)


def read_spans(path: Path) -> list[list[tuple[float, float]]]:
    """Reads a trace of presence: device -> its spans.

    Raises:
        UsageError: the file cannot be read, or is no such trace.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                span = float(row["from"]), float(row["until"])
                if not 0 <= span[0] < span[1] < inf:
                    raise ValueError(f"line {number}: from {span[0]:g} until {span[1]:g}")
                found.setdefault(row["device"], []).append(span)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"behave: trace {path}: expected columns device, from, until, in seconds: {error}") from error
    if not found:
        raise UsageError(f"behave: trace {path}: it has no line")
    return [found[name] for name in sorted(found)]
