"""The process that plays trials: nothing of it is left when it is over, nor when whoever has asked for it is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the aggregator's kernels need torch")

from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning.process import TrialProcess

ENDLESS = 1_000_000


def trial_in(out: Path, stopping: threading.Event | None = None) -> TrialProcess:
    small = {"data": "breast-cancer", "hospitals": 2, "seed": 3, "options": {"devices": 2}, "method": "fedavg"}
    return TrialProcess(Replay(**small, rounds=ENDLESS, out=out), lambda text: None, stopping or threading.Event())  # type: ignore[arg-type]


def test_no_process_and_no_thread_is_left(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    with trial_in(tmp_path) as worker:
        process = worker.start()
    assert process.returncode is not None and {*threading.enumerate()} == before


def test_a_trial_that_is_to_stop_has_no_process(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with trial_in(tmp_path, stopping) as worker:
        assert worker.play({}) is None and worker.process is None


def test_a_trial_ends_with_whoever_has_asked_for_it(tmp_path: Path) -> None:
    """Killed in the middle of an endless trial, he cannot end it himself."""
    code = "import sys, pathlib\nfrom tests.replay.test_trial_process import trial_in\n"
    code += "with trial_in(pathlib.Path(sys.argv[1])) as worker:\n"
    code += "    print(worker.start().pid, flush=True)\n    worker.play({})\n"
    asking = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    handle = os.pidfd_open(int(asking.stdout.readline()))
    try:
        asking.kill()
        asking.communicate()
        assert select.select([handle], [], [], 30)[0], "the trial goes on"
    finally:
        if not select.select([handle], [], [], 0)[0]:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
