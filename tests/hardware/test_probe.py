"""What a process says that it uses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from edge_sdk.hardware.probe import peak_memory_mb


def test_peak_memory_is_of_this_process_and_not_of_the_one_that_started_it() -> None:
    filled = np.ones(25_000_000)  # 200 MB
    assert peak_memory_mb() > 200
    script = "from edge_sdk.hardware.probe import peak_memory_mb; print(peak_memory_mb())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100 < filled.nbytes / 2**20
