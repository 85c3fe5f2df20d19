"""Faults of one node's machine in the middle of a run: disk, files, clock, a damaged record, power, a second process.

Each is a function that brings the fault over a node of a fleet and takes it away again. The run must go on and count
everything once, as after a kill. Where a disk is lost (a damaged record), a question is asked, and worked on, again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import Fleet, eventually
from tests.delivery.flips import flip_record
from tests.faults.machine import limit_files

TREE = {"agg": ["h"], "h": ["a", "b"]}
VICTIMS = {"aggregator": "agg", "hospital": "h", "device": "a"}
YEAR = 365 * 24 * 3600
LASTS = 1.3  # seconds of a fault: the node tries again once a second
Fault = Callable[[Fleet, LocalBroker, str, Random], None]


def disk_full(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    fleet.machines[name].fill_disk(True)
    time.sleep(LASTS + dice.random())
    fleet.machines[name].fill_disk(False)


def start_on_a_full_disk(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    fleet.kill(name)
    fleet.machines[name].fill_disk(True)
    fleet.start(name)
    time.sleep(LASTS + dice.random())
    fleet.machines[name].fill_disk(False)


def no_more_files(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    """RLIMIT_NOFILE: nothing can be opened, and half of the time the broker goes meanwhile."""
    pid = fleet.processes[name].pid
    limit_files(pid, dice.choice((0, 1)))
    if dice.random() < 0.5:
        broker_bounce(fleet, broker, name, dice)
    time.sleep(LASTS)
    limit_files(pid, None)


def clock_ahead(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    fleet.machines[name].set_clock(YEAR)
    time.sleep(dice.random())
    if dice.random() < 0.5:
        fleet.machines[name].set_clock(0)


def clock_back(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    fleet.machines[name].set_clock(-YEAR)
    fleet.kill(name)
    fleet.start(name)


def damaged_record(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    """The root ends and says so, and goes on with a copy that is whole; any other node begins with a new disk."""
    fleet.kill(name)
    path = fleet.base / name / "count.db"
    whole = read_files(path)
    assert flip_record(path, dice.randrange(10**6))
    fleet.start(name)
    if name == "agg":
        assert fleet.processes.pop(name).wait(30) != 0 and "is damaged" in fleet.log(name)
        for each, before in whole.items():
            each.write_bytes(before)
        fleet.start(name)
    else:
        eventually(lambda: (path.parent / "count.damaged").exists())


def read_files(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.parent.glob(f"{path.name}*")}


def broker_bounce(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    broker.kill()
    time.sleep(dice.random())
    broker.start()


def power_cut(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    fleet.kill(name)
    fleet.machines[name].cut_power(dice)
    fleet.start(name)


def double_start(fleet: Fleet, broker: LocalBroker, name: str, dice: Random) -> None:
    """The second process says that the directory is taken, and ends; the first does not notice."""
    second = fleet.spawn(name)
    try:
        assert second.wait(30) != 0 and "another process works in this directory" in fleet.log(name)
    finally:
        second.kill()
        second.wait()
    assert fleet.processes[name].poll() is None


AXES: dict[str, Fault] = {
    "disk full": disk_full,
    "start on a full disk": start_on_a_full_disk,
    "no more files": no_more_files,
    "clock ahead": clock_ahead,
    "clock back": clock_back,
    "broker bounce": broker_bounce,
    "double start": double_start,
    "power cut": power_cut,
    "damaged record": damaged_record,
}
LOSES_DISK = ("damaged record",)
Cell = tuple[str, str]  # axis, tier


def cells() -> list[Cell]:
    return [(axis, tier) for axis in AXES for tier in VICTIMS]


def play(base: Path, broker: LocalBroker, wanted: list[Cell], dice: Random, durability: str) -> Counter[Cell]:
    """Bring all these faults over one run after the other; then everything must have counted once."""
    fleet = Fleet(
        base, broker.url, TREE, power=True, size=70_000, largest_chunk=65536, wait_seconds=0.5, durability=durability
    )
    survived: Counter[Cell] = Counter()
    kept = durability == "full" or not any(axis == "power cut" for axis, _ in wanted)
    try:
        fleet.start_all()
        eventually(lambda: fleet.rounds() >= 2)
        for axis, tier in wanted:
            AXES[axis](fleet, broker, VICTIMS[tier], dice)
            reached = fleet.rounds()
            eventually(lambda reached=reached: fleet.rounds() >= reached + 2, 60)  # type: ignore[misc]
            survived[axis, tier] += 1
        fleet.stop_all()
        fleet.check(worked_once=kept and not any(axis in LOSES_DISK for axis, _ in wanted))
    except AssertionError as e:
        logs = "\n".join(f"{n}: {line}" for n in fleet.names for line in fleet.log(n).splitlines()[-8:])
        raise AssertionError(f"after {list(survived)}, of {wanted}: {e}\n{logs}") from e
    finally:
        fleet.end()
    return survived
