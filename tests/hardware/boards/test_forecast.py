"""The choice of threads and batch, and the arithmetic of a round."""

from __future__ import annotations

import pytest

from edge_sdk.hardware.boards.forecast import (
    HEADERS,
    REST_MB,
    StepCost,
    choose_batch,
    choose_step,
    expect_peak,
    floor_mb,
    forecast_round,
)


def cost(threads: int, batch: int, ms_per_sample: float, peak: float = 60.0, joules: float | None = None) -> StepCost:
    return StepCost(threads, batch, ms_per_sample * batch / 1e3, peak, joules)


def test_the_smallest_batch_among_equals() -> None:
    assert choose_batch([cost(1, 8, 2.0), cost(1, 16, 1.04), cost(1, 32, 1.0), cost(1, 64, 1.01)]).batch == 16


def test_more_threads_must_be_worth_it() -> None:
    assert choose_step([cost(1, 16, 1.0), cost(2, 16, 0.9), cost(4, 16, 0.7)]).threads == 1
    assert choose_step([cost(1, 16, 1.0), cost(2, 16, 0.6), cost(4, 16, 0.55)]).threads == 2
    assert choose_step([cost(1, 16, 1.0), cost(2, 16, 0.6), cost(4, 16, 0.3)]).threads == 4
    assert choose_step([cost(1, 16, 1.0), cost(4, 16, 0.62)]).threads == 1  # two doublings are to bring 1.69


def test_a_round() -> None:
    found = forecast_round(cost(1, 16, 2.0, joules=0.5), samples=100, epochs=3, parameters=1000, sample_bytes=2**20)
    assert found.steps == 21 and found.seconds == pytest.approx(21 * 0.032) and found.joules == pytest.approx(10.5)
    assert found.bytes_up == found.bytes_down == 4000 + HEADERS
    assert found.memory_mb == 60 + REST_MB + 100


def test_the_peak_of_a_larger_batch_lies_on_the_line() -> None:
    assert expect_peak([cost(1, 8, 1, peak=60)], 16) == 60
    assert expect_peak([cost(1, 8, 1, peak=60), cost(1, 16, 1, peak=64)], 64) == pytest.approx(88)
    assert expect_peak([cost(1, 8, 1, peak=60), cost(1, 16, 1, peak=59)], 64) == 59


def test_the_floor_counts_file_and_three_vectors() -> None:
    assert floor_mb(2**20, 2**20) == 13
