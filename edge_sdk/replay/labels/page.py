"""The section of a report with the scores of each label over the test windows of all devices."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from edge_sdk.replay.labels.tables import NOTE, STEPS, head_of, kappa_line, label_rows
from edge_sdk.replay.reports.sections import table


def labels_section(result: Mapping[str, Any]) -> str:
    """A table for each model; "" where a result is of no sets of labels."""
    if "labels" not in result:
        return ""
    in_steps = result["labels"]["task"]["kind"] == STEPS
    what = "Steps of test windows of all devices" if in_steps else "Test windows of all devices, at thresholds of 0.5"
    lead = f"<p class='lead'>{'. '.join([what, *kappa_line(result)])}; {NOTE}.</p>"
    parts = [f"<h3>{escape(title)}</h3>{table(head_of(result), rows)}" for title, rows in label_rows(result).items()]
    return f"<h2>{'Classes of steps' if in_steps else 'Labels'}</h2>{lead}{''.join(parts)}"
