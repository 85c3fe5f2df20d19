"""Two points of the service's kill matrix; all of them are a command (kills.py) and a long test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aggregator.service.kills import POINTS, STEPS, kill_at


@pytest.mark.parametrize("point", [pytest.param("service.saved:7", marks=pytest.mark.long), "service.committed:9"])
def test_a_service_dies_in_the_middle_and_goes_on(tmp_path: Path, point: str) -> None:
    told = kill_at(tmp_path, point)
    assert told is not None and 0 < len(told) < len(STEPS)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_service_may_die_at_any_of_its_transactions(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    for number in range(1, 1000):
        for point in POINTS:
            place = tmp_path / f"{point}-{number}"
            place.mkdir()
            url = "" if kind == "sqlite" else request.getfixturevalue("server").make_database()
            if kill_at(place, f"{point}:{number}", url) is None:
                assert number > len(STEPS)
                return
