"""Power cuts: a node forgets what was written and not synced, in any order, and everything still counts once.

    python -m tests.delivery.power [--cuts 100] [--seed 7] [--durability full|normal] [--size 70000]

With `full` durability a cut is no more than a kill. With `normal` a node may lose its last commits: a device may then
work on a question twice, but no round counts anything twice or not at all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from edge_sdk.replay.nodes.broker import LocalBroker, Mosquitto
from tests.delivery.fleet import Fleet, eventually
from tests.faults.machine import missing

TREE = {"agg": ["h"], "h": ["a", "b"]}
SECONDS = 40.0  # in which the run must have gone on after a cut


def play(base: Path, broker: LocalBroker, dice: Random, cuts: int, durability: str, size: int) -> dict[str, int]:
    """Cut the power of one node after the other, sometimes of all at once; returns how often each was cut."""
    settings: dict[str, Any] = {"durability": durability, "size": size, "largest_chunk": 65536, "wait_seconds": 0.5}
    fleet = Fleet(base, broker.url, TREE, power=True, **settings)
    done = dict.fromkeys(fleet.names, 0)
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 1)
        while sum(done.values()) < cuts:
            time.sleep(dice.uniform(0.0, 0.7))  # the moment is what is varied
            victims = fleet.names if dice.random() < 0.15 else [dice.choice(fleet.names)]
            for name in victims:
                fleet.kill(name)
            for name in victims:
                fleet.machines[name].cut_power(dice)
                fleet.start(name)
                done[name] += 1
            reached = fleet.rounds()
            eventually(lambda reached=reached: fleet.rounds() >= reached + 1, SECONDS)  # type: ignore[misc]
        reached = fleet.rounds()
        eventually(lambda: fleet.rounds() >= reached + 2, SECONDS)
        fleet.stop_all()
        fleet.check(worked_once=durability == "full")
    except AssertionError as e:
        raise AssertionError(f"after {done}: {e}\n{lines_of(fleet)}") from e
    finally:
        fleet.end()
    return done


def lines_of(fleet: Fleet) -> str:
    """The last lines that each node has logged."""
    return "\n".join(f"{name}: {line}" for name in fleet.names for line in fleet.log(name).splitlines()[-8:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--durability", choices=("full", "normal"), default="full")
    parser.add_argument("--size", type=int, default=70_000, help="floats of a message")
    args = parser.parse_args()
    if why := missing():
        sys.exit(f"no power can be cut: {why}")
    with Mosquitto() as broker, tempfile.TemporaryDirectory() as base:
        done = play(Path(base), broker, Random(args.seed), args.cuts, args.durability, args.size)
    print(f"{sum(done.values())} power cuts ({done}), durability {args.durability}: everything counted once")


if __name__ == "__main__":
    main()
