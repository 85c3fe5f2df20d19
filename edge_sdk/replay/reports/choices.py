"""What the fleet has chosen when its devices settled, in words: steps of both models, and how they are mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def describe_choice(chosen: Mapping[str, Any]) -> str:
    """One choice as a sentence. `chosen`: a result's "chosen", see `methods.settling.method.Choice`."""
    if not chosen["samples"]:
        right = "no validation sample to choose by, so the first candidate goes"
    else:
        total = f"of {chosen['samples']} validation samples"
        right = f"{chosen['correct']} {total} right, training alone {chosen['local_correct']}"
    return f"{describe_models(chosen)} ({right})"


def describe_models(chosen: Mapping[str, Any]) -> str:
    """The models of a choice. At weights 0 and 1 one of the two does not matter, and the words say what that means."""
    steps, weight = count(chosen["steps"]), chosen["weight"]
    if weight == 1:
        return f"weight 1: the personalised model is training alone, {count(chosen['local_steps'])}"
    if weight == 0:
        return (
            f"{steps} from the shared model, without a local one"
            if chosen["steps"]
            else "0 steps: the shared model as it is"
        )
    begin = f"{steps} from the shared model" if chosen["steps"] else "the shared model as it is (0 steps)"
    return f"{begin}, mixed with a local model of {count(chosen['local_steps'])} by weight {weight:g}"


def count(steps: int) -> str:
    """A number of steps with its noun."""
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def choice_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each result whose devices have settled; with several results each says its seed."""
    return [
        (f"seed {r['seed']}: " if len(results) > 1 else "") + describe_choice(r["chosen"])
        for r in results
        if r.get("chosen")
    ]
