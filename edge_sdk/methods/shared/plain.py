"""Methods whose sums have to be plain: each says why, and a run that asks for a robust rule ends with that sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MIRRORED = (
    "the aggregator keeps the mean of vectors that its devices keep, and it stays their mean only if it moves by the "
    "plain mean of the uploads"
)


def always_plain(why: str, *tiers: str) -> Callable[[Any, str, str], str]:
    """A `Method.plain_sums` for all rules at these tiers; at both, where none is named."""

    def plain_sums(settings: Any, tier: str, rule: str) -> str:
        return why if not tiers or tier in tiers else ""

    return plain_sums
