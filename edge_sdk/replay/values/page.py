"""Sections of the report page of a replay that predicts values: errors of models, over rounds, and of each device."""

from __future__ import annotations

from html import escape

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.reports import charts, rows
from edge_sdk.replay.reports.rows import bare
from edge_sdk.replay.reports.sections import table
from edge_sdk.replay.values.tables import COLUMNS, Result, model_rows, named_units, number, verdict

SHOWN = {"global": "global model", "personal": "personalised"}


def verdict_section(result: Result) -> str:
    """The first line of a page: who wins."""
    said = verdict(result)
    return f"<p class='verdict'><b>{escape(said)}</b></p>" if said else ""


def errors_section(result: Result) -> str:
    """For each value a table of models, and charts over rounds and over devices."""
    parts = []
    for name, unit in named_units(result).items():
        of = f"{name} ({unit})" if unit else name
        head = ["", "MAE", "RMSE", "bias", "95 % of errors", "MAE against alone [95 %]"]
        lines = [[title, *cells] for title, cells in model_rows(result, name)]
        parts.append(f"<h2>Errors of {escape(of)} on test samples, means over devices</h2>{table(head, lines)}")
        parts.append(rounds_chart(result, name, of) + devices_chart(result, name, of))
    return "".join(parts)


def rounds_chart(result: Result, name: str, of: str) -> str:
    """Mean absolute error of the models as each round found them."""
    points = {
        title: [
            (float(line["round"]) - (line["kind"] == "round"), line["errors"][model][name])
            for line in result["curve"]
            if model in line.get("errors", {})
        ]
        for model, title in SHOWN.items()
    }
    points = {title: sorted(own) for title, own in points.items() if own}
    lead = "<p class='lead'>On the samples by which rounds are judged, mean over devices.</p>"
    chart = charts.lines(points, "round", f"MAE, {of}", has_zero=True)
    return f"<h2>Mean absolute error of {escape(of)} over rounds</h2>{lead}<div class='plot'>{chart}</div>"


def devices_chart(result: Result, name: str, of: str) -> str:
    """A row for each device with the error of each model, and the same as a table."""
    devices = [d for d in result["devices"] if d["errors"]]
    models = [m for m in COLUMNS if any(m in d["errors"] for d in devices)]
    titles = [d["device"] + (" *" if d["newcomer"] else "") for d in devices]
    values = {
        COLUMNS[m]: [bare(d["errors"][m][name]["mae"] if m in d["errors"] else float("nan")) for d in devices]
        for m in models
        if m != MEAN
    }
    chart = rows.intervals(titles, values, f"MAE, {of}")
    lines = [
        [title, d["hospital"], d["samples"], d["held_out"]]
        + [number(d["errors"][m][name]["mae"] if m in d["errors"] else None) for m in models]
        for title, d in zip(titles, devices, strict=True)
    ]
    head = ["device", "hospital", "samples", "held out", *(COLUMNS[m] for m in models)]
    return f"<h2>Mean absolute error of {escape(of)} per device</h2>{chart}{table(head, lines)}"
