"""What is said of a bundle whose windows are longer or shorter than those of the data."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.replay.planning.bundles import cut_otherwise


@pytest.mark.parametrize(
    ("wanted", "own", "said"),
    [
        ({"x": (6, 52)}, {"x": (6, 64)}, "; traces are cut for it with --window 52"),
        ({"x": (6, 64)}, {"x": (6, 64)}, ""),
        ({"x": (3, 52)}, {"x": (6, 64)}, ""),
        ({"x": (30,)}, {"x": (6, 64)}, ""),
        ({"device": (6, 52)}, {"x": (6, 64)}, ""),
    ],
)
def test_only_another_length_is_cut_otherwise(wanted: Any, own: Any, said: str) -> None:
    cohort: Any = SimpleNamespace(shapes=own)
    assert cut_otherwise(wanted, cohort) == said
