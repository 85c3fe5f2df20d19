"""What a result says of neighbours: under "neighbours", in JSON's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
COMPUTED, LEFT_OUT, MISSING, UNDEFINED = "computed", "left out", "missing", "undefined"
"""States: there are rows; --no-neighbours; scikit-learn is missing; these samples have none, and "why" says it."""


def merge_neighbours(every: Sequence[Told]) -> dict[str, Any]:
    """The neighbours of several seeds as one: all kinds that a seed has chosen, and the sum of validation samples.

    Where one seed has no neighbours, there are none together.
    """
    if without := [told for told in every if told.get("state") != COMPUTED]:
        return dict(without[0])
    first = every[0]
    together = [told["pooled"]["chosen"] for told in every]
    return {
        **{key: first[key] for key in ("state", "on", "devices", "of")},
        "chosen": list(dict.fromkeys(told["chosen"] for told in every)),
        "samples": sum(told["samples"] for told in every),
        "pooled": {**first["pooled"], "chosen": list(dict.fromkeys(filter(None, together)))},
    }
