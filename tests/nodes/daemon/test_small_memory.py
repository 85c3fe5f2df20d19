"""The heap of a device's process: what threads have freed goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED = """
import threading
from edge_sdk.nodes.daemon.serve import keep_memory_small

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

assert keep_memory_small()
before = resident()
for _ in range(4):  # each of these blocks is smaller than one that malloc maps for itself
    thread = threading.Thread(target=lambda: [bytearray(60_000) for _ in range(500)])
    thread.start()
    thread.join()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps its memory as it does")
def test_what_threads_have_freed_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 10  # MB, of four times 30
