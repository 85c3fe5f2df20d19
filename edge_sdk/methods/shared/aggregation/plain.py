"""Methods whose sums have to be plain, or nearly so: each says why, and a run that asks for more is refused so.

In SCAFFOLD, FedDyn and FedSLR devices keep vectors whose mean the aggregator keeps. It moves that mean by the mean of
the uploads, each device moves its own by its own upload, and only so do both stay in step. A rule that leaves most of
the uploads out of most coordinates carries the one away from the other, round after round, and the run ends somewhere
else (docs/robustness.md has figures). "clip" leaves most uploads whole, so it may be used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLIP = "clip"
MIRRORED = (
    "its aggregator keeps the mean of vectors that devices keep; a rule that leaves most uploads out carries it away "
    f"from them; expected {CLIP!r}"
)


def always_plain(why: str, *tiers: str) -> Callable[[Any, str, str], str]:
    """A `Method.plain_sums` for all rules at these tiers; at both, where none is named."""

    def plain_sums(settings: Any, tier: str, rule: str) -> str:
        return why if not tiers or tier in tiers else ""

    return plain_sums


def clipped_at_most(settings: Any, tier: str, rule: str) -> str:
    """A `Method.plain_sums` of a method with mirrored vectors."""
    return "" if rule == CLIP else MIRRORED
