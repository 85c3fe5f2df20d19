"""The benchmark of secret sums, small: its rounds end, and its sum is opened to what was added."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
from benchmarks.masks import time_exchange, time_masks, time_rounds


def test_it_measures_something() -> None:
    assert all(seconds > 0 for seconds in (*time_masks(30, 1000), time_rounds(True, 3, 1000, rounds=2)))


def test_it_measures_an_exchange_among_devices() -> None:
    whole, less = (time_exchange(8, 1000, missing) for missing in (0, 1))
    assert (whole.counted, less.counted) == (8, 7) and less.hospital > 0 < less.device
    assert whole.up > 1000 and whole.down > 1000
