"""A device whose sensor has another rate than its bundle, said or not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edge_sdk.data.recording import Recording
from edge_sdk.errors import UsageError
from tests.nodes.device.test_live_device import RECORDING, make_device, signal_of


@pytest.mark.parametrize("rate", [100.0, 16.0])
def test_a_sensor_of_another_rate_is_resampled(tmp_path: Path, rate: float) -> None:
    device = make_device(tmp_path, recording=Recording(rate, RECORDING.limits))
    stream = device.predictions()
    times, values = signal_of(20, rate=rate)
    device.observe(values, time=float(times[0]))
    assert 17 <= device.count_windows()[""] <= 19
    device.close()
    assert len([*stream]) >= 17


@pytest.mark.parametrize("size", [1, 64])
def test_a_sensor_that_is_faster_than_was_said_is_refused_and_leaves_nothing(tmp_path: Path, size: int) -> None:
    """Windows of 64 samples would be 0.64 s long, and be predicted and learned from as if they were 2 s."""
    device = make_device(tmp_path)
    times, values = signal_of(45, rate=100.0)
    with pytest.raises(UsageError, match=r"come at 100 Hz .* where 32 Hz is expected; say .*sensor_hz=100\)"):
        for at in range(0, len(times), size):
            device.observe(values[at : at + size], time=float(times[at]))
    assert device.count_windows() == {}
    with pytest.raises(UsageError, match="100 Hz"):
        device.observe(values[0], time=float(times[-1]))
    device.close()


def test_a_sensor_of_which_too_little_comes_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = make_device(tmp_path)
    times, values = signal_of(30, rate=20.0)
    with caplog.at_level(logging.WARNING):
        for time, sample in zip(times, values, strict=True):
            device.observe(sample, time=float(time))
    assert caplog.text.count("come at 20 Hz by their times, where 32 Hz is expected; some are lost, or") == 1
    device.close()


@pytest.mark.parametrize("size", [1, 10, 128])
def test_windows_that_last_twice_as_long_are_not_kept_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    """Windows of 64 samples would be of four seconds, and be predicted and learned from as if they were of two."""
    device = make_device(tmp_path)
    times, values = signal_of(100, rate=16.0)
    with caplog.at_level(logging.INFO):
        for at in range(0, len(times), size):
            device.observe(values[at : at + size], time=float(times[at]))
        assert device.count_windows() == {}
        assert caplog.text.count("come at 16 Hz") in (1, 2) and caplog.text.count("none is kept or predicted") == 1
        more, values = signal_of(60, first=100)
        for at in range(0, len(more), size):
            device.observe(values[at : at + size], time=float(more[at]))
        assert 30 < device.count_windows()[""] < 55, "its rate is right again"
    assert caplog.messages[-1].endswith("windows are kept again")
    device.close()


def test_a_slow_sensor_whose_samples_have_times_of_their_own_is_resampled_by_these(tmp_path: Path) -> None:
    device = make_device(tmp_path, recording=Recording(64.0, RECORDING.limits))
    times, values = signal_of(60, rate=32.0)
    for at in range(0, len(times), 10):
        device.observe(values[at : at + 10], time=times[at : at + 10])
    assert device.count_windows()[""] > 55
    device.close()
