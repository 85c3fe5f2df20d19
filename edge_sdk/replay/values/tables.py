"""Errors of predicted values on a terminal: who wins, a row for each device, a row for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.neighbours.told import COMPUTED
from edge_sdk.replay.reports.verdict import FEWEST, kinds_in_words, titles_of, why_not

Result = Mapping[str, Any]
COLUMNS = {MEAN: "mean", LOCAL: "local", ALONE: "alone", "global": "global", "personalised": "personal"}
"""Model -> its column in the table of devices."""
OURS = {"personalised": "the personal models", "global": "the shared models"}


def named_units(result: Result) -> dict[str, str]:
    """Name of a value -> its unit."""
    task = result["values"]["task"]
    return dict(zip(task["names"], task["units"], strict=True))


def with_unit(name: str, unit: str) -> str:
    """The name of a value, with its unit behind it."""
    return f"{name} ({unit})" if unit else name


def number(value: float | Mapping[str, float] | None, unit: str = "", signed: bool = False) -> str:
    """A number of three digits or so, with its unit; of several seeds their mean, and their deviation behind it."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        shown = number(value["mean"], signed=signed) + (f" ± {number(value['sd'])}" if value["sd"] else "")
        return f"{shown} {unit}".rstrip()
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 100 else 0
    return f"{value:{'+' if signed else ''}.{digits}f} {unit}".rstrip()


def verdict(result: Result) -> str:
    """Who wins, in a sentence for each value."""
    told = result.get("neighbours") or {}
    if not told:
        return ""
    if told["state"] != COMPUTED:
        return why_not(told)
    found = result["values"]["against"][ALONE]
    ours = next((name for name in OURS if name in found), None)
    if ours is None:
        return "The strongest neighbour has nothing to be compared with here."
    alone = kinds_in_words(told["chosen"], told["on"])
    several = len(found[ours]) > 1
    parts = [
        (f"{value}: " if several else "") + sentence(d, OURS[ours], alone, named_units(result)[value])
        for value, d in found[ours].items()
    ]
    return " ".join(parts)


def who_wins(d: Mapping[str, Any]) -> str:
    """The beginning of a sentence on a difference of errors over devices, lower is better, by its interval."""
    if d["devices"] < FEWEST:
        return f"{FEWEST - 1} devices or fewer are too few to tell who wins"
    if d["high"] < 0:
        return "Joining pays"
    return "Training alone is better here" if d["low"] > 0 else "Nobody clearly wins here"


def sentence(d: Mapping[str, Any], ours: str, alone: str, unit: str) -> str:
    """Who wins, by a difference with its interval over devices."""
    own, other = f"{ours} are off by {number(d['mae'], unit)}", f"{alone} alone by {number(d['than'], unit)}"
    ends = (
        f"{number(d['mean'], signed=True)} [{number(d['low'], signed=True)}, {number(d['high'], signed=True)}] {unit}"
    )
    return f"{who_wins(d)}: {own}, {other} ({ends.rstrip()}; {d['worse']} of {d['devices']} devices worse)."


def device_table(result: Result) -> str:
    """Mean absolute errors on test samples: a row for each device, a table for each value."""
    return "\n\n".join(table_of_value(result, name, unit) for name, unit in named_units(result).items())


def table_of_value(result: Result, name: str, unit: str) -> str:
    rows = [line_of(d["device"] + (" *" if d["newcomer"] else ""), d, d["errors"], name) for d in result["devices"]]
    title = f"mean absolute error of {name}" + (f" in {unit}" if unit else "") + ", test samples"
    head = f"{'device':18} {'hospital':14} {'samples':>8} {'held out':>9} " + " ".join(
        f"{title:>9}" for title in COLUMNS.values()
    )
    empty = {"hospital": "", "samples": "", "held_out": ""}
    mean = line_of("mean", empty, result["values"]["models"], name)
    note = ["* joined the finished run, and is not in the mean"] * any(d["newcomer"] for d in result["devices"])
    rule = "-" * len(head)
    return "\n".join([title, head, rule, *rows, rule, mean, *note])


def line_of(title: str, d: Mapping[str, Any], errors: Mapping[str, Any], name: str) -> str:
    cells = (number(errors[model][name]["mae"] if model in errors else None) for model in COLUMNS)
    return f"{title:18} {d['hospital']:14} {d['samples']!s:>8} {d['held_out']!s:>9} " + " ".join(
        f"{cell:>9}" for cell in cells
    )


def titles(result: Result) -> dict[str, str]:
    """Model -> what it is called."""
    return {**titles_of(result), MEAN: "mean of the training targets", "local": "local network"}


def model_table(result: Result) -> str:
    """Errors of each model, means over devices, and the paired difference to training alone."""
    parts = []
    for name, unit in named_units(result).items():
        rows = model_rows(result, name)
        spread = any("±" in cell for _, cells in rows for cell in cells)  # over seeds: all columns are wider
        wide, limits, each = max(34, *(len(title) for title, _ in rows)), *((36, 16) if spread else (20, 10))
        lines = [
            f"  {title:{wide}} {''.join(f'{cell:>{each}} ' for cell in cells[:3])}  {cells[3]:>{limits}}   {cells[4]}"
            for title, cells in rows
        ]
        where = f" ({unit})" if unit else ""
        head = f"{name}{where}, {result['values']['devices']} devices"
        names = "".join(f"{column:>{each}} " for column in ("MAE", "RMSE", "bias"))
        columns = f"{names}  {'95 % of errors':>{limits}}   MAE against alone [95 %]"
        parts.append("\n".join([f"{head:{wide + 2}} {columns}", *(line.rstrip() for line in lines)]))
    return "\n\n".join(parts)


def model_rows(result: Result, name: str) -> list[tuple[str, Sequence[str]]]:
    """Title of each model, and its cells: MAE, RMSE, bias, limits of agreement, difference to training alone."""
    found = list[tuple[str, Sequence[str]]]()
    against = result["values"]["against"][ALONE] or result["values"]["against"][LOCAL]
    for model, errors in result["values"]["models"].items():
        e = errors[name]
        d = against.get(model, {}).get(name)
        ends = "" if d is None else " to ".join(number(d[key], signed=True) for key in ("low", "high"))
        compared = "" if d is None else f"{number(d['mean'], signed=True)} [{ends}]"
        limits = f"{number(e['low'], signed=True)} to {number(e['high'], signed=True)}"
        cells = [number(e["mae"]), number(e["rmse"]), number(e["bias"], signed=True), limits, compared]
        found.append((titles(result).get(model, model), cells))
    return found
