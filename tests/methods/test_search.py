"""Search spaces and recommended settings of all methods."""

from __future__ import annotations

from typing import Any

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.contract.search import OneOf, Range, flattened, nested, overlaid
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration.assembly import settings_of


def extremes(values: Range | OneOf) -> list[Any]:
    if isinstance(values, OneOf):
        return list(values.values)
    return [int(values.low), int(values.high)] if values.whole else [values.low, values.high]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_value_of_a_search_space_is_one_that_the_method_takes(name: str) -> None:
    space = METHODS[name].search
    assert space, "a method that auscult tune cannot tune"
    others = {key: extremes(values)[-1] for key, values in space.items()}
    for key, values in space.items():
        for value in extremes(values):
            assert value in values
            found = settings_of(Run(id="r", method=name, settings=nested({**others, key: value})))
            at: Any = found
            for part in key.split("."):
                at = getattr(at, part)
            assert at == value


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_is_recommended_is_in_the_search_space_where_it_is_searched(name: str) -> None:
    method = METHODS[name]
    settings_of(Run(id="r", method=name, settings=method.recommended))
    for key, value in flattened(method.recommended).items():
        if key in method.search:
            assert value in method.search[key], f"{key} = {value} lies outside {method.search[key]}"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_is_recommended_differs_from_the_paper(name: str) -> None:
    method = METHODS[name]
    for key, value in flattened(method.recommended).items():
        at: Any = method.settings()
        for part in key.split("."):
            at = getattr(at, part)
        assert at != value, f"{key} = {value} is the default already"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Range(1.0, 1.0),
        lambda: Range(0.0, 1.0),
        lambda: Range(1.0, float("inf")),
        lambda: OneOf((1,)),
        lambda: OneOf((1, 2, 1)),
    ],
)
def test_a_space_without_a_choice_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


def test_dotted_names_are_tables() -> None:
    tables = {"shared": {"eta_l": 0.1, "lam": 0.0}, "into": 1}
    assert flattened(tables) == {"shared.eta_l": 0.1, "shared.lam": 0.0, "into": 1}
    assert nested(flattened(tables)) == tables
    assert overlaid(tables, {"shared": {"lam": 2.0}}) == {"shared": {"eta_l": 0.1, "lam": 2.0}, "into": 1}
    assert tables["shared"] == {"eta_l": 0.1, "lam": 0.0}, "overlaid has changed its argument"
