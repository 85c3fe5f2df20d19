"""Methods whose sums have to be plain: each says why, and a run that asks for a rule is refused so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLIP = "clip"


def always_plain(why: str, *tiers: str) -> Callable[[Any, str, str], str]:
    """A `Method.plain_sums` for all rules at these tiers; at both, where none is named."""

    def plain_sums(settings: Any, tier: str, rule: str) -> str:
        return why if not tiers or tier in tiers else ""

    return plain_sums


def never_clipped(settings: Any, tier: str, rule: str) -> str:
    """A `Method.plain_sums` of a form with running sums (shared/membership/running.py)."""
    return "an upload is a change, and a shorter one would stay wrong; expected another rule" if rule == CLIP else ""
