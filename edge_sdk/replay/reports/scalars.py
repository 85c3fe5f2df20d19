"""A replay's curves and final figures as points, for programs that draw them.

Curves are over rounds: training loss, accuracies on the samples by which rounds are judged, bytes so far, and how many
numbers travel down. What was judged on test samples when the run was over stands at the last round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edge_sdk.methods.shared.evaluation.reports import mean_accuracies, mean_loss, share_name
from edge_sdk.replay.reports.terminal import Result

Scalar = tuple[str, int, float, float]
"""(tag, round, seconds since the epoch, value)."""


def scalars(result: Result) -> Iterator[Scalar]:
    """All points of all curves."""
    lines = [line for line in result["curve"] if "sums" in line]
    for line in lines:
        for tag, value in line_scalars(line):
            yield tag, int(line["round"]), float(line["time"]), value
    if lines:
        last = max(int(line["round"]) for line in lines), float(lines[-1]["time"])
        for tag, value in final_scalars(result):
            yield tag, *last, value


def line_scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Tag and value of what one line of metrics tells."""
    kind = "rounds" if line["kind"] == "round" else "evaluations"
    if (loss := mean_loss(line)) is not None:
        yield "loss", loss
    for model, share in mean_accuracies(line["sums"]).items():
        if not model.startswith("test_"):
            yield f"{share_name(line)} in {kind}/{model}", share
    for model, f1 in line.get("macro_f1", {}).items():
        if not model.startswith("test_"):
            yield f"macro-F1 in {kind}/{model}", f1
    for model, errors in line.get("errors", {}).items():
        if not model.startswith("test_"):
            for value, error in errors.items():
                yield f"error of {value} in {kind}/{model}", error
    yield "bytes", float(line["bytes_so_far"])
    if line.get("sent_parameters") is not None:
        yield "numbers that travel down", float(line["sent_parameters"])


def final_scalars(result: Result) -> Iterator[tuple[str, float]]:
    """Tag and value of the final figures: the means over groups of devices on test samples."""
    for group, found in result["statistics"].items():
        for model, metrics in found["models"].items():
            for metric, value in metrics.items():
                yield f"test, {group}/{metric}/{model}", float(value)
    for model, of_values in result.get("values", {}).get("models", {}).items():
        for name, errors in of_values.items():
            for metric, value in errors.items():
                yield f"test, {name}/{metric}/{model}", float(value)
    for model, figures in result.get("anomalies", {}).get("models", {}).items():
        for metric, value in figures.items():
            if value is not None:
                yield f"test, window/{metric}/{model}", float(value)
