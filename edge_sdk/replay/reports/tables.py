"""The statistics of one or several replays as text: metrics of each model, differences to training alone, confusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edge_sdk.replay.metrics.scores import (
    ALONE,
    ALONE_LINEAR,
    ALONE_NETWORK,
    ALONE_TREES,
    FLEET,
    GROUPS,
    IN_USE,
    LOCAL,
    MAJORITY,
    MIXED,
    POOLED,
)
from edge_sdk.replay.metrics.statistics import ACCURACY, columns_with

Group = Mapping[str, Any]

TITLES = {
    MAJORITY: "majority class",
    LOCAL: "local",
    FLEET: "local, one choice for all",
    MIXED: "local part of settling",
    ALONE: "alone, the best kind",
    ALONE_NETWORK: "alone, network",
    ALONE_LINEAR: "alone, linear model",
    ALONE_TREES: "alone, trees",
    POOLED: "all data in one place",
    IN_USE: "what devices predict with",
}
"""Model -> what it is called where its name does not say it."""
PHRASES = dict(zip(GROUPS, ("all {} devices", "{} devices with two classes or more", "{} newcomers"), strict=True))
WIDTH = 14


def statistics_table(statistics: Mapping[str, Group], titles: Mapping[str, str] = TITLES) -> str:
    """Metrics on test samples, means over devices, and the paired differences to training alone.

    Devices with two classes or more are left out where that is all of them.

    Args:
        titles: what models are called, as `verdict.titles_of` has it.
    """
    return "\n\n".join(group_table(name, group, titles) for name, group in shown_groups(statistics).items())


def yardsticks(group: Group) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two models of a device alone that others are compared with, and their names.

    They are the strongest neighbour and the network, or the network twice where no neighbour is known.
    """
    if group.get(f"against_{ALONE}"):
        return (ALONE, "alone"), (LOCAL, "against local")
    return (LOCAL, "local"), (FLEET, "against one choice for all")


def shown_groups(statistics: Mapping[str, Group]) -> dict[str, Group]:
    """The groups of devices without those with two classes or more, where that is all of them."""
    sizes = {name: group["devices"] for name, group in statistics.items()}
    return {n: group for n, group in statistics.items() if n != "two_classes" or sizes[n] != sizes.get("all")}


def group_table(name: str, group: Group, titles: Mapping[str, str]) -> str:
    title, ((_, first), (_, second)) = PHRASES[name].format(group["devices"]), yardsticks(group)
    wide = max(34, *(len(titles.get(model, model)) for model in group["models"]))
    names = columns_of(group["models"].values()).values()
    heads = " ".join(f"{name.replace('balanced accuracy', 'balanced'):>{WIDTH}}" for name in names)
    head = f"{heads}   {f'against {first}, points [95 %]':<30}{'> 1 point worse':>15}   {second}"
    rows = [model_row(group, titles.get(m, m), wide, m, metrics) for m, metrics in group["models"].items()]
    return "\n".join([f"{title:{wide + 2}}{head}", *rows])


def model_row(group: Group, title: str, wide: int, model: str, metrics: Mapping[str, Any]) -> str:
    own, other = (group[f"against_{name}"].get(model) for name, _ in yardsticks(group))
    compared = f"{difference_columns(own)}   {interval(other)}"
    return f"  {title:{wide}}{spread_columns(metrics, WIDTH)}   {compared}".rstrip()


def spread_columns(metrics: Mapping[str, Any], width: int) -> str:
    """The metrics of one model, with their deviation over seeds where there are several."""
    return " ".join(f"{with_spread(metrics.get(key)):>{width}}" for key in columns_of([metrics]))


def columns_of(models: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Metrics of a table of these models, and their titles."""
    return columns_with(next(iter(models), {ACCURACY: 0.0}))


def with_spread(value: Any) -> str:
    """A share, or {"mean", "sd"} of one, in percent."""
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{100 * value:.1f}%"
    return f"{100 * value['mean']:.1f}%" + (f" ± {100 * value['sd']:.1f}" if value["sd"] else "")


def difference_columns(d: Mapping[str, Any] | None) -> str:
    """A difference with its interval, and how many devices are harmed by more than a point."""
    if d is None:
        return ""
    harmed = f"{round(d['worse_by_a_point'] * d['devices'])} of {d['devices']}"
    return f"{interval(d):<30}{harmed:>15}"


def interval(d: Mapping[str, Any] | None) -> str:
    """A mean difference with its interval, in points."""
    if d is None or d["devices"] == 1:  # a single device has no interval
        return "" if d is None else points(d["mean"])
    return f"{points(d['mean'])} [{points(d['low'])}, {points(d['high'])}]"


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}"


# Confusion ------------------------------------------------------------------------------------------------------
def confusion_tables(devices: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> str:
    """For each device and model of the run, a row for each class that occurs: how many were taken for what."""
    return "\n\n".join(
        confusion_table(d["device"], model, matrix, classes)
        for d in devices
        for model, matrix in d["confusion"].items()
        if model not in (MAJORITY, FLEET, ALONE)
    )


def confusion_table(device: str, model: str, matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Rows: what it was; columns: what it was taken for; classes that neither occur nor were guessed are left out."""
    seen = [i for i in range(len(classes)) if any(matrix[i]) or any(row[i] for row in matrix)]
    wide = max(len(classes[i]) for i in seen)
    head = f"{device}, {TITLES.get(model, model)}: {'taken for':>{max(0, wide - len(device))}}"
    names = " ".join(f"{classes[i][:8]:>8}" for i in seen)
    rows = [f"{classes[i]:{wide}} " + " ".join(f"{matrix[i][j]:>8}" for j in seen) for i in seen if any(matrix[i])]
    return "\n".join([head.rstrip(), f"{'':{wide}} {names}", *rows])
