"""Sections of the page of a replay that reconstructs or forecasts: figures of models, errors over rounds, devices."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.anomalies.tables import (
    COLUMNS,
    HEAD,
    NOTE,
    OURS,
    Result,
    auroc,
    model_rows,
    number,
    share,
    verdict,
)
from edge_sdk.replay.reports import charts, rows
from edge_sdk.replay.reports.rows import bare
from edge_sdk.replay.reports.sections import table

SHOWN = {"global": "global model", "personal": "personalised"}


def verdict_section(result: Result) -> str:
    """The first line of a page: who wins."""
    said = verdict(result)
    return f"<p class='verdict'><b>{escape(said)}</b></p>" if said else ""


def anomalies_section(result: Result) -> str:
    """A table of models, and charts over rounds and over devices."""
    return f"{models_section(result)}{rounds_chart(result)}{devices_chart(result)}"


def models_section(result: Result) -> str:
    """The table of models."""
    head = ["", *HEAD, "AUROC, all windows", "error against alone [95 %]"]
    lines = [[title, *cells] for title, cells in model_rows(result)]
    title = "Errors and anomalies on test windows, means over devices"
    lead = f"<p class='lead'>{escape(NOTE)}.</p>"
    return f"<h2>{title}</h2>{lead}{table(head, lines)}"


def rounds_chart(result: Result) -> str:
    """Mean error of the models as each round found them."""
    points = {
        title: sorted(
            (float(line["round"]) - (line["kind"] == "round"), line["errors"][model]["window"])
            for line in result["curve"]
            if model in line.get("errors", {})
        )
        for model, title in SHOWN.items()
    }
    lead = "<p class='lead'>On the windows by which rounds are judged, mean over devices.</p>"
    chart = charts.lines({title: own for title, own in points.items() if own}, "round", "mean error", has_zero=True)
    return f"<h2>Error over rounds</h2>{lead}<div class='plot'>{chart}</div>"


def devices_chart(result: Result) -> str:
    """A row for each device with the error of each model, and the same as a table."""
    devices = [d for d in result["devices"] if d[ANOMALIES]]
    models = [m for m in COLUMNS if any(m in d[ANOMALIES] for d in devices)]
    titles = [d["device"] + (" *" if d["newcomer"] else "") for d in devices]
    errors = {m: [d[ANOMALIES].get(m, {}).get("error") for d in devices] for m in models}
    shown = {COLUMNS[m]: [bare(float("nan") if e is None else e) for e in errors[m]] for m in models if m != MEAN}
    used: list[Mapping[str, Any]] = [next((d[ANOMALIES][m] for m in OURS if m in d[ANOMALIES]), {}) for d in devices]
    lines = [
        [
            title,
            d["hospital"],
            d["samples"],
            d["held_out"],
            *(number(errors[m][at]) for m in models),
            auroc(used[at]),
            share(used[at].get("found")),
            share(used[at].get("alarms")),
        ]
        for at, (title, d) in enumerate(zip(titles, devices, strict=True))
    ]
    head = ["device", "hospital", "windows", "held out", *(COLUMNS[m] for m in models), "AUROC", "found", "alarms"]
    chart = rows.intervals(titles, shown, "mean error")
    return f"<h2>Error per device</h2>{chart}{table(head, lines)}"
