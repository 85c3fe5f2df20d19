"""Sections of the page of a replay that reconstructs or forecasts: figures of models, errors over rounds, devices."""

from __future__ import annotations

from html import escape

from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.anomalies.tables import (
    ALARMS,
    AUROC,
    FOUND,
    HEAD,
    NOTE,
    figures_in_use,
    model_rows,
    number,
)
from edge_sdk.replay.errors.page import devices_chart, rounds_chart
from edge_sdk.replay.errors.tables import COLUMNS, Result
from edge_sdk.replay.reports.sections import table

AXIS = "mean error"


def anomalies_section(result: Result) -> str:
    """A table of models, and charts over rounds and over devices."""
    rounds = rounds_chart(result, "window", "Error", "windows", AXIS)
    return f"{models_section(result)}{rounds}{per_device(result)}"


def models_section(result: Result) -> str:
    """The table of models."""
    lines = [[title, *cells] for title, cells in model_rows(result)]
    title = "Errors and anomalies on test windows, means over devices"
    lead = f"<p class='lead'>{escape(NOTE)}.</p>"
    return f"<h2>{title}</h2>{lead}{table(['', *HEAD], lines)}"


def per_device(result: Result) -> str:
    """A row for each device with the error of each model, and the same as a table."""
    devices = [d for d in result["devices"] if d[ANOMALIES]]
    models = [m for m in COLUMNS if any(m in d[ANOMALIES] for d in devices)]
    errors = {m: [d[ANOMALIES].get(m, {}).get("error") for d in devices] for m in models}
    used = [figures_in_use(d[ANOMALIES]) for d in devices]
    more = {one.title: [one.cell(figures) for figures in used] for one in (AUROC, FOUND, ALARMS)}
    return devices_chart(devices, errors, number, ("Error", AXIS, "windows"), more)
