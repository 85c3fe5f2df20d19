"""Scores of each label over the test windows of all devices, for each model: on a terminal, and in a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.reports.sections import table
from edge_sdk.replay.reports.tables import TITLES

Result = Mapping[str, Any]
SHOWN = ("majority", "alone", "global", "personalised", "unseen", "pooled")
"""Models whose labels are shown, in this order; `result.json` has all."""
HEAD = ("label", "windows", "F1", "true +", "false +", "false -", "AUROC", "average precision")
NOTE = "+- is what the bins of scores leave open"
STEPS = "steps"


def head_of(result: Result) -> tuple[str, ...]:
    """Titles of the columns: what is counted are windows, or steps of these."""
    return ("class", STEPS, *HEAD[2:]) if result["labels"]["task"]["kind"] == STEPS else HEAD


def kappa_line(result: Result) -> list[str]:
    """Cohen's kappa of each model over the steps of all devices; nothing where labels are in sets."""
    found = result["labels"].get("kappa", {})
    said = ", ".join(f"{TITLES.get(m, m)} {found[m]:.3f}" for m in SHOWN if m in found)
    return [f"Cohen's kappa of all steps together: {said}"] if said else []


def label_rows(result: Result) -> dict[str, list[list[str]]]:
    """Title of a model -> a row for each label, as HEAD says."""
    models = result["labels"]["models"]
    return {
        TITLES.get(model, model): [row_of(name, scores) for name, scores in models[model].items()]
        for model in SHOWN
        if model in models
    }


def row_of(name: str, s: Mapping[str, Any]) -> list[str]:
    counts = [f"{s[key]:.0f}" for key in ("tp", "fp", "fn")]
    ends = [with_error(s[key], s[f"{key}_error"]) for key in ("auroc", "precision")]
    return [name, f"{s['tp'] + s['fn']:.0f}", "-" if s["f1"] is None else f"{s['f1']:.3f}", *counts, *ends]


def with_error(value: float | None, error: float) -> str:
    """A figure with what it may be off by."""
    return "-" if value is None else f"{value:.3f} +- {error:.3f}"


def label_table(result: Result) -> str:
    """Tables of all models that are shown."""
    parts = []
    wide = max(map(len, (*label_rows(result), *result["labels"]["task"]["names"])))
    for title, rows in label_rows(result).items():
        lines = [f"{name:{wide}} {columns(cells)}" for name, *cells in ([title, *head_of(result)[1:]], *rows)]
        parts.append("\n".join(lines))
    return "\n".join([*parts, *kappa_line(result), NOTE])


def columns(cells: Sequence[str]) -> str:
    """Cells behind the first, each in its column."""
    return "".join(f"{cell:>{9 if at < 5 else 19}}" for at, cell in enumerate(cells))


def labels_section(result: Result) -> str:
    """A table for each model; "" where a result is of no sets of labels."""
    if "labels" not in result:
        return ""
    in_steps = result["labels"]["task"]["kind"] == STEPS
    what = "Steps of test windows of all devices" if in_steps else "Test windows of all devices, at thresholds of 0.5"
    lead = f"<p class='lead'>{'. '.join([what, *kappa_line(result)])}; {NOTE}.</p>"
    parts = [f"<h3>{escape(title)}</h3>{table(head_of(result), rows)}" for title, rows in label_rows(result).items()]
    return f"<h2>{'Classes of steps' if in_steps else 'Labels'}</h2>{lead}{''.join(parts)}"
