"""Tests of simulate/memory.py, in a process of its own: what the C library keeps holds for a whole process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import numpy as np
from edge_sdk.simulate.memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def work():
    for _ in range(200):
        held = [np.ones(36_000, np.float32) for _ in range(3)]
        del held
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_vectors_that_come_and_go_cost_no_new_pages() -> None:
    def pages(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, check=True).stdout)

    assert pages("kept") < 100 < pages("as it is")
