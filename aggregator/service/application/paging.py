"""Pages of the API's lists: `limit` and `offset` of an address, and the same in the answer with `total`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from edge_sdk.errors import UsageError

USUAL, MOST = 500, 5000
"""Rows of an answer, where nothing else is asked for and at most."""
LAST = 2**53
"""The highest number of a row."""
NUMBERS: Mapping[str, Any] = dict.fromkeys(("total", "offset", "limit"), int)
"""Fields of an answer beside its rows."""
QUERY = {
    f"limit#{MOST}": f"rows at most in the answer, up to {MOST}; {USUAL} where it is not said",
    f"offset#{LAST}": "rows before the first one of the answer",
}
R = TypeVar("R")


def cut_page(query: Mapping[str, str], rows: Sequence[R]) -> tuple[Sequence[R], dict[str, int]]:
    """The rows that an address asks for, and the numbers beside them.

    Raises:
        UsageError: `limit` or `offset` is no whole number, or too large.
    """
    limit, offset = read_count(query, "limit", USUAL, MOST), read_count(query, "offset", 0, LAST)
    return rows[offset : offset + limit], {"total": len(rows), "offset": offset, "limit": limit}


def read_count(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number of an address. Raises UsageError for one that is none or above `most`."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= most):
        raise UsageError(f"{name} = {text[:40]!r}: expected a whole number up to {most}")
    return int(text)
