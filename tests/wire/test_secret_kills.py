"""kill -9 of a device that has masked an answer and saved nothing; all kills are a command (matrix.py --only masks)."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from edge_sdk.methods.secret.messages.among_messages import Covered
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.wire.among_node import AmongFleet
from tests.wire.matrix import TREE
from tests.wire.secret_node import PoolFleet, SecretFleet

pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
AFTER_THE_FIRST_ANSWER = "worked:2"  # the first call of a role is its start


def play(base: Path, broker: LocalBroker, **settings: object) -> SecretFleet:
    """A run in which a device dies with an answer that nobody has seen, and works out another one."""
    fleet = SecretFleet(base, broker.url, TREE, **settings)
    try:
        for name in fleet.names:
            fleet.start(name, fail=AFTER_THE_FIRST_ANSWER if name == "a" else "")
        assert fleet.dies("a"), fleet.log("a")
        fleet.start("a")
        eventually(lambda: fleet.rounds() >= 2)
        fleet.stop_all()
    finally:
        fleet.end()
    return fleet


def test_no_mask_hides_two_answers_after_a_kill(tmp_path: Path, quick: LocalBroker) -> None:
    fleet = play(tmp_path, quick)
    fleet.check()
    assert fleet.tried_twice() == 1


@pytest.mark.long
def test_no_mask_hides_two_answers_with_noise_after_a_kill(tmp_path: Path, quick: LocalBroker) -> None:
    """8 bits, rotated, with noise, under masks: what the killed device had drawn is lost, and it draws anew."""
    fleet = play(tmp_path, quick, noisy=True)
    fleet.check()
    assert fleet.tried_twice() == 1
    epsilons = [row[3] for row in fleet.told()]
    assert 0 < epsilons[0] < epsilons[-1], "every round is counted"


@pytest.mark.long
def test_the_watcher_finds_a_mask_that_follows_from_the_question_alone(tmp_path: Path, quick: LocalBroker) -> None:
    assert len(play(tmp_path, quick, forgetful=True).reused()) == 1


WORKED = range(2, 8)
"""Calls of a hospital's role: questions, answers and closes of a round with its two steps."""


@pytest.mark.long
@pytest.mark.parametrize("call", WORKED)
def test_a_killed_hospital_has_its_sum_in_one_pool_at_most(tmp_path: Path, quick: LocalBroker, call: int) -> None:
    """Killed with its call worked out and nothing saved; the run goes on, at the cost of a round at most."""
    fleet = PoolFleet(tmp_path, quick.url)
    try:
        for name in fleet.names:
            fleet.start(name, fail=f"worked:{call}" if name == "h" else "")
        assert fleet.dies("h"), fleet.log("h")
        fleet.start("h")
        eventually(lambda: fleet.rounds() >= 3 and fleet.told()[-1][2] == 2)
        fleet.stop_all()
    finally:
        fleet.end()
    fleet.check()
    assert sum(row[2] == 0 for row in fleet.told()) <= 1


# Among devices; tests/methods/secret/test_among.py has the same in memory -----------------------------------------
def play_among(base: Path, broker: LocalBroker, victim: str, point: str, **settings: object) -> AmongFleet:
    """A run of four devices that open their sums among themselves; one node dies, comes back, and all count again."""
    fleet = AmongFleet(base, broker.url, **settings)
    try:
        for name in fleet.names:
            fleet.start(name, fail=point if name == victim else "")
        assert fleet.dies(victim), fleet.log(victim)
        fleet.start(victim)
        eventually(lambda: fleet.rounds() >= 3 and fleet.told()[-1][2] == 4)
        fleet.stop_all()
    finally:
        fleet.end()
    return fleet


@pytest.mark.long
def test_a_device_that_was_killed_in_an_exchange_is_missing_in_one_round(tmp_path: Path, quick: LocalBroker) -> None:
    """It dies with its masked answer worked out: the fourth call after its start, and the others tell its key."""
    fleet = play_among(tmp_path, quick, "a", "worked:4")
    fleet.check()
    assert [row[2] for row in fleet.told()][:2] == [3, 4]


@pytest.mark.long
def test_the_watcher_finds_secrets_that_are_drawn_again(tmp_path: Path, quick: LocalBroker) -> None:
    assert len(play_among(tmp_path, quick, "a", AFTER_THE_FIRST_ANSWER, forgetful=True).reused()) == 1


@pytest.mark.long
@pytest.mark.parametrize("call", range(2, 8))
@pytest.mark.parametrize("victim", ["a", "h"])
def test_no_kill_makes_devices_tell_more(tmp_path: Path, quick: LocalBroker, victim: str, call: int) -> None:
    play_among(tmp_path, quick, victim, f"worked:{call}").check()


@pytest.mark.long
@pytest.mark.parametrize(("point", "given"), [("saved", False), ("committed", True)])
def test_what_was_answered_is_saved_with_the_answer(
    tmp_path: Path, quick: LocalBroker, point: str, given: bool
) -> None:
    """a is killed just before the commit of its masked answer, or just after it; its hospital loses its disk, and asks
    the same question again under another number: nobody gives a second answer, and all of them answer the next one."""
    fleet = AmongFleet(tmp_path, quick.url, worker=False)
    try:
        for name in fleet.names:
            fleet.start(name, fail=f"given:1:{point}" if name == "a" else "")
        assert fleet.dies("a"), fleet.log("a")
        state, waiting = fleet.saved("a")
        assert (state.answered == {"Changes": 2}) == any(isinstance(m, Covered) for m in waiting) == given
        eventually(lambda: all(map(fleet.gave, "bcd")))
        fleet.kill("h")
        rmtree(tmp_path / "h")
        fleet.start("h")
        fleet.start("a")
        eventually(lambda: fleet.rounds() >= 2 and fleet.told()[-1][2] == 4)
        fleet.stop_all()
    finally:
        fleet.end()
    fleet.check()
    assert fleet.told()[0][2] == 0
