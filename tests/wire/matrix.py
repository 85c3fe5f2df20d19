"""The matrix of faults: every tier dies at every step of the protocol, the broker while a tier is at that step, and
the machine of every tier fails in every way of axes.py.

On each broker, with either durability; the machine's faults on mosquitto alone, as no broker makes a difference there.
The kills once more in runs with secret sums, with noise and without, and over hospitals: a watcher notes every use of a
mask, and none may hide two answers.

    python -m tests.wire.matrix [--rounds 1] [--seed 7] [--only kills|machine|masks]

Prints a table with a count per cell: how often a node died or failed there and the run went on with everything counted
once. A dot: that tier has no such step, or the fault is not tried there.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_sdk.delivery.storage.failpoints import POINTS
from edge_sdk.replay.nodes.broker import EmbeddedBroker, LocalBroker, Mosquitto
from tests.delivery.fleet import Fleet, eventually
from tests.faults.machine import missing
from tests.wire import axes
from tests.wire.among_node import AmongFleet
from tests.wire.secret_node import PoolFleet, SecretFleet

TREE = {"agg": ["h"], "h": ["a", "b"]}
VICTIMS = {"aggregator": "agg", "hospital": "h", "device": "a"}
Cell = tuple[str, str, str]  # who dies, while which tier is at which point


def cells() -> list[Cell]:
    """List all cells. Only the aggregator tells its application anything."""
    steps = [(tier, point) for tier in VICTIMS for point in POINTS if point != "told" or tier == "aggregator"]
    return [(victim, tier, point) for tier, point in steps for victim in (tier, "broker")]


def kill_broker_at(fleet: Fleet, broker: LocalBroker, tier: str, point: str, nth: int) -> None:
    """The broker dies while that node stands there, and all go on for two rounds."""
    name = VICTIMS[tier]
    fleet.kill(name)
    fleet.start(name, fail=f"{point}:{nth}:stop")
    eventually(lambda: fleet.stands_still(name))
    broker.kill()
    broker.start()
    fleet.go_on(name)
    reached = fleet.rounds()
    eventually(lambda: fleet.rounds() >= reached + 2)


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
    """Visit all cells one after the other in one run; then everything must have counted once."""
    # bodies of 400 KB in pieces of 64 KB, kept in files
    return visit(Fleet(base, broker.url, TREE, size=100_000, largest_chunk=65536, **settings), broker, wanted, dice)


def visit(fleet: Fleet, broker: LocalBroker, wanted: list[Cell], dice: random.Random) -> Counter[Cell]:
    """Visit all cells one after the other in a fleet's run."""
    survived: Counter[Cell] = Counter()
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 2)
        for victim, tier, point in wanted:
            if victim == "broker":
                kill_broker_at(fleet, broker, tier, point, dice.randint(1, 4))
            else:
                kill_at(fleet, tier, point, dice.randint(1, 4))
            survived[victim, tier, point] += 1
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
    parser.add_argument("--only", choices=("kills", "machine", "masks"))
    args = parser.parse_args()
    dice = random.Random(args.seed)
    if args.only in (None, "kills"):
        print_kills(play_kills(dice, args.rounds))
    if args.only in (None, "machine"):
        print_faults(play_faults(dice, args.rounds))
    if args.only in (None, "masks"):
        columns = play_masks(dice, args.rounds) | play_pools(dice, args.rounds)
        print_kills(columns | play_among(dice, args.rounds))


def play_kills(dice: random.Random, rounds: int) -> dict[str, Counter[Cell]]:
    """Kill on each broker, with either durability; returns a column of the table for each."""
    columns = {}
    for kind in (Mosquitto, EmbeddedBroker):
        for durability in ("normal", "full"):
            wanted = cells() * rounds
            dice.shuffle(wanted)
            with lasting(kind()) as broker, tempfile.TemporaryDirectory() as base:
                label = f"{'mosquitto' if kind is Mosquitto else 'amqtt'} {durability}"
                columns[label] = play(Path(base), broker, wanted, dice, durability=durability)
            print(f"{label}: {columns[label].total()} kills", file=sys.stderr, flush=True)
    return columns


SMALL = [cell for cell in cells() if cell[2] not in ("chunk", "assembled", "file")]
"""Cells that a run with a small model has: its bodies are in one piece, and in no file."""


