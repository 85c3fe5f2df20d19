"""The section of a report with the scores of each label over the test windows of all devices."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from edge_sdk.replay.labels.tables import HEAD, NOTE, label_rows
from edge_sdk.replay.reports.sections import table


def labels_section(result: Mapping[str, Any]) -> str:
    """A table for each model; "" where a result is of no sets of labels."""
    if "labels" not in result:
        return ""
    lead = f"<p class='lead'>Test windows of all devices, at thresholds of 0.5; {NOTE}.</p>"
    parts = [f"<h3>{escape(title)}</h3>{table(HEAD, rows)}" for title, rows in label_rows(result).items()]
    return f"<h2>Labels</h2>{lead}{''.join(parts)}"
