"""Errors of predicted values on a terminal: who wins, a row for each device, a row for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.errors.tables import COLUMNS, OURS, Result, grid, verdict_on, who_wins, with_interval
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.reports.verdict import kinds_in_words, titles_of


def named_units(result: Result) -> dict[str, str]:
    """Name of a value -> its unit."""
    task = result["values"]["task"]
    return dict(zip(task["names"], task["units"], strict=True))


def with_unit(name: str, unit: str) -> str:
    """The name of a value, with its unit behind it."""
    return f"{name} ({unit})" if unit else name


def number(value: float | Mapping[str, float] | None, unit: str = "", signed: bool = False) -> str:
    """A number of three digits or so, with its unit; of several seeds their mean and, with as many decimals,
    their deviation."""
    if value is None:
        return "-"
    mean, deviation = (value["mean"], value["sd"]) if isinstance(value, Mapping) else (value, 0.0)
    digits = 3 if abs(mean) < 1 else 2 if abs(mean) < 100 else 0
    shown = f"{mean:{'+' if signed else ''}.{digits}f}{f' ± {deviation:.{digits}f}' if deviation else ''}"
    return f"{shown} {unit}".rstrip()


def signed(value: float) -> str:
    """A number with its sign."""
    return number(value, signed=True)


def verdict(result: Result) -> str:
    """Who wins, in a sentence for each value."""
    found = result["values"]["against"][ALONE]

    def say(ours: str) -> str:
        told, units = result["neighbours"], named_units(result)
        alone = kinds_in_words(told["chosen"], told["on"])
        return " ".join(
            (f"{value}: " if len(found[ours]) > 1 else "") + sentence(d, OURS[ours], alone, units[value])
            for value, d in found[ours].items()
        )

    return verdict_on(result, found, say)


def sentence(d: Mapping[str, Any], ours: str, alone: str, unit: str) -> str:
    """Who wins, by a difference with its interval over devices."""
    own, other = f"{ours} are off by {number(d['mae'], unit)}", f"{alone} alone by {number(d['than'], unit)}"
    ends = f"{with_interval(d, signed, ', ')} {unit}".rstrip()
    return f"{who_wins(d)}: {own}, {other} ({ends}; {d['worse']} of {d['devices']} devices worse)."


def device_table(result: Result) -> str:
    """Mean absolute errors on test samples: a row for each device, a table for each value."""
    return "\n\n".join(table_of_value(result, name, unit) for name, unit in named_units(result).items())


def table_of_value(result: Result, name: str, unit: str) -> str:
    def cells(errors: Mapping[str, Any]) -> list[str]:
        return [number(errors[model][name]["mae"] if model in errors else None) for model in COLUMNS]

    where = ", all steps of test samples" if result["values"]["task"].get("steps") else ", test samples"
    title = f"mean absolute error of {name}" + (f" in {unit}" if unit else "") + where
    devices = result["devices"]
    rows, mean = [cells(d["errors"]) for d in devices], cells(result["values"]["models"])
    return grid(title, "samples", [*COLUMNS.values()], devices, rows, mean)


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
        compared = "" if d is None else with_interval(d, signed)
        limits = f"{signed(e['low'])} to {signed(e['high'])}"
        cells = [number(e["mae"]), number(e["rmse"]), signed(e["bias"]), limits, compared]
        found.append((titles(result).get(model, model), cells))
    return found
