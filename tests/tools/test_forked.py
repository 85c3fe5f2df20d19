"""Work in a fork: its result, its errors, its crashes, and its end when it takes too long."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from edge_sdk.tools.profiling.forked import ForkError, run_forked
from edge_sdk.tools.profiling.step_cost import measure

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


def test_what_it_returns_and_that_it_was_another_process() -> None:
    pid, doubled = run_forked(lambda x: [os.getpid(), 2 * x], 21, patience=60)
    assert doubled == 42 and pid != os.getpid()


def test_errors_crashes_and_work_without_end() -> None:
    with pytest.raises(ForkError, match="ZeroDivisionError: division by zero"):
        run_forked(lambda: 1 / 0, patience=60)
    with pytest.raises(ForkError, match="ended by SIGKILL"):
        run_forked(lambda: os.kill(os.getpid(), signal.SIGKILL), patience=60)
    with pytest.raises(ForkError, match="ended with code 3"):
        run_forked(lambda: os._exit(3), patience=60)
    with pytest.raises(ForkError, match="TypeError"):
        run_forked(lambda: object(), patience=60)
    began = time.monotonic()
    with pytest.raises(ForkError, match="not done after 0 s"):
        run_forked(time.sleep, 60, patience=0.1)
    assert time.monotonic() - began < 30


def test_steps_are_measured_without_a_second_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = measure(BUNDLE, batch=8)
    assert found["loss_grad ms"] > 0 and found["batch"] == 8
