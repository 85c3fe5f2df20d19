"""The table of docs/tuning.md: each setting that the paper, or what is recommended, has other than the default."""

from __future__ import annotations

from typing import Any

from edge_sdk.contract.search import flattened
from edge_sdk.methods import METHODS
from tests.docs.test_names import table_rows


def default_of(method: str, key: str) -> Any:
    at: Any = METHODS[method].settings()
    for part in key.split("."):
        at = getattr(at, part)
    return at


def test_the_table_has_what_is_not_the_default_and_nothing_else() -> None:
    expected = []
    for name, method in METHODS.items():
        paper, recommended = flattened(method.paper), flattened(method.recommended)
        for key in {**paper, **recommended}:
            default = default_of(name, key)
            values = default, paper.get(key, default), recommended.get(key, default)
            expected.append([f"`{name}`", f"`{key}`", *map(str, values)])
    rows = [[cell.strip(" |") for cell in row] for row in table_rows("docs/tuning.md") if len(row) == 5]
    shown = [row for row in rows if row[0].strip("`") in METHODS]  # the page has another table of five columns
    assert sorted(shown) == sorted(expected)
