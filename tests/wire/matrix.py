"""The kill matrix: every tier dies at every step of the protocol, on each broker, with either durability.

    python -m tests.wire.matrix [--rounds 1] [--seed 7]

Prints a table with a count per cell: how often a node died there and the run went on with everything counted once. A
dot: that tier has no such step. The broker is killed between the cells.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from edge_sdk.broker import EmbeddedBroker, LocalBroker, Mosquitto
from edge_sdk.failpoints import POINTS
from tests.wire.fleet import Fleet, eventually

TREE = {"agg": ["h"], "h": ["a", "b"]}
VICTIMS = {"aggregator": "agg", "hospital": "h", "device": "a"}
Cell = tuple[str, str]  # tier, point


def cells() -> list[Cell]:
    """All that there are: only the aggregator tells its application anything."""
    return [(tier, point) for tier in VICTIMS for point in POINTS if point != "told" or tier == "aggregator"]


def kill_at(fleet: Fleet, tier: str, point: str, nth: int) -> None:
    """Die there, come back, and go on for two rounds."""
    name = VICTIMS[tier]
    fleet.kill(name)
    fleet.start(name, fail=f"{point}:{nth}")
    assert fleet.dies(name), f"{tier} has not come to {point!r} {nth} times:\n{fleet.log(name)}"
    fleet.start(name)
    reached = fleet.rounds()
    eventually(lambda: fleet.rounds() >= reached + 2)


def play(base: Path, broker: LocalBroker, wanted: list[Cell], dice: random.Random, **settings: object) -> Counter[Cell]:
    """All cells one after the other in one run; then everything must have counted once."""
    # bodies of 400 KB in pieces of 64 KB, kept in files
    fleet = Fleet(base, broker.url, TREE, size=100_000, largest_chunk=65536, **settings)
    survived: Counter[Cell] = Counter()
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 2)
        for tier, point in wanted:
            kill_at(fleet, tier, point, dice.randint(1, 4))
            survived[tier, point] += 1
            if dice.random() < 0.2:
                broker.kill()
                broker.start()
        reached = fleet.rounds()
        eventually(lambda: fleet.rounds() >= reached + 2)
        fleet.stop_all()
        fleet.check()
    finally:
        fleet.end()
    return survived


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="how often each cell is visited")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    dice, columns = random.Random(args.seed), {}
    for kind in (Mosquitto, EmbeddedBroker):
        for durability in ("normal", "full"):
            wanted = cells() * args.rounds
            dice.shuffle(wanted)
            broker = kind()
            broker.start()
            broker.wanted = broker.port
            with tempfile.TemporaryDirectory() as base:
                label = f"{'mosquitto' if kind is Mosquitto else 'amqtt'} {durability}"
                columns[label] = play(Path(base), broker, wanted, dice, durability=durability)
            broker.__exit__(None, None, None)
            print(f"{label}: {columns[label].total()} kills", file=sys.stderr, flush=True)
    print(f"{'':28}" + "".join(f"{label:>18}" for label in columns))
    for tier in VICTIMS:
        for point in POINTS:
            row = "".join(f"{found[tier, point] or '.':>18}" for found in columns.values())
            print(f"{tier + ' ' + point:28}{row}")


if __name__ == "__main__":
    main()
