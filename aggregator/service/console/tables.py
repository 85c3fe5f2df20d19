"""Tables of the console, sorted, filtered and cut into pages by the service, as the address says: they need no script.

Each table of a page has parameters of its own in the address: `q`, `sort` and `page`, with the table's name and a dash
before where a page has several. `sort` is the key of a column, after a dash for the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

PAGE = 200  # rows of one page
ALL = 10**9  # in place of it: a file has the rows of all pages
LONGEST = 200  # characters of a search


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: in the address.
        name: at its head.
        of: what a row has there; rows are sorted by it, those with None last.
        is_number: it stands on the right, and is sorted from the largest on.
    """

    key: str
    name: str
    of: Callable[[Any], Any]
    is_number: bool = False


def key_column(key: str, name: str, is_number: bool = False) -> Column:
    """A column whose values are those of a key."""
    return Column(key, name, lambda row: row[key], is_number)


class SortedTable:
    """The rows of a table that an address asks for.

    Args:
        rows: all of them, in the order of a table that nobody has sorted.
        query: parameters of the address.
        name: "" for the first table of a page.

    Attributes:
        rows: those of this page of it.
        count: rows on all its pages.
    """

    def __init__(
        self, rows: Iterable[Any], columns: Sequence[Column], query: Mapping[str, str], name: str = "", size: int = PAGE
    ):
        self.columns, self.query, self.start = columns, dict(query), f"{name}-" if name else ""
        self.q = query.get(f"{self.start}q", "")[:LONGEST]
        self.sort = query.get(f"{self.start}sort", "")
        found = [row for row in rows if self.q.lower() in self.text_of(row)] if self.q else list(rows)
        found = self.put_in_order(found)
        self.count, self.pages = len(found), max(1, -(-len(found) // size))
        self.page = min(self.pages, read_page(query.get(f"{self.start}page", "1")))
        self.rows = found[(self.page - 1) * size : self.page * size]

    def text_of(self, row: Any) -> str:
        """What a search looks through."""
        return " ".join(str(column.of(row)) for column in self.columns).lower()

    def put_in_order(self, rows: list[Any]) -> list[Any]:
        column = next((c for c in self.columns if c.key == self.sort.removeprefix("-")), None)
        if column is None:
            return rows
        of, last = column.of, [row for row in rows if column.of(row) is None]
        known = [row for row in rows if of(row) is not None]
        known.sort(key=of, reverse=column.is_number != self.sort.startswith("-"))
        return known + last

    def address(self, **changes: Any) -> str:
        """The address of this page of the console with other parameters of this table."""
        own = {f"{self.start}{key}": value for key, value in changes.items()}
        return "?" + urlencode({key: value for key, value in {**self.query, **own}.items() if value != ""})

    def sort_address(self, key: str) -> str:
        """The address at which a column is sorted by, or the other way round if it is already."""
        return self.address(sort=f"-{key}" if self.sort == key else key, page="")

    def order_of(self, column: Column) -> str:
        """The order of a column in the words of `aria-sort`; "": it is not sorted by this one."""
        if self.sort.removeprefix("-") != column.key:
            return ""
        return "descending" if column.is_number != self.sort.startswith("-") else "ascending"

    def csv_address(self, path: str) -> str:
        """The address of the same rows as a file."""
        own = {key: self.query[f"{self.start}{key}"] for key in ("q", "sort") if self.query.get(f"{self.start}{key}")}
        return f"{path}?{urlencode(own)}" if own else path

    def others(self) -> dict[str, str]:
        """Parameters that a form for the search has to keep."""
        own = {f"{self.start}q", f"{self.start}page"}
        return {key: value for key, value in self.query.items() if key not in own}


def read_page(text: str) -> int:
    """The number of a page, from 1 on; what is none counts as the first."""
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1
