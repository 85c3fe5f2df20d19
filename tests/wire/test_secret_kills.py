"""kill -9 of a device that has masked an answer and saved nothing; all kills are a command (matrix.py --only masks)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.replay.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.wire.matrix import TREE
from tests.wire.secret_node import SecretFleet

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
def test_the_watcher_finds_a_mask_that_follows_from_the_question_alone(tmp_path: Path, quick: LocalBroker) -> None:
    assert len(play(tmp_path, quick, forgetful=True).reused()) == 1
