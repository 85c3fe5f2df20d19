"""Tidy tables of results: a row for each observation, for pandas or polars."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.reports import mean_accuracies
from edge_sdk.replay.metrics.scores import NAMES
from edge_sdk.replay.reports.page import starting_round

Row = dict[str, Any]


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
    """Rows of seeds, devices and models, with metrics on test samples, shares of 0 to 1."""
    return [
        {
            "run": name,
            "method": one["method"],
            "seed": one["seed"],
            "device": d["device"],
            "hospital": d["hospital"],
            "newcomer": bool(d.get("newcomer")),
            "model": model,
            "accuracy": metrics.get("accuracy"),
            "macro_f1": metrics.get("macro_f1"),
            "balanced_accuracy": metrics.get("balanced_accuracy"),
            "train_samples": d["samples"],
            "test_samples": d["held_out"],
        }
        for one in results
        for d in one["devices"]
        for model, metrics in (d["metrics"] or {m: {"accuracy": v} for m, v in d["accuracy"].items()}).items()
    ]


def curve_rows(name: str, results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of seeds, rounds and models: mean accuracy over devices of the model with so many rounds behind it."""
    return [
        {"run": name, "method": one["method"], "seed": one["seed"], **row} for one in results for row in rounds_of(one)
    ]


def rounds_of(result: Mapping[str, Any]) -> Iterator[Row]:
    """Rows of one run."""
    for line in result["curve"]:
        for model, accuracy in mean_accuracies(line["sums"]).items() if "sums" in line else ():
            yield {
                "round": starting_round(line),
                "model": NAMES.get(model, model),
                "accuracy": accuracy,
                "bytes": line["bytes_so_far"],
            }
