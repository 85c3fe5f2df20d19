"""Freed memory that stays with the process: vectors of thousands of answers come and go, all of one size.

The C library gives large blocks back to the kernel when they are freed, and each new one comes back page by page, set
to zero. With a model of 36k parameters that was a tenth of a simulated answer.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc's malloc.h
KEPT = 256 * 2**20
"""Bytes that may lie free at the end of the heap."""
LARGEST = 32 * 2**20
"""Bytes of a block that is still taken from the heap: more the C library does not allow."""


def keep_freed_memory() -> bool:
    """Has glibc keep what is freed for the next blocks; False: it is another C library, which goes on as it does."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {MMAP_THRESHOLD: LARGEST, TRIM_THRESHOLD: KEPT}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())
