"""What a command line and the data say of the labels that are to be predicted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.several_labels import SeveralLabels, names_in, split_set
from edge_sdk.replay.values.asked import words

ALL = "all"
"""In place of names: all that are in the data."""


def asked_labels(text: str, found: Iterable[str]) -> SeveralLabels | None:
    """The labels that are asked for; None: the data are in classes.

    Args:
        text: names, with commas between them; ALL; "": nothing is asked for.
        found: all texts in the label column.

    Raises:
        UsageError: these names cannot be labels, or a text in the data is no set of them.
    """
    if not text:
        return None
    sets = sorted({*found})
    if strange := next((label for label in sets if split_set(label) is None), None):
        raise UsageError(f"--labels {text}: {strange!r} in the label column is no set of labels, such as 'af+pvc'")
    there = names_in(sets)
    if text == ALL and not there:
        raise UsageError(f"--labels {ALL}: no label occurs in the data; name them")
    try:
        task = SeveralLabels(there if text == ALL else words(text))
    except UsageError as error:
        raise UsageError(f"--labels {text}: {error}") from error
    if strange := next((label for label in sets if task.read(label) is None), None):
        raise UsageError(f"--labels {text}: the data have {strange!r}, which is no set of these")
    return task


def labels_of_bundles(paths: Iterable[Path]) -> str:
    """The labels that the first of some bundle files predicts, as `asked_labels` takes them; "": it predicts none."""
    for path in paths:
        if path.is_file():
            task = read_bundle(path).task
            return ",".join(task.names) if isinstance(task, SeveralLabels) else ""
    return ""
