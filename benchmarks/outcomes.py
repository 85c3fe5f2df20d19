"""What runs of benchmarks/settling.py ended with, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_sdk.replay.metrics.statistics import mean_interval


@dataclass
class Outcome:
    """Attributes:
    accuracy: device -> model -> share of test windows; newcomers' names end in "*".
    validation: device of the fleet -> model -> share of its validation windows. windows: device -> how many these are.
    choice: of the fleet, as it is told. labels: what it chose for labels that devices give, a sentence each.
    density: mean share of entries of the personal component that are not zero.
    bytes: of all messages, encoded. alone: which kind of model is best alone, and pooled, as alone.py tells it.
    network: that was chosen; "": there was no choice. models: device -> its models, while the run is judged.
    """

    accuracy: dict[str, dict[str, float]] = field(default_factory=dict)
    validation: dict[str, dict[str, float]] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    density: float = 0.0
    bytes: int = 0
    seconds: float = 0.0
    alone: dict[str, Any] = field(default_factory=dict)
    network: str = ""
    models: dict[str, Any] = field(default_factory=dict)


def interval(differences: Any) -> tuple[float, float, float]:
    """Mean over devices, and its 95 % interval. `differences`: (devices,), means over seeds."""
    d = np.asarray(differences, float)
    return float(d.mean()), *mean_interval(d)


def by_device(outcomes: Sequence[Outcome], model: str, new: bool) -> dict[str, float]:
    """Device -> accuracy, mean over the runs that it was in, of newcomers or of the fleet."""
    found: dict[str, list[float]] = {}
    for o in outcomes:
        for name, accuracy in o.accuracy.items():
            if name.endswith("*") == new:
                found.setdefault(name, []).extend([accuracy[model]] if model in accuracy else [])
    return {name: 100 * float(np.mean(values)) for name, values in sorted(found.items()) if values}


MODELS = ("global", "masked", "single", "alone", "personal", "alone smoothed", "personal smoothed")
SCEPTICS = ("alone, trees that label", "alone, network and trees")
"""Rows of self_labelled.py and both_alone.py."""
NEIGHBOURS = ("alone, linear", "alone, trees", "best alone", "all data in one place")
TITLES = {
    "alone": "alone, network",
    "alone, linear": "alone, linear on features",
    "alone, trees": "alone, trees on features",
    "best alone": "best alone (chosen on validation)",
}


def show(title: str, outcomes: Sequence[Outcome], say: Callable[[str], None] = print) -> None:
    """One table."""
    say(f"\n{title}: {len(outcomes)} runs, {np.mean([o.seconds for o in outcomes]):.0f} s each")
    for new in (False, True):
        alone = by_device(outcomes, "alone", new)
        if not alone:
            continue
        say(f"  {'newcomers' if new else 'fleet'}: {len(alone)} devices")
        for model in MODELS:
            values = by_device(outcomes, model, new)
            against = by_device(outcomes, "alone smoothed" if "smoothed" in model else "alone", new)
            gain, low, high = interval([values[d] - against[d] for d in values])
            worse = sum(values[d] < against[d] - 1 for d in values)
            line = f"    {TITLES.get(model, model):33s} {np.mean(list(values.values())):5.1f}"
            say(line + ("" if "alone" in model else f"   {gain:+5.1f} [{low:+.1f}, {high:+.1f}]   {worse} worse by 1"))
        for text in neighbours(outcomes, new):
            say(f"    {text}")
        for text in harmed(outcomes, new):
            say(f"    {text}")
    say(f"  density {np.mean([o.density for o in outcomes]):.3f}, MB {np.mean([o.bytes for o in outcomes]) / 1e6:.1f}")
    for text in outcomes[0].labels:
        say(f"  {text}")
    own = ["network", "forest", "taught forest"]
    chosen = [f"{o.choice['steps']} steps, {own[o.choice['forest']]} {o.choice['weight']:g}" for o in outcomes]
    say(f"  chosen: {'; '.join(chosen)}")
    right, alone_right, samples = (sum(o.choice[k] for o in outcomes) for k in ("correct", "local_correct", "samples"))
    say(f"  on validation samples: chosen {right / samples:.1%}, alone {alone_right / samples:.1%}")


def neighbours(outcomes: Sequence[Outcome], new: bool) -> list[str]:
    """The rows of alone.py, and a line with what the personal models gain over the best of them."""
    best = by_device(outcomes, "best alone", new)
    if not best:
        return []
    there = [k for k in SCEPTICS if all(k in found for o in outcomes for found in o.accuracy.values())]
    models = [*NEIGHBOURS, *there]
    rows = {model: by_device(outcomes, model, new) for model in models}
    lines = [f"{TITLES.get(model, model):33s} {np.mean(list(values.values())):5.1f}" for model, values in rows.items()]
    kinds = ", ".join(str(o.alone["alone"]) for o in outcomes if o.alone)
    lines.append(f"personal to best alone {against(outcomes, 'best alone', new)}   ({kinds})")
    more = [f"personal to {k.removeprefix('alone, ')} {against(outcomes, k, new)}" for k in there]
    return [*lines, *more]


def against(outcomes: Sequence[Outcome], model: str, new: bool) -> str:
    """What personal models gain over another model of the same devices, with its interval."""
    other, personal = by_device(outcomes, model, new), by_device(outcomes, "personal", new)
    gain, low, high = interval([personal[d] - other[d] for d in other])
    worse = sum(personal[d] < other[d] - 1 for d in other)
    return f"{gain:+5.1f} [{low:+.1f}, {high:+.1f}]   {worse} of {len(other)} worse by 1"


def harmed(outcomes: Sequence[Outcome], new: bool = False) -> list[str]:
    """A line for each device whose personal model is worse than alone by more than a point, means over its runs.

    With the interval over runs, which says whether it is noise, and what the device's validation windows say.
    """
    found = []
    for name in by_device(outcomes, "alone", new):
        own = [o for o in outcomes if name in o.accuracy]
        lost, low, high = interval([gained(o.accuracy[name]) for o in own])
        if lost < -1:
            text = f"{name}: {lost:+.1f} [{low:+.1f}, {high:+.1f}] over {len(own)} runs"
            judged = [gained(o.validation[name]) for o in own if name in o.validation]
            windows = np.mean([o.windows[name] for o in own if name in o.windows]) if judged else 0
            found.append(text + (f"; validation {np.mean(judged):+.1f}, {windows:.0f} windows" if judged else ""))
    return found


def gained(accuracy: Mapping[str, float]) -> float:
    """Points of the personal model above the one trained alone."""
    return 100 * (accuracy["personal"] - accuracy["alone"])
