"""The rate of a sensor by the times of its blocks."""

from __future__ import annotations

import pytest

from edge_sdk.data.live.rate import RateMeter


def fed(rate: float, size: int, seconds: float, said: float = 32.0) -> RateMeter:
    """A meter after blocks of a sensor, each with one time, as `Device.observe` spreads them."""
    meter = RateMeter(said)
    for at in range(0, int(seconds * rate), size):
        meter.push(at / rate, at / rate + (size - 1) / said, size)
    return meter


@pytest.mark.parametrize("size", [1, 10, 64])
@pytest.mark.parametrize("rate", [16.0, 32.0, 50.0, 100.0])
def test_a_rate_is_found_from_single_samples_and_from_blocks(rate: float, size: int) -> None:
    meter = fed(rate, size, 45)
    assert meter.rate == pytest.approx(rate, rel=0.02)
    assert meter.too_fast == (rate > 48) and bool(meter.describe()) == (rate != 32)


def test_what_is_said_names_the_rate_and_the_setting() -> None:
    assert "come at 100 Hz by their times, where 32 Hz is expected; say" in fed(100, 1, 20).describe()
    assert "Recording(sensor_hz=16)" in fed(16, 1, 20).describe() and "some are lost" in fed(16, 1, 20).describe()


def test_few_samples_a_pause_and_a_clock_that_is_set_back_say_nothing() -> None:
    assert fed(100, 1, 9).rate is None
    meter = fed(32, 8, 20)
    meter.push(3600.0, 3600.0, 1)
    assert meter.rate is None and meter.began == 3600
    meter.push(3612.0, 3612.0, 1)  # off again
    assert meter.rate is None and meter.began == 3612
    meter.push(100.0, 100.0, 1)
    assert meter.rate is None and meter.began == 100


def test_what_was_buffered_and_comes_in_one_go_is_not_too_fast() -> None:
    """An application that gives times of arrival reads a thousand samples at once after it was suspended."""
    meter = RateMeter(32.0)
    for at in range(1000):
        meter.push(at / 10_000, at / 10_000, 1)
    for at in range(32 * 60):
        meter.push(0.1 + at / 32, 0.1 + at / 32, 1)
        assert not meter.too_fast
    assert meter.rate == pytest.approx(32, rel=0.01)


def test_a_pause_within_a_block_begins_anew() -> None:
    meter = fed(32, 32, 20)
    meter.push(20.0, 3600.0, 32)
    meter.push(3601.0, 3602.0, 32)
    assert meter.began == 3601 and meter.rate is None
