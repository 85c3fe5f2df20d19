"""Sections of the report page of a replay that predicts values: errors of models, over rounds, and of each device."""

from __future__ import annotations

from html import escape

from edge_sdk.replay.errors.page import devices_chart, rounds_chart
from edge_sdk.replay.errors.tables import COLUMNS, Result
from edge_sdk.replay.reports.sections import table
from edge_sdk.replay.values.tables import model_rows, named_units, number, with_unit


def errors_section(result: Result) -> str:
    """For each value a table of models, and charts over rounds and over devices."""
    parts = []
    for name, unit in named_units(result).items():
        of = with_unit(name, unit)
        title, axis = f"Mean absolute error of {escape(of)}", f"MAE, {of}"
        devices = [d for d in result["devices"] if d["errors"]]
        errors = {
            m: [d["errors"][m][name]["mae"] if m in d["errors"] else None for d in devices]
            for m in COLUMNS
            if any(m in d["errors"] for d in devices)
        }
        parts += [
            errors_table(result, name),
            rounds_chart(result, name, title, "samples", axis),
            devices_chart(devices, errors, number, (title, axis, "samples"), {}),
        ]
    return "".join(parts)


def errors_table(result: Result, name: str) -> str:
    """A table of models with their errors of one value; of a result, or of the summary of several seeds."""
    of = with_unit(name, named_units(result)[name])
    head = ["", "MAE", "RMSE", "bias", "95 % of errors", "MAE against alone [95 %]"]
    lines = [[title, *cells] for title, cells in model_rows(result, name)]
    return f"<h2>Errors of {escape(of)} on test samples, means over devices</h2>{table(head, lines)}"
