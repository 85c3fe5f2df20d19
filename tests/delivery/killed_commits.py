"""A store whose process is killed in the middle of each of its writes: python -m tests.delivery.killed_commits DIR

To be started with the environment of a `Machine` whose disk is DIR. Prints a row for each write, as JSON: the last
commit that the killed process had made and the one that it was making, how many later ones were killed while they
opened the store, the record that a last one finds, and whether that believes that commits are missing. Then the same
where the disk was full for another write shortly before the kill.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from edge_sdk.delivery.storage.database import DiskError
from edge_sdk.delivery.storage.store import Store
from tests.faults.machine import cut_off_writes, map_control

SIZES = (20_000, 10, 20_000, 9_000, 14_000)
"""Bytes of the records that are committed one after the other. The log is brought home after the second and the fourth,
so that what comes next is shorter or longer than what was there."""
CACHE = 4  # pages: SQLite writes some of a transaction that has more before its commit, where it may
OPENING = 12  # writes of a process that finds half a commit: every third of them is one that a process is killed in
LATER = 7  # writes between one that fails and the one in which the process is killed


def make_commits(path: Path, told: Path) -> None:
    """Open a store and make all commits, noting before each which one that is, and which was the last to end well."""
    store, done = Store(path), 0
    store.db.execute(f"pragma cache_size = {CACHE}")
    for number, size in enumerate(SIZES, start=1):
        told.write_text(f"{done} {number}")
        with suppress(DiskError):
            with store.transaction():
                store.save_record(bytes([number]) * size)
            done = number
            if number % 2 == 0:
                store.force_checkpoint()
    told.write_text(f"{done} {done}")
    store.close()


def is_killed(control: mmap.mmap, call: Callable[[], object], killed: int, failing: int = 0) -> bool:
    """Make a call in a process of its own, which is killed in the middle of a write, if there are so many."""
    child = os.fork()
    if not child:
        cut_off_writes(control, killed, failing)
        try:
            call()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    cut_off_writes(control, 0)
    return os.waitstatus_to_exitcode(status) == -SIGKILL


def play(base: Path, control: mmap.mmap, write: int, fails: bool) -> dict[str, int] | None:
    """Row of one write, in which the process is killed; `fails`: another one has failed before it. None: there are not
    so many, or the store could not be opened."""
    path, told = base / f"{write}-{fails}.db", base / f"{write}-{fails}.told"
    told.write_text("0 0")
    if not is_killed(control, lambda: make_commits(path, told), write, write - LATER if fails else 0):
        return None
    again = [is_killed(control, lambda: Store(path), number) for number in range(1 + write % 3, OPENING, 3)]
    store = Store(path)
    record, lost = store.load_record(), store.rolled_back
    store.drop()
    done, tried = map(int, told.read_text().split())
    return {"done": done, "tried": tried, "found": record[0] if record else 0, "lost": lost, "again": sum(again)}


def main(base: Path) -> None:
    control, last = map_control(Path(os.environ["FAULTS_CONTROL"])), 0
    while (row := play(base, control, last + 1, fails=False)) is not None:
        print(json.dumps(row), flush=True)
        last += 1
    for write in range(LATER + 1, last + 1):
        if (row := play(base, control, write, fails=True)) is not None:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
