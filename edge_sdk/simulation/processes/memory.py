"""Memory of a simulating process: what is freed stays with it, and what lasts is not searched for garbage.

Vectors of thousands of answers come and go, all of one size. The C library gives large blocks back to the kernel when
they are freed, and each new one comes back page by page, set to zero. With a model of 36k parameters that was a tenth
of a simulated answer.

Python searches for circles of objects that nobody holds, each time that some hundreds of objects are new; now and then
it goes through all there are: modules, graphs and clients of the whole process. Answers make many objects and hardly a
circle; they go when nobody holds them, without a search. It was up to a quarter of a simulated answer.
"""

from __future__ import annotations

import ctypes
import gc
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc's malloc.h
KEPT = 256 * 2**20
"""Bytes that may lie free at the end of the heap."""
LARGEST = 32 * 2**20
"""Bytes of a block that is still taken from the heap: more the C library does not allow."""

NEW_OBJECTS, YOUNG, OLDER = 50_000, 20, 100
"""New objects before Python looks through them; such looks before one at older objects; and those before one at all."""


def keep_freed_memory() -> bool:
    """Has glibc keep what is freed for the next blocks; False: it is another C library, which goes on as it does."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {MMAP_THRESHOLD: LARGEST, TRIM_THRESHOLD: KEPT}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())


@contextmanager
def searching_rarely() -> Iterator[None]:
    """Within it, Python does not search what there is at its begin for garbage, and what is made in it seldom.

    An application that has frozen its objects itself keeps them frozen: they cannot be told from those of a simulation.
    """
    usual, is_ours = gc.get_threshold(), not gc.get_freeze_count()
    if is_ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(NEW_OBJECTS, YOUNG, OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        if is_ours:
            gc.unfreeze()
