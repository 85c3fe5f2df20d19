"""Every reader of bytes from elsewhere: its own seeds are accepted, and what is made of them ends in our own errors."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from edge_sdk.errors import AuscultError
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS

CASES = {"bundle": 60, "graph": 60, "requests": 60, "rosters": 60}
MEMORY = 64 * 2**20  # bytes; the largest seed has 1 MB

by_target = pytest.mark.parametrize("name", sorted(TARGETS))


@by_target
def test_seeds_are_accepted(name: str) -> None:
    for seed in (seeds := TARGETS[name].seeds()):
        TARGETS[name].check(seed)
    assert seeds


@by_target
def test_only_our_own_errors_come_out(name: str) -> None:
    target, seeds, chance = TARGETS[name], TARGETS[name].seeds(), random.Random(name)
    refused = 0
    tracemalloc.start()
    try:
        for _ in range(CASES.get(name, 400)):
            data = mutate(seeds, chance)
            try:
                target.check(data)
            except AuscultError as error:
                refused += 1
                assert str(error)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert refused > 20


def test_a_reader_that_crashes_would_be_found() -> None:
    """The mutations reach an input at which a careless reader of frames raises something else."""
    seeds, chance, found = TARGETS["frames"].seeds(), random.Random(1), set()
    for _ in range(200):
        data = mutate(seeds, chance)
        try:
            memoryview(data)[2 : 2 + data[0]].tobytes().decode()
        except (IndexError, UnicodeDecodeError) as error:
            found.add(type(error))
    assert found