LEGS: dict[str, dict[str, object]] = {
    "secret normal": {"durability": "normal"},
    "secret full": {"durability": "full"},
    "secret noisy": {"noisy": True},
}
"""Runs with secret sums of eight bits, rotated: with either durability, and with noise."""


def play_masks(dice: random.Random, rounds: int) -> dict[str, Counter[Cell]]:
    """Kill in runs with secret sums, on mosquitto."""
    columns = {}
    for leg, settings in LEGS.items():
        wanted = SMALL * rounds
        dice.shuffle(wanted)
        with lasting(Mosquitto()) as broker, tempfile.TemporaryDirectory() as base:
            fleet = SecretFleet(Path(base), broker.url, TREE, **settings)
            columns[leg] = visit(fleet, broker, wanted, dice)
            uses, twice = len(fleet.uses()), fleet.tried_twice()
        said = f"{uses} masks were used, and each hid one answer; {twice} questions had two answers"
        print(f"{leg}: {columns[leg].total()} kills, {said}", file=sys.stderr, flush=True)
    return columns


def play_pools(dice: random.Random, rounds: int) -> dict[str, Counter[Cell]]:
    """Kill in a run with sums over hospitals: a kill may cost the round that is on."""
    wanted = SMALL * rounds
    dice.shuffle(wanted)
    with lasting(Mosquitto()) as broker, tempfile.TemporaryDirectory() as base:
        fleet = PoolFleet(Path(base), broker.url)
        column = visit(fleet, broker, wanted, dice)
        lost = sum(row[2] == 0 for row in fleet.told())
        said = f"{len(fleet.uses())} masks were used, and each hid one value; {lost} rounds were lost"
    print(f"over hospitals: {column.total()} kills, {said}", file=sys.stderr, flush=True)
    return {"over hospitals": column}


def play_among(dice: random.Random, rounds: int) -> dict[str, Counter[Cell]]:
    """Kill in a run whose devices open its sums among themselves: a kill may cost a device's part in the round."""
    wanted = SMALL * rounds
    dice.shuffle(wanted)
    with lasting(Mosquitto()) as broker, tempfile.TemporaryDirectory() as base:
        fleet = AmongFleet(Path(base), broker.url)
        column = visit(fleet, broker, wanted, dice)
        fewer, lost = (sum(row[2] == count for row in fleet.told()) for count in (3, 0))
        uses = len(fleet.uses())
    said = f"{uses} secrets and shares, each used once; {fewer} rounds without a device, {lost} without a sum"
    print(f"among devices: {column.total()} kills, {said}", file=sys.stderr, flush=True)
    return {"among devices": column}


def play_faults(dice: random.Random, rounds: int) -> dict[str, Counter[axes.Cell]]:
    """Let machines fail, with either durability; returns a column of the table for each."""
    columns = {}
    if why := missing():
        print(f"no machine can be made to fail: {why}", file=sys.stderr)
        return columns
    for durability in ("normal", "full"):
        wanted = axes.cells() * rounds
        dice.shuffle(wanted)
        with lasting(Mosquitto()) as broker, tempfile.TemporaryDirectory() as base:
            columns[f"mosquitto {durability}"] = found = axes.play(Path(base), broker, wanted, dice, durability)
        print(f"mosquitto {durability}: {found.total()} faults of a machine", file=sys.stderr, flush=True)
    return columns


@contextmanager
def lasting(broker: LocalBroker) -> Iterator[LocalBroker]:
    """A broker that keeps its port when it is killed and started, in a `with`."""
    with broker:
        broker.wanted = broker.port
        yield broker


def print_faults(columns: dict[str, Counter[axes.Cell]]) -> None:
    print(f"{'':38}" + "".join(f"{label:>18}" for label in columns))
    for axis, tier in axes.cells():
        print(f"{tier}: {axis}".ljust(38) + "".join(f"{found[axis, tier] or '.':>18}" for found in columns.values()))


def print_kills(columns: dict[str, Counter[Cell]]) -> None:
    print(f"{'':38}" + "".join(f"{label:>18}" for label in columns))
    for victim in (*VICTIMS, "broker"):
        for tier in VICTIMS if victim == "broker" else [victim]:
            for point in POINTS:
                row = "".join(f"{found[victim, tier, point] or '.':>18}" for found in columns.values())
                print(f"{victim if victim == tier else f'broker, {tier} at'} {point}".ljust(38) + row)


if __name__ == "__main__":
    main()
