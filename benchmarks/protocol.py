"""Rules that every comparison in docs/methods.md keeps to, and the few tools that they take.

* Three parts: settings are chosen on validation samples, with a seed (TUNING) that is never reported; test samples are
  looked at once, with what was chosen.
* The same number of trials for every method: `tune`.
* The same number of gradients per device, counted where they are computed and not where they are planned: `Gradients`.
* Several seeds; intervals are of 95 %, over devices (edge_sdk/replay/metrics/statistics.py).
* Bytes are of encoded messages: `Quiet`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from edge_sdk.contract.loopback import ROOT, Loopback
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.replay.metrics.statistics import compare, spread
from edge_sdk.wire.codec.codec import Codec

TUNING = 1000
"""Seed of all trials."""

Settings = dict[str, Any]


# Choosing on validation -----------------------------------------------------------------------------------------
def grid(**values: Sequence[Any]) -> list[Settings]:
    """All combinations of the values that are given for each key."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def tune(trials: Sequence[Settings], judge: Callable[[Settings], float]) -> tuple[Settings, list[float]]:
    """The first of the trials with the best score on validation samples, and the scores of all.

    Raises:
        UsageError: there is no trial.
    """
    if not trials:
        raise UsageError("a method is tuned with one trial or more")
    scores = [judge(trial) for trial in trials]
    return dict(trials[max(range(len(trials)), key=lambda i: (scores[i], -i))]), scores


def check_budgets(grids: Mapping[str, Sequence[Settings]]) -> int:
    """The number of trials that every method has.

    Raises:
        UsageError: one has more than another.
    """
    sizes = {name: len(trials) for name, trials in grids.items()}
    if len(set(sizes.values())) != 1:
        raise UsageError(f"a comparison gives every method as many trials: {sizes}")
    return next(iter(sizes.values()))


# Counting -------------------------------------------------------------------------------------------------------
class Gradients:
    """Number of gradients that devices have computed. `paused`: those of evaluations are not counted."""

    def __init__(self) -> None:
        self.count, self.paused = 0, False

    def through(self, env: Any) -> Any:
        """The env of a device, with its gradients counted here."""
        given = {key: self.counted(f) for key in ("grad_fn", "augmented") if (f := getattr(env, key)) is not None}
        return replace(env, **given)

    def counted(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(*given: Any) -> Any:
            self.count += not self.paused
            return f(*given)

        return gradient


class Quiet(Loopback):
    """A network that keeps no record of messages but their bytes.

    Attributes:
        seen: called with the aggregator's state and the time after each of its steps.
        bytes: of the messages between devices and hospitals.
        hops: "devices up", "devices down", "hospitals up" and "hospitals down" -> bytes there.
    """

    codec: Codec | None = None
    seen: Callable[[Any, float], None] | None = None
    bytes = 0
    latest: tuple[Any, int] = (None, 0)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.hops: Counter[str] = Counter()

    def commit(self, name: str, done: Any, now: float) -> None:
        super().commit(name, done, now)
        t = self.transcript
        if self.codec is not None:
            for a, b, m in t.crossed:
                self.hops[hop_of(self.nodes[a].parent == b, ROOT in (a, b))] += self.size(m)
            self.bytes = self.hops["devices up"] + self.hops["devices down"]
        for record in (t.crossed, t.states, t.closed, t.asked, t.ran, t.times, t.answers):
            record.clear()
        if name == ROOT and self.seen is not None:
            self.seen(done.node.record.state, now)

    def size(self, message: Any) -> int:
        """Bytes of a message; a broadcast is encoded once."""
        assert self.codec is not None
        if self.latest[0] is not message:
            self.latest = message, len(self.codec.encode(message))
        return self.latest[1]


def hop_of(upward: bool, at_root: bool) -> str:
    return f"{'hospitals' if at_root else 'devices'} {'up' if upward else 'down'}"


@dataclass(frozen=True)
class Point:
    """A point of a curve. `cost`: of any kind, e.g. megabytes; `value`: larger is better."""

    round: int
    cost: float
    value: float


def cost_to(curve: Sequence[Point], target: float) -> float | None:
    """Cost of the first point that reaches the target; None: none does."""
    return next((p.cost for p in curve if p.value >= target), None)


def still_rising(curve: Sequence[Point], share: float = 0.25) -> float:
    """Gain over the last so large share of a curve's points, of means: of halves of it, as single points are noisy."""
    tail = [p.value for p in curve[-max(2, round(share * len(curve))) :]]
    half = len(tail) // 2
    return sum(tail[half:]) / len(tail[half:]) - sum(tail[:half]) / half


# Results --------------------------------------------------------------------------------------------------------
class Results:
    """Results by name, in a JSON file that is written after each; one that is there already is not computed again.

    Args:
        path: the file; None: in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, Any] = json.loads(path.read_text()) if path and path.is_file() else {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self.known:
            began = time.monotonic()
            self.known[name] = json.loads(json.dumps(compute()))
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            if self.path:
                self.path.write_text(json.dumps(self.known))
        return self.known[name]


def mean_sd(values: Iterable[float | None], digits: int = 1, factor: float = 1.0) -> str:
    """Mean ± deviation over seeds, of one seed its value; "k of n" where only k have one, "-" where none has."""
    every = list(values)
    there = [factor * v for v in every if v is not None]
    if len(there) < len(every):
        return f"{len(there)} of {len(every)}" if there else "-"
    mean, sd = spread(there)
    return f"{mean:.{digits}f}" if len(there) == 1 else f"{mean:.{digits}f} ± {sd:.{digits}f}"


def paired(values: Sequence[float], others: Sequence[float]) -> str:
    """Mean gain in points with its interval, and the number of those that are worse by more than a point."""
    d = compare(values, others)
    return (
        f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}], {round(d.worse_by_a_point * d.devices)} worse"
    )


def by_device(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Device -> its mean over seeds, of those devices that every seed has."""
    names = sorted(set.intersection(*[set(s) for s in seeds]))
    return {d: sum(s[d] for s in seeds) / len(seeds) for d in names}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_name(env: NodeEnv, name: str) -> Any:
    return replace(env, me=name)
