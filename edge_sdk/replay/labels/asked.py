"""What a command line and the data say of the labels that are to be predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge_sdk.data.traces.labels import is_missing
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, in_order, label_key
from edge_sdk.model.tasks.several_labels import SeveralLabels, names_in, split_set
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.model.tasks.task_protocol import STEPS
from edge_sdk.replay.values.asked import words

ALL = "all"
"""In place of names: all that are in the data."""
SURE = (";", "|", ",")
OTHERS = (*SURE, "/", "&")
"""Signs that people put between labels; the first ones are in no name."""


def asked_labels(text: str, found: Iterable[str], separator: str = JOIN) -> SeveralLabels | None:
    """The labels that are asked for; None: the data are in classes.

    Args:
        text: names, with commas between them; ALL; "": nothing is asked for.
        found: all texts in the label column, with JOIN between labels; those that stand for no label are passed over.
        separator: that stands between them in the column, as it was stated.

    Raises:
        UsageError: these names cannot be labels, or a text in the data is no set of them.
    """
    if not text:
        return None
    sets = sorted(label for label in {*found} if not is_missing(label))
    if strange := next((label for label in sets if split_set(label) is None), None):
        raise UsageError(f"--labels {text}: {strange!r} in the label column is no set of labels, such as 'af+pvc'")
    there = names_in(sets)
    if text == ALL and not there:
        raise UsageError(f"--labels {ALL}: no label occurs in the data; name them")
    if text == ALL and (joined := next((name for name in there if divided(name, there)), None)):
        expected = f"{tell_separator(joined, separator)}; or name the labels"
        raise UsageError(f"--labels {ALL}: {joined!r} in the label column is several labels; {expected}")
    try:
        task = SeveralLabels(there if text == ALL else words(text))
    except UsageError as error:
        raise UsageError(f"--labels {text}: {error}") from error
    if strange := next((label for label in sets if task.read(label) is None), None):
        no_set = f"the data have {strange!r}, which is no set of these"
        raise UsageError(f"--labels {text}: {no_set}; {tell_separator(strange, separator)}")
    return task


def asked_steps(text: str, found: Iterable[str], steps: int) -> StepClasses | None:
    """The classes of steps that are asked for; None: `steps` is 0, and something else is.

    Args:
        text: names, with commas between them; ALL or "": all that are in the data.
        found: all labels in the data; those that stand for no label are passed over.

    Raises:
        UsageError: these names cannot be classes, or the data have others.
    """
    if not steps:
        return None
    there = in_order({label_key(name): name for name in found if not is_missing(name)}.values())
    names = tuple(there) if text in ("", ALL) else words(text)
    try:
        task = StepClasses(names, steps)
    except UsageError as error:
        raise UsageError(f"--task {STEPS} --labels {text or ALL}: {error}") from error
    if strange := next((name for name in there if label_key(name) not in task.spelled), None):
        raise UsageError(f"--task {STEPS} --labels {text}: the data have {strange!r}, which is none of these")
    return task


def divided(name: str, there: Sequence[str]) -> str:
    """The sign that joins several labels in what was read as one name, "": it is one.

    A comma, a semicolon or a bar does; another sign where the parts are names of the data, too.
    """
    known = {*map(label_key, there)}
    sign = next((sign for sign in OTHERS if sign in name.strip(sign)), "")
    apart = sign in SURE or known.issuperset(map(label_key, name.split(sign))) if sign else False
    return sign if apart else ""


def tell_separator(strange: str, separator: str) -> str:
    """What was expected between labels, and how it is said that something else stands there."""
    written = strange.replace(JOIN, separator)
    other = next((sign for sign in OTHERS if sign != separator and sign in written.strip(sign)), "")
    said = f"expected {separator!r} between labels"
    return f"{said}; where it is {other!r}, say so: --separator {other!r}" if other else said
