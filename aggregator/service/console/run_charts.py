"""Charts of a run for its page, drawn as SVG on this side: they are there without JavaScript, and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from edge_sdk.methods.shared.evaluation.reports import (
    ACCURACY,
    accuracy_spreads,
    mean_accuracies,
    mean_loss,
    share_name,
)
from edge_sdk.replay.errors.page import round_errors
from edge_sdk.replay.metrics.statistics import MACRO_F1
from edge_sdk.replay.reports.charts import bars, lines
from edge_sdk.replay.reports.page import COLOURS, accuracy_bands, accuracy_curves, per_round

Hops = Mapping[str, int | None]
HOPS = {
    "device_up": "devices up",
    "device_down": "devices down",
    "hospital_up": "hospitals up",
    "hospital_down": "hospitals down",
}
TRAFFIC = {"bytes_down": "down", "bytes_up": "up"}
PHASES = {"seconds": "whole round", "training": "training", "evaluation": "evaluation", "aggregator": "aggregator"}
OWN = {
    **{"down": "var(--c3)", "up": "var(--c0)", "loss": "var(--c4)", "whole round": "var(--c5)"},
    **{"training": "var(--c0)", "evaluation": "var(--c2)", "aggregator": "var(--c1)"},
    **{"harmed": "var(--c4)", "density": "var(--c2)", "rank": "var(--c1)"},
}
"""Curve that is no model's accuracy -> its colour."""
MEANS = "Means over devices."
SPREAD = "Means over devices; shaded: one standard deviation between them."
ERRORS = "Means over devices; of values at steps over all steps."
AT_AGGREGATOR = "Between the aggregator and its hospitals."
TIMES = "Training and evaluation: until the slowest hospital has answered. Aggregator: the rest of the round."
HOP_NOTE = "Between devices and hospitals: known of hospitals that report their devices by name."
HARM = "Their personalised model is right on fewer held-out samples than the global one, by more than a point."
HARM_F1 = "Their personalised model has a lower macro-F1 than the global one, by more than a point."
DENSITY = "Share of a personal component's entries that are not zero, mean over devices."
MOST_POINTS = 400
"""Points of one curve; of longer ones each n-th is drawn."""


