"""kill -9 of every process and of the broker, at seeded moments and at every step: all still counts exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import EmbeddedBroker, LocalBroker, Mosquitto
from tests.conftest import missing
from tests.delivery.fleet import Fleet, eventually
from tests.wire.matrix import cells, play

TREE = {"agg": ["h"], "h": ["a", "b"]}


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "inline"])
def test_everything_counts_once_whatever_is_killed(tmp_path: Path, mortal: LocalBroker, worker: bool) -> None:
    dice = random.Random(7)
    fleet = Fleet(tmp_path, mortal.url, TREE, worker=worker)
    kills = 6 if isinstance(mortal, EmbeddedBroker) else 12
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 3)
        for victim in victims(dice, kills):
            time.sleep(dice.uniform(0.02, 0.6))  # the moment is what is varied
            if victim == "broker":
                mortal.kill()
                mortal.start()
            else:
                fleet.kill(victim)
                fleet.start(victim)
        reached = fleet.rounds()
        eventually(lambda: fleet.rounds() >= reached + 10)
        fleet.stop_all()
        fleet.check()
    finally:
        fleet.end()


@pytest.mark.parametrize("version", [4, pytest.param(None, marks=pytest.mark.long)], ids=["3.1.1", "5"])
def test_everything_counts_once_while_the_broker_takes_ever_other_packets(tmp_path: Path, version: int | None) -> None:
    """What was cut for one limit goes on under another one, and whoever had half of it is killed."""
    if missing("mosquitto"):
        pytest.skip(missing("mosquitto"))
    dice, limits = random.Random(23), (131_072, 20_000, 60_000, 12_000)
    with Mosquitto(settings="max_packet_size 131072") as broker:
        broker.wanted = broker.port
        fleet = Fleet(tmp_path, broker.url, TREE, version=version, size=40_000)
        try:
            fleet.start_all()
            for victim, limit in zip(("h", "a", "agg", "b"), limits[1:] + limits[:1], strict=True):
                reached = fleet.rounds()
                eventually(lambda reached=reached: fleet.rounds() > reached, 120.0)  # type: ignore[misc]
                time.sleep(dice.uniform(0.02, 0.3))  # the moment is what is varied
                broker.kill()
                broker.settings = f"max_packet_size {limit}"
                broker.start()
                time.sleep(dice.uniform(0.1, 0.8))
                fleet.kill(victim)
                fleet.start(victim)
            reached = fleet.rounds()
            eventually(lambda: fleet.rounds() >= reached + 3, 120.0)
            fleet.stop_all()
            fleet.check()
        finally:
            fleet.end()


@pytest.mark.long
def test_two_runs_at_once_count_once_each_whatever_is_killed(tmp_path: Path, mortal: LocalBroker) -> None:
    """Two aggregators of one name, a hospital and two devices that work in the runs of both at once. Both runs have the
    same name, so nothing but the lane tells them apart."""
    dice = random.Random(17)
    first = Fleet(tmp_path / "first", mortal.url, TREE, beside=True)
    second = Fleet(tmp_path / "second", mortal.url, TREE, lane=1)
    (tmp_path / "second").mkdir()
    for name in ("h", "a", "b"):
        (tmp_path / "second" / name).symlink_to(tmp_path / "first" / name / "lane-1")
    try:
        first.start_all()
        second.start("agg")
        eventually(lambda: min(first.rounds(), second.rounds()) >= 3)
        for victim in ("h", "a", "other", "b", "agg", "broker"):
            time.sleep(dice.uniform(0.02, 0.4))  # the moment is what is varied
            if victim == "broker":
                mortal.kill()
                mortal.start()
            else:
                fleet, name = (second, "agg") if victim == "other" else (first, victim)
                fleet.kill(name)
                fleet.start(name)
        reached = first.rounds(), second.rounds()
        eventually(lambda: first.rounds() >= reached[0] + 5 and second.rounds() >= reached[1] + 5)
        first.stop_all()
        second.stop_all()
        first.check()
        second.check()
    finally:
        first.end()
        second.end()


def victims(dice: random.Random, count: int) -> list[str]:
    """Each at least once."""
    everybody = ["agg", "h", "a", "b", "broker"]
    chosen = everybody + dice.choices(everybody, k=max(0, count - len(everybody)))
    dice.shuffle(chosen)
    return chosen


@pytest.mark.parametrize("mortal", ["mosquitto"], indirect=True)
def test_a_tier_may_die_at_any_step(tmp_path: Path, mortal: LocalBroker) -> None:
    """A sixth of the kill matrix, every step on some tier; the whole of it is a command (matrix.py)."""
    dice = random.Random(11)
    all_cells = cells()
    points = sorted({point for _, _, point in all_cells})
    wanted = [dice.choice([c for c in all_cells if c[2] == point]) for point in points]
    assert play(tmp_path, mortal, wanted, dice).total() == len(points)
