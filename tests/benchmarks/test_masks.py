"""The benchmark of secret sums, small: its rounds end, and its sum is opened to what was added."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
from benchmarks.masks import time_masks, time_rounds


def test_it_measures_something() -> None:
    assert all(seconds > 0 for seconds in (*time_masks(30, 1000), time_rounds(True, 3, 1000, rounds=2)))