def draw_accuracy(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean accuracy of the models over rounds, with the spread over devices."""
    result = {"curve": thin(found)}
    return draw(accuracy_curves(result), score_of(found), percent=True, bands=accuracy_bands(result))


def draw_score(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean accuracy over rounds, or in place of it macro-F1 of sets of labels, or the error of the first value."""
    of_values = draw_errors(found)
    if of_values:
        return of_values[0].svg
    return draw_macro_f1(found) if are_sets(found) else draw_accuracy(found)


def draw_macro_f1(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean macro-F1 of models of sets of labels over rounds, with the spread over devices."""
    result = {"curve": thin(found), "score": MACRO_F1}
    return draw(accuracy_curves(result), "macro-F1", percent=True, bands=accuracy_bands(result))


def score_of(found: Sequence[dict[str, Any]]) -> str:
    """What the accuracies of some lines are called."""
    return next((share_name(line) for line in reversed(found) if mean_accuracies(line.get("sums", {}))), ACCURACY)


@dataclass(frozen=True)
class Chart:
    """A chart of a run's page.

    Attributes:
        title: above it.
        svg: the chart.
        note: a sentence below it, or empty.
        csv: name of the file with its numbers, below the run's address; "": there is none.
    """

    title: str
    svg: Markup
    note: str = ""
    csv: str = "rounds.csv"


def draw_errors(found: Sequence[dict[str, Any]]) -> list[Chart]:
    """Mean absolute errors of models over rounds, a chart for each value; none of models that predict no values."""
    told = next((line for line in reversed(found) if line.get("errors") and line.get("units")), None)
    names = {} if told is None else next(iter(told["errors"].values()))
    charts = []
    for name, unit in zip(names, told["units"] if told else (), strict=False):
        of, curves = f"{name} in {unit}" if unit else name, round_errors({"curve": thin(found)}, name)
        title = f"Mean absolute error of {of}, held-out samples"
        charts.append(Chart(title, draw(curves, of, has_zero=True), ERRORS, ""))
    return charts


def list_charts(lines: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], hops: Hops) -> list[Chart]:
    """All charts of a run's page; those of figures that its method does not have are left out.

    Args:
        rows: of the table of rounds.
        hops: hop -> bytes so far, or None where they are not known.
    """
    means = SPREAD if any(accuracy_spreads(line.get("sums", {})) for line in lines) else MEANS
    found = [
        Chart(f"{score_of(lines).capitalize()} on held-out samples", draw_accuracy(lines), means),
        Chart("Training loss", draw_loss(lines)),
        Chart("MB of each round", draw_column(rows, TRAFFIC, 1e6, "MB"), AT_AGGREGATOR),
        Chart(
            "Seconds of each round", draw_column(rows, PHASES, 1.0, "seconds"), TIMES if has(rows, "training") else ""
        ),
        Chart("MB on each hop so far", draw_hops(hops), HOP_NOTE * (hops["device_up"] is None), "hops.csv"),
    ]
    if of_values := draw_errors(lines):
        found[:1] = of_values
    if in_sets := are_sets(lines):
        found.insert(0, Chart("Macro-F1 on held-out samples", draw_macro_f1(lines), means, ""))
    if has(rows, "harmed"):
        harm = HARM_F1 if in_sets else HARM
        found.append(Chart("Devices harmed", draw_column(rows, {"harmed": "harmed"}, 1.0, "devices"), harm))
    if has(rows, "density"):
        found.append(Chart("Personal density", draw_density(rows), DENSITY))
    if has(rows, "rank"):
        sent = f"{rows[-1]['sent_parameters']:,} parameters travel down: the fewer, the lower the ranks."
        found.append(Chart("Mean rank of the layers", draw_column(rows, {"rank": "rank"}, 1.0, "rank"), sent))
    return found


def has(rows: Sequence[dict[str, Any]], column: str) -> bool:
    return any(row[column] is not None for row in rows)


def draw_hops(hops: Hops) -> Markup:
    """Bytes of each hop, as bars."""
    known = {HOPS[key]: count for key, count in hops.items() if count is not None}
    return Markup(bars([*known], {"MB": [count / 1e6 for count in known.values()]}, "MB", colours={"MB": "var(--c3)"}))


def draw_density(rows: Sequence[dict[str, Any]]) -> Markup:
    """Mean share of the personal components that is not zero, after each evaluation."""
    points = [(row["round"], row["density"]) for row in thin(rows) if row["density"] is not None]
    return draw({"density": points}, "share that is not zero", percent=True)


def draw_loss(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean training loss over rounds."""
    return draw({"loss": per_round({"curve": thin(found)}, mean_loss)}, "loss")


def draw_column(rows: Sequence[dict[str, Any]], names: dict[str, str], scale: float, y_name: str) -> Markup:
    """Columns of the table of rounds. `names`: column -> how its curve is called."""
    few = thin(rows)
    curves = {
        name: [(row["round"], row[key] / scale) for row in few if row[key] is not None] for key, name in names.items()
    }
    return draw(curves, y_name, has_zero=True)


def list_comparisons(found: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Markup]:
    """Title -> chart of one model in several runs: accuracies, and macro-F1 where runs are of sets of labels.

    Args:
        found: run -> its lines of metrics.
    """
    errors, models = compare_errors(found), ("personalised", "global model")
    in_shares = {run: some for run, some in found.items() if not any(one.get("errors") for one in some)}
    score = " or ".join(sorted({score_of(some) for some in in_shares.values()}))
    titles = {"macro-F1": MACRO_F1} if any(map(are_sets, in_shares.values())) else {}
    titles |= {score: ACCURACY} if in_shares else {}
    return errors | {
        f"{title[:1].upper()}{title[1:]}, {model}": draw_comparison(in_shares, model, title, key)
        for title, key in titles.items()
        for model in models
    }


def compare_errors(found: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Markup]:
    """Title -> chart of the error of a value by one model, in the runs that predict it in this unit."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run, some in found.items():
        told: dict[str, Any] = next((line for line in reversed(some) if line.get("errors") and line.get("units")), {})
        for name, unit in zip(next(iter(told.get("errors", {}).values()), ()), told.get("units", ()), strict=False):
            of = f"{name} in {unit}" if unit else name
            for model, points in round_errors({"curve": thin(some)}, name).items():
                curves.setdefault(f"Mean absolute error of {of}, {model}", {})[run] = points
    charts = {}
    for title, own in curves.items():
        colours = {run: f"var(--c{n % 6})" for n, run in enumerate(own)}
        charts[title] = Markup(lines(own, "round", "mean absolute error", colours=colours, has_zero=True))
    return charts


def are_sets(found: Sequence[dict[str, Any]]) -> bool:
    """Says if lines of metrics have macro-F1: their models predict sets of labels."""
    return any(accuracy_curves({"curve": found, "score": MACRO_F1}).values())


def draw_comparison(found: Mapping[str, Sequence[dict[str, Any]]], model: str, title: str, score: str) -> Markup:
    """Mean score of one model over rounds, in several runs. `score`: its key in results."""
    curves = {run: accuracy_curves({"curve": thin(some), "score": score}).get(model, []) for run, some in found.items()}
    colours = {run: f"var(--c{i % 6})" for i, run in enumerate(curves)}
    return Markup(lines(curves, "round", title, percent=True, colours=colours))


def draw(curves: Any, y_name: str, percent: bool = False, bands: Any = None, has_zero: bool = False) -> Markup:
    """Curves over rounds, in the colours that models have in the report of a replay; a single value as a number. What
    people have named is escaped, here and by `charts`."""
    points = [point for curve in curves.values() for point in curve]
    if len(points) == 1:  # what is only known when the run is over
        (round, value), shown = points[0], "{:.1%}" if percent else "{:.4g}"
        tile = Markup('<div class="tiles"><div class="tile"><b>{}</b><span>{}, after round {}</span></div></div>')
        return tile.format(shown.format(value), y_name, f"{round:g}")
    colours = {**COLOURS, **OWN}
    return Markup(lines(curves, "round", y_name, percent, colours, bands or {}, has_zero))


def thin(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each n-th of many, and the last one."""
    step = -(-len(found) // MOST_POINTS) or 1
    return [*found[:-1:step], *found[-1:]]
