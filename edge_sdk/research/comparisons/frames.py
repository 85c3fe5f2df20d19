"""Tidy tables of results: a row for each observation, for pandas or polars."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.reports import mean_accuracies
from edge_sdk.replay.anomalies.scores import ANOMALIES, FIGURES
from edge_sdk.replay.metrics.scores import NAMES
from edge_sdk.replay.metrics.statistics import ACCURACY, columns_with, score_in
from edge_sdk.replay.reports.page import part_of_rounds, starting_round
from edge_sdk.replay.values.tables import named_units

Row = dict[str, Any]
TEST = "test_"
"""Before the name of a model in a line of metrics: its scores on test samples."""


def as_frame(rows: Sequence[Row]) -> Any:
    """A pandas table, or a polars one where only that is installed.

    Raises:
        UsageError: neither is.
    """
    for library in ("pandas", "polars"):
        try:
            return importlib.import_module(library).DataFrame(rows)
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
    raise UsageError("a table needs pandas or polars: pip install pandas")


def device_rows(name: str, results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of seeds, devices and models, with metrics on test samples, shares of 0 to 1; of values a row for each, with
    errors in its unit; of windows figures as `scores` has them."""
    return [
        {
            "run": name,
            "method": one["method"],
            "seed": one["seed"],
            "device": d["device"],
            "hospital": d["hospital"],
            "newcomer": bool(d.get("newcomer")),
            **scores,
            "train_samples": d["samples"],
            "test_samples": d["held_out"],
        }
        for one in results
        for d in one["devices"]
        for scores in rows_of(one, d)
    ]


def rows_of(result: Mapping[str, Any], d: Mapping[str, Any]) -> Iterator[Row]:
    """The scores of one device's models, as its kind of run has them."""
    if ANOMALIES in result:
        yield from ({"model": model, **shown_figures(figures)} for model, figures in d[ANOMALIES].items())
    else:
        yield from error_rows(result, d) if "values" in result else share_rows(d)


def shown_figures(figures: Mapping[str, Any]) -> Row:
    """The figures of a model of windows that tables have, and its threshold."""
    return {key: figures.get(key) for key in FIGURES}


def share_rows(d: Mapping[str, Any]) -> Iterator[Row]:
    """The metrics of one device's models."""
    every = d["metrics"] or {model: {"accuracy": share} for model, share in d["accuracy"].items()}
    for model, metrics in every.items():
        yield {"model": model, **{key: metrics.get(key) for key in columns_with(metrics)}}


def error_rows(result: Mapping[str, Any], d: Mapping[str, Any]) -> Iterator[Row]:
    """The errors of one device's models."""
    for model, values in d["errors"].items():
        for value, unit in named_units(result).items():
            found = values[value]
            yield {"model": model, "value": value, "unit": unit, **{key: found[key] for key in ("mae", "rmse", "bias")}}


def curve_rows(name: str, results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of seeds, rounds, models and parts of the samples ("validation", "test"): mean accuracy over devices of the
    model with so many rounds behind it; of sets of labels macro-F1, of values the mean absolute error of each, of
    windows the mean error."""
    return [
        {"run": name, "method": one["method"], "seed": one["seed"], **row} for one in results for row in rounds_of(one)
    ]


def rounds_of(result: Mapping[str, Any]) -> Iterator[Row]:
    """Rows of one run. Rounds are judged on `part_of_rounds`, and in the end models on the test part, too."""
    for line in result["curve"]:
        for told, scores in scores_in(result, line) if "sums" in line else ():
            model = told.removeprefix(TEST)
            when = {"round": starting_round(line), "model": NAMES.get(model, model)}
            part = "validation" if told == model and part_of_rounds(result) == "validation" else "test"
            yield {**when, "part": part, **scores, "bytes": line["bytes_so_far"]}


def scores_in(result: Mapping[str, Any], line: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Models of a line of metrics, with their scores."""
    if ANOMALIES in result:
        yield from ((model, {"error": errors["window"]}) for model, errors in line.get("errors", {}).items())
        return
    if "values" in result:
        for model, errors in line.get("errors", {}).items():
            for value, unit in named_units(result).items():
                yield model, {"value": value, "unit": unit, "mae": errors[value]}
        return
    score = score_in(result)
    found = mean_accuracies(line["sums"]) if score == ACCURACY else line.get(score, {})
    for model, share in found.items():
        yield model, {score: share}
