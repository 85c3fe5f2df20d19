"""Tests of simulate/processes/memory.py, in a process of its own: what the C library keeps holds for a whole
process."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from edge_sdk.simulation.processes.memory import searching_rarely

COUNT = """
import resource, sys
import numpy as np
from edge_sdk.simulation.processes.memory import keep_freed_memory
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


class Circle:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """As in a process of its own; tests/conftest.py freezes what all tests have made."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_circles_are_found_all_the_same() -> None:
    """Seldom, but so that they do not fill the memory; and afterwards all is as it was."""
    before, lasting = gc.get_threshold(), [Circle()]
    with searching_rarely():
        assert gc.get_freeze_count() > 0
        found = gc.get_stats()[0]["collected"]
        for _ in range(200_000):
            Circle()
        assert gc.get_stats()[0]["collected"] - found > 100_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0) and lasting[0].own is lasting[0]


@pytest.mark.usefixtures("nothing_frozen")
def test_what_an_application_has_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with searching_rarely():
        pass
    assert gc.get_freeze_count() > frozen // 2 > 0  # a few go by themselves, when nobody has them any more


@pytest.mark.usefixtures("nothing_frozen")
def test_a_run_that_fails_leaves_the_search_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(RuntimeError), searching_rarely():
        raise RuntimeError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
