"""Charts of a run for its page, drawn as SVG on this side: they are there without JavaScript, and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from edge_sdk.methods.shared.reports import mean_loss
from edge_sdk.replay.reports.charts import lines
from edge_sdk.replay.reports.page import COLOURS, accuracy_bands, accuracy_curves, per_round

MOST_POINTS = 400
"""Points of one curve; of longer ones each n-th is drawn."""


def draw_accuracy(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean accuracy of the models over rounds, with the spread over devices."""
    result = {"curve": thin(found)}
    return draw(accuracy_curves(result), "accuracy", percent=True, bands=accuracy_bands(result))


def draw_loss(found: Sequence[dict[str, Any]]) -> Markup:
    """Mean training loss over rounds."""
    return draw({"loss": per_round({"curve": thin(found)}, mean_loss)}, "loss")


def draw_column(rows: Sequence[dict[str, Any]], names: dict[str, str], scale: float, y_name: str) -> Markup:
    """Columns of the table of rounds. `names`: column -> how its curve is called."""
    few = thin(rows)
    curves = {
        name: [(row["round"], row[key] / scale) for row in few if row[key] is not None] for key, name in names.items()
    }
    return draw(curves, y_name)


def draw_comparison(found: Mapping[str, Sequence[dict[str, Any]]], model: str) -> Markup:
    """Mean accuracy of one model over rounds, in several runs."""
    curves = {run: accuracy_curves({"curve": thin(some)}).get(model, []) for run, some in found.items()}
    colours = {run: f"var(--c{i % 6})" for i, run in enumerate(curves)}
    return Markup(lines(curves, "round", "accuracy", percent=True, colours=colours))


def draw(curves: Any, y_name: str, percent: bool = False, bands: Any = None) -> Markup:
    """Curves over rounds, in the colours that models have in the report of a replay. The text is made of numbers and of
    our own names, and `charts` escapes it."""
    own = {"down": "var(--c3)", "up": "var(--c0)", "loss": "var(--c4)", "seconds": "var(--c5)"}
    return Markup(lines(curves, "round", y_name, percent=percent, colours={**COLOURS, **own}, bands=bands or {}))


def thin(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each n-th of many, and the last one."""
    step = -(-len(found) // MOST_POINTS) or 1
    return [*found[:-1:step], *found[-1:]]
