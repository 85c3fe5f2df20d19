"""What pages on errors share: who wins, errors over rounds, and a chart and a table of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.errors.tables import COLUMNS, Result, mark_newcomers
from edge_sdk.replay.reports import charts, rows
from edge_sdk.replay.reports.rows import bare
from edge_sdk.replay.reports.sections import table

SHOWN = {"global": "global model", "personal": "personalised"}


def round_errors(result: Result, name: str) -> dict[str, list[tuple[float, float]]]:
    """Title of a model -> rounds behind it, and its mean error. `name`: of a value, or "window"."""
    points = {
        title: sorted(
            (float(line["round"]) - (line["kind"] == "round"), line["errors"][model][name])
            for line in result["curve"]
            if model in line.get("errors", {})
        )
        for model, title in SHOWN.items()
    }
    return {title: own for title, own in points.items() if own}


def rounds_chart(result: Result, name: str, title: str, samples: str, axis: str) -> str:
    """Mean error of the models as each round found them.

    Args:
        name: of a value, or "window". title: as HTML has it. samples: what is judged. axis: what is drawn.
    """
    lead = f"<p class='lead'>On the {samples} by which rounds are judged, mean over devices.</p>"
    chart = charts.lines(round_errors(result, name), "round", axis, has_zero=True)
    return f"<h2>{title} over rounds</h2>{lead}<div class='plot'>{chart}</div>"


def devices_chart(
    devices: Sequence[Mapping[str, Any]],
    errors: Mapping[str, Sequence[float | None]],
    number: Callable[[float | None], str],
    labels: tuple[str, str, str],
    more: Mapping[str, Sequence[str]],
) -> str:
    """A row for each device with the error of each model, and the same as a table.

    Args:
        errors: model -> of each device; None: it has none.
        labels: the title as HTML has it, what is drawn, and what is counted.
        more: title of a further column -> its cells.
    """
    title, axis, samples = labels
    names = mark_newcomers(devices)
    shown = {COLUMNS[m]: [bare(nan if e is None else e) for e in own] for m, own in errors.items() if m != MEAN}
    columns = [*([number(e) for e in own] for own in errors.values()), *more.values()]
    lines = [
        [name, d["hospital"], d["samples"], d["held_out"], *(column[at] for column in columns)]
        for at, (name, d) in enumerate(zip(names, devices, strict=True))
    ]
    head = ["device", "hospital", samples, "held out", *(COLUMNS[m] for m in errors), *more]
    return f"<h2>{title} per device</h2>{rows.intervals(names, shown, axis)}{table(head, lines)}"
