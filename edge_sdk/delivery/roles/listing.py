"""Names in a sentence: of thousands of children some are enough."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 5


def list_some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
