"""What the report of a simulation has beside that of a replay: the virtual clock, and when scores were reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any

from edge_sdk.methods.shared.evaluation.reports import mean_accuracies
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.metrics.statistics import MACRO_F1, title_in
from edge_sdk.replay.reports import charts, sections
from edge_sdk.replay.reports.terminal import Result, format_percent, format_size

HOUR = 3600.0
Scores = Callable[[Mapping[str, Any]], Mapping[str, float]]
"""Model -> its score in a line of metrics."""


def reached_table(result: Result) -> str:
    """When each accuracy was reached, as text: rounds, time of the virtual clock, bytes."""
    rows = [reached_row(found) for found in result["simulation"]["reached"]]
    head = f"{'reached':>8} {'model':14} {'round':>6} {'clock h':>9} {'sent':>10}"
    return "\n".join([head, *(f"{a:>8} {b:14} {c:>6} {d:>9} {e:>10}" for a, b, c, d, e in rows)]) if rows else ""


def reached_row(found: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    share, hours = format_percent(found["target"]), found["clock"] / HOUR
    return share, found["model"], str(found["round"]), f"{hours:.2f}", format_size(found["bytes"])


def section(result: Result) -> str:
    """The section of the page; "" for the result of a replay."""
    told = result.get("simulation")
    if told is None:
        return ""
    lead = (
        f"{told['clients']} clients, {told['answers']} answers, {told['answers_per_second']:.0f} of them a second on "
    )
    lead += f"{told['ranks']} processes; the virtual clock stood at {told['clock'] / HOUR:.2f} h in the end."
    lead += bootstrap_sentence(told)
    head = ["reached", "model", "round", "clock, h", "sent"]
    rows = sections.table(head, [reached_row(found) for found in told["reached"]]) if told["reached"] else ""
    return f"<h2>On the virtual clock</h2><p class='lead'>{lead}</p>{curves(result)}{rows}"


def bootstrap_sentence(told: Mapping[str, Any]) -> str:
    """Where bootstrapped clients come from; "" where they are not."""
    if not (recorded := told.get("recorded")):
        return ""
    people = f" The clients are bootstrapped from {len(recorded)} recorded devices: each trains on a resample of one's "
    people += (
        "windows, and is judged on what that device held out. They are not so many different persons: intervals over "
    )
    return people + "clients are too narrow."


def curves(result: Result) -> str:
    """Scores over the hours of the virtual clock, and over what has crossed all hops: accuracies or macro-F1; of values
    the errors of each."""
    over = {"hours": ("clock", HOUR), "MB": ("bytes_so_far", 1e6)}
    cells = [
        f"<div><h2>{escape(f'{title[:1].upper()}{title[1:]} over {unit}')}</h2>{chart}</div>"
        for title, scores in scores_over(result).items()
        for unit, (key, size) in over.items()
        if (chart := scores_chart(result, scores, title, unit, (key, size)))
    ]
    return f"<div class='two'>{''.join(cells)}</div>"


def scores_over(result: Result) -> dict[str, Scores]:
    """Title of a score -> what a line of metrics has of it, by model."""
    if ANOMALIES in result:
        return {"mean error": partial(errors_in, "window")}
    if "values" not in result:
        return {title_in(result): lambda line: line.get(MACRO_F1) or mean_accuracies(line["sums"])}
    task = result["values"]["task"]
    named = zip(task["names"], task["units"], strict=True)
    return {f"MAE of {name}{f' ({unit})' if unit else ''}": partial(errors_in, name) for name, unit in named}


def errors_in(name: str, line: Mapping[str, Any]) -> dict[str, float]:
    """Model -> mean error of a value, or of windows, in a line of metrics."""
    return {model: errors[name] for model, errors in line.get("errors", {}).items()}


def scores_chart(result: Result, scores: Scores, title: str, unit: str, over: tuple[str, float]) -> str:
    """A chart of the models' scores over a figure that each line of metrics has. `over`: its key, and its unit."""
    key, size = over
    found = [(line[key] / size, scores(line)) for line in result["curve"] if "sums" in line]
    series = {
        name: [(x, own[model]) for x, own in found if model in own]
        for model, name in (("global", "global model"), ("personal", "personalised"))
    }
    kept, errors = {name: points for name, points in series.items() if points}, bool({"values", ANOMALIES} & {*result})
    return charts.lines(kept, unit, title, percent=not errors, has_zero=errors)


def comparison_lines(runs: list[Mapping[str, Any]]) -> list[str]:
    """Lines of `auscult compare` about simulations: rows of models and accuracies, columns of runs with one seed."""
    runs = [run for run in runs if run["reached"] is not None]  # of several seeds nobody knows
    keys = list(dict.fromkeys((f["model"], f["target"]) for run in runs for f in run["reached"]))
    if not keys:
        return []
    wide = max(16, *(len(run["name"]) for run in runs))
    ticks = any(f["clock"] for run in runs for f in run["reached"])  # nothing takes time where nobody is slow
    lines = [
        "",
        f"reached after {'hours of the virtual clock / ' * ticks}what was sent",
        f"{'':24}" + "".join(f" {r['name']:>{wide}}" for r in runs),
    ]
    for model, target in sorted(keys):
        cells = (cell(run["reached"], model, target, ticks) for run in runs)
        lines.append(f"{format_percent(target):>8} {model:15}" + "".join(f" {text:>{wide}}" for text in cells))
    return lines


def cell(reached: list[Mapping[str, Any]] | None, model: str, target: float, ticks: bool) -> str:
    found = next((f for f in reached or () if (f["model"], f["target"]) == (model, target)), None)
    if found is None:
        return "-"
    return f"{found['clock'] / HOUR:.2f} / " * ticks + format_size(found["bytes"])
