"""What the fleet has chosen when its devices settled, in words: steps of both models, and how they are mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FORESTS = {1: "the device's own forest", 2: "the device's own forest, which has the windows that it labelled itself"}
"""`Choice.forest` -> words."""

VALUES, LABELS = "values", "labels"


def describe_choice(chosen: Mapping[str, Any], task: str = "") -> str:
    """One choice as a sentence.

    Args:
        chosen: a result's "chosen", see `methods.settling.method.Choice`.
        task: key of the result under which it has scores of a task that is not one class, "values" or "labels".
    """
    if not chosen["samples"]:
        right = "no validation sample to choose by, so the first candidate goes"
    elif task:
        shares = [chosen[key] / chosen["samples"] for key in ("correct", "local_correct")]
        own, alone = (f"{100 * (1 - share if task == VALUES else share):.1f} %" for share in shares)
        said = f"off by {own} of the range" if task == VALUES else f"{own} right"
        right = f"{said} on validation samples, training alone {alone}"
    else:
        total = f"of {chosen['samples']} validation samples"
        right = f"{chosen['correct']} {total} right, training alone {chosen['local_correct']}"
    return f"{describe_models(chosen)} ({right})"


def describe_models(chosen: Mapping[str, Any]) -> str:
    """The models of a choice. At weights 0 and 1 one of the two does not matter, and the words say what that means."""
    steps, weight = count(chosen["steps"]), chosen["weight"]
    forest = FORESTS.get(chosen.get("forest", 0), "")
    if weight == 1 and forest:
        return f"weight 1: {forest}"
    if weight == 1:
        return f"weight 1: the personalised model is training alone, {count(chosen['local_steps'])}"
    if weight == 0:
        return (
            f"{steps} from the shared model, without a local one"
            if chosen["steps"]
            else "0 steps: the shared model as it is"
        )
    begin = f"{steps} from the shared model" if chosen["steps"] else "the shared model as it is (0 steps)"
    own = forest or f"a local model of {count(chosen['local_steps'])}"
    return f"{begin}, mixed by weight {weight:g} with {own}"


def describe_labels(line: Mapping[str, Any]) -> str:
    """What the fleet has chosen for labels that devices give their own windows, from a line of metrics."""
    if not line["samples"]:
        return "no device has windows without a label, and validation samples to judge such labels by"
    if not line["threshold"]:
        return "no device labels its own windows: what the models are sure of is not right often enough"
    right = f"{line['right']} of {line['sure']} such validation samples are right"
    return f"devices label their own windows where they are sure ({line['threshold']:g}): {right}"


def count(steps: int) -> str:
    """A number of steps with its noun."""
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def choice_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each result whose devices have settled; with several results each says its seed."""
    return [
        (f"seed {r['seed']}: " if len(results) > 1 else "") + describe_choice(r["chosen"], task_of(r))
        for r in results
        if r.get("chosen")
    ]


def task_of(result: Mapping[str, Any]) -> str:
    """Key under which a result has scores of another task than one class; "": it has none."""
    return next((key for key in (VALUES, LABELS) if result.get(key)), "")
