"""Windows of a stream are those of the same samples in a trace, however they come; gaps and clocks that are set."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.data.live import windower
from edge_sdk.data.live.resample import ChannelJoiner, Resampler, is_same_rate
from edge_sdk.data.live.windower import Windower, join_windows
from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.windows import cut_windows

RATE, BEGAN = 32.0, 1_700_000_000.0


def stream(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    time = BEGAN + (np.arange(n) + random.uniform(-0.2, 0.2, n)) / RATE
    for at in random.choice(np.arange(1, n), 4, replace=False):
        time[at:] += random.uniform(0.6, 100)  # the sensor was off
    return time, random.normal(size=(n, 3)).astype(np.float32)


def push_in_blocks(cutter: Windower, time: np.ndarray, values: np.ndarray, seed: int = 1, most: int = 200):
    random, at, found = np.random.default_rng(seed), 0, []
    while at < len(time):
        upto = at + int(random.integers(1, most))
        found.append(cutter.push(time[at:upto], values[at:upto]))
        at = upto
    return join_windows(found, values.shape[1], cutter.window)


@pytest.mark.parametrize(("window", "stride", "most"), [(64, 32, 200), (64, 64, 7), (16, 40, 50), (5, 1, 2)])
def test_a_stream_is_cut_as_a_trace(window: int, stride: int, most: int) -> None:
    time, values = stream(3000)
    trace = Trace("t", time - time[0], values, ("x", "y", "z"), np.zeros(3000, np.int64), ("a",), RATE, "")
    wanted = cut_windows(trace, window, stride)
    found = push_in_blocks(Windower(3, RATE, window, stride), time, values, most=most)
    np.testing.assert_array_equal(found.x, wanted.x)
    np.testing.assert_allclose(found.ended - time[0], wanted.end, atol=1e-6)
    numbers = (np.unique(cut.recording, return_inverse=True)[1] for cut in (found, wanted))
    np.testing.assert_array_equal(*numbers)


def test_memory_is_one_window_however_long_the_stream_is() -> None:
    cutter = Windower(3, RATE, 64, 32)
    for second in range(2000):
        time = BEGAN + second + np.arange(32) / RATE
        cutter.push(time, np.zeros((32, 3), np.float32))
        assert len(cutter.time) == len(cutter.values) < 64 + 32 and cutter.values.base is None


def test_a_recording_ends_after_a_while_and_where_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windower, "LONGEST", 10.0)
    time, values = BEGAN + np.arange(960) / RATE, np.zeros((960, 3), np.float32)
    found = push_in_blocks(Windower(3, RATE, 64, 32), time, values)
    assert [round(r / 1000 - BEGAN) for r in np.unique(found.recording)] == [0, 10, 20]
    assert all((found.recording == r).sum() == 9 for r in np.unique(found.recording))
    time[480:] -= 3600
    found = push_in_blocks(Windower(3, RATE, 64, 32), time, values)
    assert (found.ended - found.began < 2).all() and len(np.unique(found.recording)) == 4


@pytest.mark.parametrize("source", [100.0, 50.0, 26.0, 12.5])
def test_another_rate_gives_the_same_signal(source: float) -> None:
    time = BEGAN + np.arange(int(60 * source)) / source
    values = np.stack([np.sin(2 * np.pi * 0.7 * time), np.cos(2 * np.pi * 0.3 * time)], 1)
    sampler, ticks, made = Resampler(source, RATE, 2), [], []
    for at in range(0, len(time), 37):
        k, v = sampler.push(time[at : at + 37], values[at : at + 37])
        ticks.append(k)
        made.append(v)
    k, v = np.concatenate(ticks), np.concatenate(made)
    assert (np.diff(k) == 1).all() and len(k) == pytest.approx(60 * RATE, abs=4)
    truth = np.stack([np.sin(2 * np.pi * 0.7 * k / RATE), np.cos(2 * np.pi * 0.3 * k / RATE)], 1)
    assert np.abs(v - truth).max() < 0.03
    assert len(sampler.time) < 20


def test_what_is_faster_than_the_new_rate_does_not_come_back_as_something_slow() -> None:
    time = BEGAN + np.arange(20_000) / 1000.0
    hum = np.sin(2 * np.pi * 50 * time)[:, None]
    _, found = Resampler(1000.0, RATE, 1).push(time, hum)
    assert np.abs(found).max() < 0.25  # an interpolation gives 1


def test_the_grid_begins_anew_after_a_gap() -> None:
    sampler = Resampler(100.0, RATE, 1)
    time = BEGAN + np.arange(400) / 100.0
    time[200:] += 5
    ticks, _ = sampler.push(time, np.zeros((400, 1)))
    assert (np.diff(ticks) > 1).sum() == 1 and not ((ticks / RATE > time[199]) & (ticks / RATE < time[200])).any()


def test_channels_that_come_one_by_one_are_put_side_by_side() -> None:
    joiner = ChannelJoiner(52.0, RATE, 2)
    time = BEGAN + np.arange(52 * 30) / 52.0
    ticks, made = [], []
    for at in range(0, len(time), 13):
        for channel, late in ((0, 0.0), (1, 0.004)):
            k, v = joiner.push(channel, time[at : at + 13] + late, np.sin(time[at : at + 13] + late + channel))
            ticks.append(k)
            made.append(v)
    k, v = np.concatenate(ticks), np.concatenate(made)
    assert (np.diff(k) == 1).all() and len(k) > 28 * RATE
    np.testing.assert_allclose(v, np.stack([np.sin(k / RATE), np.sin(k / RATE + 1)], 1), atol=0.01)
    for at in range(0, len(time), 13):
        joiner.push(0, time[at : at + 13] + 100, np.zeros(13))  # the other channel is silent for good
    assert len(joiner.ticks[0]) <= 10 * RATE


def test_rates_that_are_nearly_one_count_as_one() -> None:
    assert is_same_rate(31.25, 32.0) and not is_same_rate(25.0, 32.0)
