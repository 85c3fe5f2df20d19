"""The order of test files under several workers: those that take longest first, so that none is left for the end.

A worker gets whole files (`--dist loadfile`), and so makes what the tests of a file share once. `tests/heaviest.txt` is
written by `python -m tests.costs FILE --heaviest`; a file that is not in it comes after, in the order of its name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HEAVIEST = Path(__file__).with_name("heaviest.txt")


def heaviest() -> list[str]:
    """Paths of test files, the longest first."""
    return HEAVIEST.read_text().split()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # the same in each worker
        place = {path: number for number, path in enumerate(heaviest())}
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
