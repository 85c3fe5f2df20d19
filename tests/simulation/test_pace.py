"""Tests of simulate/network/checkpoint_pace.py on a clock that is set by hand."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from edge_sdk.simulation.network.checkpoint_pace import SHARE, SavingPace


class Hand:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def play(pace: SavingPace, clock: Hand, rounds: int, work: float, save: float) -> list[int]:
    """Rounds after which it was saved."""
    found = []
    for round in range(rounds):
        due = pace.is_due()
        with pace.working():
            clock.now += work
        if due:
            with pace.saving():
                clock.now += save
            found.append(round)
    return found


def test_long_rounds_are_saved_each() -> None:
    clock = Hand()
    assert play(SavingPace(30.0, clock), clock, 6, work=1.0, save=0.04) == [0, 1, 2, 3, 4, 5]


def test_checkpoints_of_short_rounds_take_a_small_share_of_the_time() -> None:
    clock = Hand()
    saved = play(SavingPace(30.0, clock), clock, 1000, work=0.01, save=0.04)
    assert saved[0] == 0 and 0.5 * SHARE < 0.04 * len(saved) / clock.now <= 1.1 * SHARE


def test_checkpoints_that_take_long_come_all_the_same() -> None:
    clock = Hand()
    saved = play(SavingPace(30.0, clock), clock, 100, work=1.0, save=10.0)
    assert {b - a for a, b in pairwise(saved)} == {30}


def test_none_where_none_are_wanted() -> None:
    clock = Hand()
    assert play(SavingPace(inf, clock), clock, 50, work=100.0, save=0.0) == []
