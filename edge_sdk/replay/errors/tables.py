"""What tables of errors share on a terminal: who wins, the columns of devices, a row for each of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.neighbours.told import COMPUTED
from edge_sdk.replay.reports.verdict import FEWEST, why_not

Result = Mapping[str, Any]
COLUMNS = {MEAN: "mean", LOCAL: "local", ALONE: "alone", "global": "global", "personalised": "personal"}
"""Model -> its column in the table of devices."""
OURS = {"personalised": "the personal models", "global": "the shared models"}
"""Models by which devices predict, the first that there is, and what they are called in a sentence."""


def verdict_on(result: Result, against: Mapping[str, Any], say: Callable[[str], str]) -> str:
    """Who wins against training alone.

    Args:
        against: model -> its difference to training alone. say: the words on the model by which devices predict.
    """
    told = result.get("neighbours") or {}
    if told.get("state") != COMPUTED:
        return why_not(told) if told else ""
    ours = next((name for name in OURS if name in against), None)
    return "The strongest neighbour has nothing to be compared with here." if ours is None else say(ours)


def who_wins(d: Mapping[str, Any]) -> str:
    """The beginning of a sentence on a difference of errors over devices, lower is better, by its interval."""
    if d["devices"] < FEWEST:
        return f"{FEWEST - 1} devices or fewer are too few to tell who wins"
    if d["high"] < 0:
        return "Joining pays"
    return "Training alone is better here" if d["low"] > 0 else "Nobody clearly wins here"


def with_interval(d: Mapping[str, Any], number: Callable[[float], str], between: str = " to ") -> str:
    """A difference with its interval. `number`: with a sign."""
    if d["devices"] == 1:  # which has none
        return number(d["mean"])
    return f"{number(d['mean'])} [{number(d['low'])}{between}{number(d['high'])}]"


def mark_newcomers(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of devices; a star behind those that joined the finished run."""
    return [d["device"] + (" *" if d["newcomer"] else "") for d in devices]


def grid(
    title: str,
    samples: str,
    columns: Sequence[str],
    devices: Sequence[Mapping[str, Any]],
    rows: Sequence[Sequence[str]],
    mean: Sequence[str],
) -> str:
    """A row for each device, and one of means under a rule.

    Args:
        samples: what the third column counts. columns: titles of the cells behind it.
        rows: the cells of each device. mean: of all of them.
    """

    def line(name: str, hospital: str, count: object, held_out: object, cells: Sequence[str]) -> str:
        return f"{name:18} {hospital:14} {count!s:>8} {held_out!s:>9} " + " ".join(f"{cell:>9}" for cell in cells)

    head = line("device", "hospital", samples, "held out", columns)
    lines = [
        line(name, d["hospital"], d["samples"], d["held_out"], cells)
        for name, d, cells in zip(mark_newcomers(devices), devices, rows, strict=True)
    ]
    note = ["* joined the finished run, and is not in the mean"] * any(d["newcomer"] for d in devices)
    rule = "-" * len(head)
    return "\n".join([title, head, rule, *lines, rule, line("mean", "", "", "", mean), *note])
