"""Errors and scores of reconstructions and forecasts on a terminal: who wins, a row for each device and each model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.model.tasks.task_protocol import FORECAST
from edge_sdk.replay.anomalies.neighbours import ALONE_DISTANCE, LAST, PCA, RIDGE
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.errors.tables import COLUMNS, OURS, Result, grid, verdict_on, who_wins, with_interval
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, POOLED
from edge_sdk.replay.neighbours.candidates import NETWORK
from edge_sdk.replay.neighbours.told import COMPUTED
from edge_sdk.replay.reports.tables import TITLES

NOTE = (
    "found: abnormal windows above the device's own threshold; alarms: all others above it; AUROC: +- is what the bins "
    "of scores leave open, of all devices' windows together"
)


# Figures of a model ---------------------------------------------------------------------------------------------
def number(value: float | None, sign: str = "") -> str:
    """A figure of four digits; "-" where there is none."""
    return "-" if value is None else f"{value:{sign}.4g}"


def signed(value: float) -> str:
    """A figure with its sign."""
    return number(value, "+")


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.1f}%"


def area(value: float | None) -> str:
    """An area under a curve, without what the bins leave open."""
    return "-" if value is None else f"{value:.3f}"


@dataclass(frozen=True)
class FigureColumn:
    """A column of tables of models. `key`: of a model's figures; `show`: one of these, as text."""

    title: str
    key: str
    show: Callable[[float | None], str]

    def cell(self, figures: Mapping[str, Any]) -> str:
        """What a model's figures have in this column."""
        return self.show(figures.get(self.key))


FIGURES_OF_MODELS = (
    FigureColumn("error", "error", number),
    FigureColumn("explained", "explained", share),
    FigureColumn("AUROC", "auroc", area),
    FigureColumn("found", "found", share),
    FigureColumn("alarms", "alarms", share),
    FigureColumn("alarms a day", "alarms_per_day", number),
)
"""The columns of terminal, pages and comparisons, in this order."""
AUROC, FOUND, ALARMS = FIGURES_OF_MODELS[2:5]
HEAD = (*(one.title for one in FIGURES_OF_MODELS), "AUROC, all windows", "error against alone [95 %]")
"""Titles of the cells of `model_rows`."""


def figures_in_use(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Figures of the model that a device predicts with, of those of all its models."""
    return next((figures[m] for m in OURS if m in figures), {})


# Who wins -------------------------------------------------------------------------------------------------------
def titles(result: Result) -> dict[str, str]:
    """Model -> what it is called."""
    told = result.get("neighbours") or {}
    found = {**TITLES, MEAN: "mean training window", LOCAL: "local network"}
    if told.get("state") != COMPUTED:
        return found
    number = f"{told['components']} " if "components" in told else ""  # of several seeds there may be several
    words = {NETWORK: "network", LAST: "last value", RIDGE: "ridge regression", PCA: f"{number}principal components"}
    named = {f"alone_{kind}": f"alone, {said}" for kind, said in words.items() if kind != NETWORK}
    pooled = RIDGE if result[ANOMALIES]["task"]["kind"] == FORECAST else PCA
    chosen = [told["chosen"]] if isinstance(told["chosen"], str) else told["chosen"]
    best = " or ".join(words[kind] for kind in chosen)
    named |= {ALONE_DISTANCE: "alone, distance of features", ALONE: f"alone ({best})"}
    return {**found, **named, POOLED: f"all data in one place ({words[pooled]})"}


def verdict(result: Result) -> str:
    """Who wins, in a sentence on errors and, where something is called abnormal, one on AUROC."""
    found = result[ANOMALIES]["against"][ALONE]

    def say(ours: str) -> str:
        by_errors = sentence(found[ours], OURS[ours], titles(result)[ALONE])
        return " ".join(filter(None, (by_errors, on_anomalies(result, ours))))

    return verdict_on(result, found, say)


def sentence(d: Mapping[str, Any], ours: str, alone: str) -> str:
    """Who wins by errors, with the interval of the difference over devices."""
    own = f"mean error of {ours} {number(d['error'])}, {alone} {number(d['than'])}"
    return f"{who_wins(d)}: {own} ({with_interval(d, signed, ', ')}; {d['worse']} of {d['devices']} devices worse)."


def on_anomalies(result: Result, ours: str) -> str:
    """What tells abnormal windows apart best, which nothing was chosen by; "": none are known."""
    models = result[ANOMALIES]["models"]
    shown = [m for m in (ours, ALONE, ALONE_DISTANCE) if models.get(m, {}).get("auroc") is not None]
    told = [f"{OURS.get(m) or titles(result)[m]} {models[m]['auroc']:.3f}" for m in shown]
    return f"AUROC, means over devices: {', '.join(told)}." if told else ""


# Tables ---------------------------------------------------------------------------------------------------------
def device_table(result: Result) -> str:
    """Mean errors of each device, and the AUROC and alarms of the model that it predicts with."""

    def cells(figures: Mapping[str, Any]) -> list[str]:
        used = figures_in_use(figures)
        abnormal = f"{used['abnormal']:.0f}" if "abnormal" in used else ""
        errors = (number(figures.get(model, {}).get("error")) for model in COLUMNS)
        return [abnormal, *errors, AUROC.cell(used), ALARMS.cell(used)]

    columns = ["abnormal", *COLUMNS.values(), AUROC.title, ALARMS.title]
    rows, mean = [cells(d[ANOMALIES]) for d in result["devices"]], cells(result[ANOMALIES]["models"])
    return grid(f"mean error of {what_of(result)}, test part", "windows", columns, result["devices"], rows, mean)


def what_of(result: Result) -> str:
    """What the models make."""
    return "forecasts" if result[ANOMALIES]["task"]["kind"] == FORECAST else "reconstructed windows"


def model_table(result: Result) -> str:
    """Figures of each model, means over devices."""
    found = result[ANOMALIES]
    columns = " ".join(f"{title:>12}" for title in HEAD[:-1])
    rows = model_rows(result)
    wide = max(len(title) for title, _ in rows)
    lines = [
        f"  {title:{wide}} " + " ".join(f"{cell:>12}" for cell in cells[:-1]) + f"   {cells[-1]}"
        for title, cells in rows
    ]
    head = f"means over {found['devices']} devices"
    return "\n".join([f"{head:{wide + 2}} {columns}   {HEAD[-1]}", *lines, NOTE])


def model_rows(result: Result) -> list[tuple[str, Sequence[str]]]:
    """Title of each model, and its cells, as HEAD says."""
    found, rows = result[ANOMALIES], list[tuple[str, Sequence[str]]]()
    against = found["against"][ALONE] or found["against"][LOCAL]
    for model, own in found["models"].items():
        together, d = found["together"][model], against.get(model)
        whole = "-" if together["auroc"] is None else f"{together['auroc']:.3f} +- {together['auroc_error']:.3f}"
        cells = [one.cell(own) for one in FIGURES_OF_MODELS]
        ends = "" if d is None else with_interval(d, signed)
        rows.append((titles(result).get(model, model), [*cells, f"{whole:>18}", ends]))
    return rows
