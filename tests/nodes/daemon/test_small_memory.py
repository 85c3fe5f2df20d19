"""The heap of a device's process: one for all threads, so that each does not keep what it once needed."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

HEAPS = """
import ctypes, sys, threading
from edge_sdk.nodes.daemon.serve import keep_memory_small

assert keep_memory_small()
together = threading.Barrier(4)

def allocate():
    together.wait()
    kept.append(bytearray(60_000))
    together.wait()

kept = []
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
library.malloc_info(0, file)
library.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps its memory as it does")
def test_threads_of_a_device_share_one_heap(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HEAPS, str(tmp_path / "heaps.xml")], check=True)
    assert (tmp_path / "heaps.xml").read_text().count("<heap nr=") == 1


HOLES = """
from edge_sdk.nodes.daemon.serve import keep_memory_small, return_free_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

keep_memory_small()
kept = [bytearray(b"x" * 50_000) for _ in range(400)]
del kept[::2]
before = resident()
return_free_memory()
print(before - resident(), sum(map(len, kept)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps its memory as it does")
def test_what_lies_free_between_what_is_in_use_goes_back_to_the_system() -> None:
    said = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True).stdout
    back, kept = map(int, said.split())
    assert back > 0.8 * kept
