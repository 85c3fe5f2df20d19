"""Sections of the report page: statistics, differences to training alone, recall by class, what was run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.reports import charts
from edge_sdk.replay.reports.tables import METRICS, PHRASES, TITLES, interval
from edge_sdk.replay.reports.terminal import Result, format_percent
from edge_sdk.replay.scores import FLEET, LOCAL

HARMED = 0.01
"""A device is marked as harmed if it loses more accuracy than this against training alone."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table that scrolls sideways where the screen is narrow."""
    heads = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(c))}</td>' for c in cells)}</tr>" for cells in rows)
    return f"<div class='wide'><table><tr>{heads}</tr>{body}</table></div>"


def statistics_section(result: Result) -> str:
    """For each group of devices, mean metrics on test samples, and paired differences to training alone."""
    parts = []
    head = ["", "accuracy", "macro-F1", "balanced accuracy", "against local, points [95 %]", "worse by > 1 point"]
    for name, group in result.get("statistics", {}).items():
        rows = [statistics_row(group, model, metrics) for model, metrics in group["models"].items()]
        parts.append(f"<h2>Test samples, {escape(PHRASES[name].format(group['devices']))}</h2>{table(head, rows)}")
    return "".join(parts)


def statistics_row(group: Mapping[str, Any], model: str, metrics: Mapping[str, float]) -> list[str]:
    found = group[f"against_{LOCAL}"].get(model)
    harmed = "" if found is None else f"{round(found['worse_by_a_point'] * found['devices'])} of {found['devices']}"
    return [TITLES.get(model, model), *(format_percent(metrics.get(key)) for key in METRICS), interval(found), harmed]


def differences_section(result: Result) -> str:
    """Section with the gain of each device's personalised model over the one that it trains alone."""
    both = [d for d in result["devices"] if {LOCAL, "personalised"} <= {*d["accuracy"]}]
    if not both:
        return ""
    points = [100 * (d["accuracy"]["personalised"] - d["accuracy"][LOCAL]) for d in both]
    harmed = [d["device"] for d, p in zip(both, points, strict=True) if p < -100 * HARMED]
    words = f"worse off than alone by more than a point: {', '.join(harmed)}" if harmed else "no device is worse off"
    chart = charts.differences([d["device"] for d in both], points, "points against training alone, by device")
    lead = f"<p class='lead'>Personalised minus local, percentage points; {escape(words)}.</p>"
    return f"<h2>Against training alone, per device</h2>{lead}{chart}"


def recall_section(result: Result, kinds: Mapping[str, str]) -> str:
    """Recall of each class, mean over the devices that have test samples of it."""
    having = [d["recall"] for d in result["devices"] if d.get("recall")]
    models = [m for m in (*kinds, FLEET) if m != FLEET and any(m in recall for recall in having)]
    rows = []
    for name in result.get("classes", []):
        found = {m: [r[m][name] for r in having if name in r.get(m, {})] for m in models}
        if any(found.values()):
            means = [format_percent(sum(values) / len(values)) if values else "-" for values in found.values()]
            rows.append([name, max(map(len, found.values())), *means])
    if not rows:
        return ""
    head = ["class", "devices", *(kinds[m] for m in models)]
    return f"<h2>Recall by class</h2><p class='lead'>Means over the devices that have the class.</p>{table(head, rows)}"


def circumstances_section(result: Result) -> str:
    """What was run, so that it can be run again."""
    made = result.get("made", {})
    if not made:
        return ""
    given = {f"--{key}": result.get(key) for key in ("settle", "augment") if result.get(key)}
    rows = [
        ["command", made["command"]],
        ["date", made["date"]],
        ["auscult", made["version"]],
        ["processor", f"{made['processor']}; others round differently" if "processor" in made else ""],
        ["model", ", ".join(made["bundles"])],
        ["settings", ", ".join(f"{k} = {v}" for k, v in {**result["settings"], **given}.items()) or "defaults"],
    ]
    return f"<h2>What was run</h2>{table(['', ''], [r for r in rows if r[1]])}"
