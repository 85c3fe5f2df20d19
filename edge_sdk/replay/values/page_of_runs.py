"""Sections of pages about several runs of values: several seeds of one, or several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import nan
from typing import Any

from edge_sdk.replay.errors.page import SHOWN, round_errors
from edge_sdk.replay.errors.tables import COLUMNS, Result
from edge_sdk.replay.reports import charts, rows
from edge_sdk.replay.reports.rows import over_seeds, run_colours, spread
from edge_sdk.replay.reports.sections import table
from edge_sdk.replay.values.comparison import ValueRun, difference_rows
from edge_sdk.replay.values.page import errors_table
from edge_sdk.replay.values.scores import absolute_errors, devices_in
from edge_sdk.replay.values.tables import model_rows, named_units, with_unit


def seeds_sections(found: Result, runs: Sequence[Result]) -> str:
    """For each value a table of models, curves and devices: means over seeds, and their range.

    Args:
        found: the summary of the seeds. runs: their results.
    """
    return "".join(
        f"{errors_table(found, name)}<div class='two'><div>{seeds_curves(runs, name, with_unit(name, unit))}</div>"
        f"<div>{seeds_devices(runs, name, with_unit(name, unit))}</div></div>"
        for name, unit in named_units(found).items()
    )


def seeds_curves(runs: Sequence[Result], name: str, of: str) -> str:
    """Mean absolute error of the models in rounds: mean over seeds, and the range of them behind it."""
    every = [round_errors(run, name) for run in runs]
    found = {title: over_seeds([one[title] for one in every if title in one]) for title in SHOWN.values()}
    means = {title: [(x, i.value) for x, i in points] for title, points in found.items() if points}
    bands = {title: [(x, i.low, i.high) for x, i in points] for title, points in found.items() if points}
    head = f"<h2>Mean absolute error of {escape(of)} over rounds</h2>"
    return head + charts.lines(means, "round", f"MAE, {of}", has_zero=True, bands=bands)


def seeds_devices(runs: Sequence[Result], name: str, of: str) -> str:
    """A row for each device with the error of each model: mean and range over seeds."""
    devices = list(dict.fromkeys(d["device"] for run in runs for d in run["devices"]))
    series = {
        title: [spread([errors[device] for errors in every if device in errors]) for device in devices]
        for model, title in COLUMNS.items()
        if any(every := [absolute_errors(run["devices"], model, name) for run in runs])
    }
    head = f"<h2>Mean absolute error of {escape(of)} per device</h2>"
    return head + rows.intervals(devices, series, f"MAE, {of}")


# Several runs ---------------------------------------------------------------------------------------------------
def comparison_sections(found: Mapping[str, Any], runs: Sequence[ValueRun]) -> str:
    """Differences to the first run, and for each value a table of all runs' models and a chart of each model.

    Args:
        found: as `compare_values` returns it.
    """
    parts = [differences_table(found)]
    for name, unit in named_units({"values": found}).items():
        of = with_unit(name, unit)
        head = ["run", "model", "MAE", "RMSE", "bias", "95 % of errors", "MAE against alone [95 %]"]
        lines = [[run["name"], title, *cells] for run in found["runs"] for title, cells in model_rows(run, name)]
        parts.append(f"<h2>Errors of {escape(of)} on test samples, means over devices</h2>{table(head, lines)}")
        parts += [runs_devices(runs, model, title, name, of) for model, title in SHOWN_OF_RUNS.items()]
    return "".join(parts)


SHOWN_OF_RUNS = {"personalised": "personalised", "global": "global model"}


def differences_table(found: Mapping[str, Any]) -> str:
    """Each run's paired differences to the first, over the devices that both have."""
    lines = difference_rows(found)
    head = ["run", "model", "value", "MAE, difference [95 %]", "devices worse"]
    of = escape(found["runs"][0]["name"])
    return f"<h2>Against {of}, paired over devices</h2>{table(head, lines)}" if lines else ""


def runs_devices(runs: Sequence[ValueRun], model: str, title: str, name: str, of: str) -> str:
    """A row for each device, with the error of one model in each run: mean over its seeds."""
    every = {run.name: absolute_errors(devices_in(run.results), model, name) for run in runs}
    devices = list(dict.fromkeys(device for errors in every.values() for device in errors))
    if not devices:
        return ""
    series = {run: [rows.bare(errors.get(device, nan)) for device in devices] for run, errors in every.items()}
    chart = rows.intervals(devices, series, f"MAE, {of}", colours=run_colours(series))
    return f"<h2>{title[0].upper()}{title[1:]}: mean absolute error of {escape(of)} per device</h2>{chart}"
