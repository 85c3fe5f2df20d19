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


def number(value: float | None, unit: str = "", signed: bool = False) -> str:
    """A number of three digits or so, with its unit."""
    if value is None:
        return "-"
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


def sentence(d: Mapping[str, Any], ours: str, alone: str, unit: str) -> str:
    """Who wins, by a difference with its interval over devices."""
    own, other = f"{ours} are off by {number(d['mae'], unit)}", f"{alone} alone by {number(d['than'], unit)}"
    if d["devices"] < FEWEST:
        said = f"{FEWEST - 1} devices or fewer are too few to tell who wins"
    elif d["high"] < 0:
        said = "Joining pays"
    else:
        said = "Training alone is better here" if d["low"] > 0 else "Nobody clearly wins here"
    ends = f"{number(d['mean'], signed=True)} [{number(d['low'], signed=True)}, {number(d['high'], signed=True)}]"
    return f"{said}: {own}, {other} ({ends} {unit}; {d['worse']} of {d['devices']} devices worse)."


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
        lines = [
            f"  {title:34} {cells[0]:>10} {cells[1]:>10} {cells[2]:>10}   {cells[3]:>20}   {cells[4]}".rstrip()
            for title, cells in model_rows(result, name)
        ]
        where = f" ({unit})" if unit else ""
        head = f"{name}{where}, {result['values']['devices']} devices"
        columns = f"{'MAE':>10} {'RMSE':>10} {'bias':>10}   {'95 % of errors':>20}   MAE against alone [95 %]"
        parts.append("\n".join([f"{head:36} {columns}", *lines]))
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
