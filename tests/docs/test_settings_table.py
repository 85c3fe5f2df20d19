"""The generated page of settings has each value of a paper, and each recommended one, beside the default."""

from __future__ import annotations

from typing import Any

import pytest

from docs.site.settings import method_table
from edge_sdk.contract.search import flattened
from edge_sdk.methods import METHODS


def default_of(method: str, key: str) -> Any:
    at: Any = METHODS[method].settings()
    for part in key.split("."):
        at = getattr(at, part)
    return at


@pytest.mark.parametrize("name", METHODS)
def test_values_other_than_the_default_are_in_the_table(name: str) -> None:
    method = METHODS[name]
    paper, recommended = flattened(method.paper), flattened(method.recommended)
    lines = "\n".join(method_table(method)).splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split(" | ")][:4] for line in lines if line.startswith("| `")]
    shown = {key: tuple(values) for key, *values in rows if any(values[1:])}
    expected = {
        key: (str(default_of(name, key)), str(paper.get(key, "")), str(recommended.get(key, "")))
        for key in {**paper, **recommended}
    }
    assert shown == expected
