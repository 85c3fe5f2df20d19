"""What runs that are compared do not have in common beside their methods: a difference between them may be its doing.

Runs are paired by the names of their devices. Two fleets can have the same names and other persons, and a data set that
is dealt out deals otherwise for another seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from edge_sdk.contract.environment.gradients import PHASES
from edge_sdk.replay.over_seeds import mean_over_seeds

Result = Mapping[str, Any]


NEARLY = 0.01
"""Share by which gradients of two runs may differ without a word: some are given up when a round is over."""


def list_unlike(runs: Mapping[str, Sequence[Result]]) -> list[str]:
    """A sentence for each run but the first that has other data, options of these, seeds or rounds than the first.

    Args:
        runs: name -> its results, one for each seed, or one that says "seeds".
    """
    (first, own), *others = runs.items()
    return [f"{name}: {', '.join(found)}" for name, results in others if (found := find_unlike(results, own, first))]


def find_unlike(results: Sequence[Result], others: Sequence[Result], first: str) -> list[str]:
    """What one run has otherwise than another, called `first`, in words."""
    found = []
    if not data_of(results) & data_of(others):
        found.append(f"other data than {first}, so that devices of one name need not be the same")
    ours, asked = ({k: v for k, v in run[0].get("data", {}).items() if k not in TOLD} for run in (results, others))
    found += [
        f"{key} = {shown(ours.get(key))} where {first} has {shown(asked.get(key))}"
        for key in sorted({*ours, *asked})
        if ours.get(key) != asked.get(key)
    ]
    for word, read in (("seed", seeds_of), ("rounds", rounds_of)):
        if (one := read(results)) != (other := read(others)):
            plural = "s" if word == "seed" and len(one) > 1 else ""
            found.append(f"{word}{plural} {', '.join(map(str, one))} where {first} has {', '.join(map(str, other))}")
    return found + unlike_gradients(results, others, first)


def unlike_gradients(results: Sequence[Result], others: Sequence[Result], first: str) -> list[str]:
    """A sentence where devices of one run have computed more than those of another: rounds of two methods are not
    equally long."""
    ours, theirs = (mean_over_seeds([one.get("gradients") for one in run]) for run in (results, others))
    if ours is None and theirs is None:
        return []
    if ours and theirs and isclose(sum(ours.values()), sum(theirs.values()), rel_tol=NEARLY):
        return []
    return [f"gradients per device {shown_gradients(ours)} where {first} has {shown_gradients(theirs)}"]


def shown_gradients(found: Mapping[str, float] | None) -> str:
    """Gradients of a device, in rounds and after them; None: nobody counted them."""
    if found is None:
        return "not counted"
    after = found[PHASES]
    return f"{sum(found.values()):,.0f}" + (f" ({after:,.0f} after the rounds)" if after else "")


TOLD = ("name", "generated")
"""What a result says of its data that its hash says, too."""


def data_of(results: Sequence[Result]) -> set[str]:
    """What tells data apart: the hash of their files, else the name of the data set."""
    return {str(one.get("made", {}).get("data") or one.get("data", {}).get("name", "")) for one in results}


def shown(value: Any) -> str:
    """An option of the data; None: it was not given."""
    return "its default" if value is None else str(value)


def seeds_of(results: Sequence[Result]) -> list[int]:
    """Seeds of a run, in order."""
    return sorted({int(seed) for one in results for seed in one.get("seeds", [one.get("seed")]) if seed is not None})


def rounds_of(results: Sequence[Result]) -> list[int]:
    """Numbers of rounds of a run's results, each once."""
    return sorted({int(one["rounds"]) for one in results if "rounds" in one})


def circumstance_lines(found: Mapping[str, Any]) -> list[str]:
    """Lines above a comparison: what else than the method its runs have otherwise."""
    return [f"not alike: {line}" for line in found.get("circumstances", ())]
