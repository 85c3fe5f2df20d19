"""Random bytes changed in the files of nodes that were killed in the middle of a run, which are then started again.

    python -m tests.delivery.flips [--trials 200] [--seed 1]

Each trial changes some bytes of one file of one node, as a bad disk or memory would, and starts all nodes. The run must
go on with every answer counted once, or the node says that it cannot use what it finds. To go on with a wrong number is
a failure, and so is standing still without a word.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

import msgpack

from edge_sdk.errors import UsageError
from edge_sdk.replay.nodes.broker import LocalBroker, Mosquitto
from tests.delivery import roles
from tests.delivery.fleet import Fleet, eventually
from tests.delivery.live import Live, Net

TREE = {"agg": ["h"], "h": ["a", "b"]}
SIZE = 70_000  # floats of a message, which therefore travels in chunks and is kept in a file
SECONDS = 12.0  # in which a run must have gone on


def killed_run(base: Path, broker: LocalBroker, dice: Random) -> None:
    """Leave behind the directories of four nodes that were killed in the middle of a run."""
    fleet = Fleet(base, broker.url, TREE, size=SIZE, largest_chunk=65536)
    try:
        for name in fleet.names:
            fleet.start(name, fail="chunk:6" if name == "b" else "")
        assert fleet.dies("b")
        fleet.start("b")
        eventually(lambda: fleet.rounds() >= 3)
        names = dice.sample(list(fleet.processes), len(fleet.processes))
        for name in names:
            fleet.kill(name)
    finally:
        fleet.end()


def files_of(base: Path) -> list[Path]:
    """All files that a node reads when it starts; what the test writes beside them is none."""
    found = [path for path in base.rglob("*") if path.is_file() and path.parent != base]
    return sorted(path for path in found if path.name not in ("told", "lock", "counters"))


def flip(path: Path, dice: Random) -> list[int]:
    """Change one to sixteen bytes of a file; returns where."""
    content = bytearray(path.read_bytes())
    places = [dice.randrange(len(content)) for _ in range(dice.choice((1, 1, 2, 16)))] if content else []
    for place in places:
        content[place] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    return places


def flip_record(path: Path, place: int) -> bool:
    """Change a bit of a node's record; False: there is none yet."""
    if not path.exists():
        return False
    with closing(sqlite3.connect(path)) as db, db:
        row = db.execute("select v from record").fetchone()
        if row is None:
            return False
        content = bytearray(row[0])
        content[place % len(content)] ^= 1 << place % 8
        db.execute("update record set v = ?", (bytes(content),))
    return True


UNSENT = "select seq, body from outbox where asks = 0 and length(body) > 0 and receivers = ?"


def find_unsent(path: Path, receiver: str) -> tuple[int, bytes] | None:
    """Number and body of an answer that nobody has acknowledged, in a node's store; None: there is none now."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        found: tuple[int, bytes] | None = db.execute(UNSENT, (msgpack.packb([receiver]),)).fetchone()
    return found


def flip_unsent(path: Path, receiver: str) -> bool:
    """Change a bit in an answer that a killed node has not sent yet; False: there is none."""
    if (found := find_unsent(path, receiver)) is None:
        return False
    content = bytearray(found[1])
    content[len(content) // 2] ^= 1
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update outbox set body = ? where seq = ?", (bytes(content), found[0]))
    return True


def make_nodes(net: Net) -> list[Live]:
    nodes = [net.aggregator("h", size=SIZE), net.hospital("h", "a", "b"), net.device("a", "h"), net.device("b", "h")]
    return [Live(node) for node in nodes]


def restart(base: Path, broker: LocalBroker) -> str:
    """Start what is below a directory; returns "goes on", "put aside", "rolled back" or "asks a person".

    Raises:
        AssertionError: it stands still, or it has counted wrongly.
    """
    net = Net(base, broker.url, wait_seconds=0.3, largest_chunk=65536)
    lives = make_nodes(net)
    try:
        with ExitStack() as stack:
            for live in lives:
                stack.enter_context(live)
            eventually(lambda: len({number for number, _ in net.told}) >= 3 or any(n.error for n in lives), SECONDS)
    except UsageError as e:
        assert "damaged" in str(e), e
        return "asks a person"
    finally:
        check(net.told)
    said = [said for key, said in SAID.items() if any(live.node.counters[key] for live in lives)]
    return said[0] if said else "goes on"


SAID = {"store_damaged": "put aside", "store_rolled_back": "rolled back"}


def check(told: list[tuple[int, roles.Done]]) -> None:
    """Each round is whole, and its sum is right to the last float."""
    for number, done in told:
        assert number == done.round, (number, done.round)
        assert done.devices == 2 and done.total == SIZE * float(done.round), done


def trial(base: Path, killed: Path, broker: LocalBroker, seed: int) -> tuple[str, str]:
    """Change bytes in a copy of what was left behind, and restart it; returns which file, and what came of it."""
    dice = Random(seed)
    shutil.copytree(killed, base)
    path = dice.choice(files_of(base))
    places = flip(path, dice)
    try:
        return str(path.relative_to(base)), restart(base, broker)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}, {path.relative_to(base)} changed at {places}: {e}") from e


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.disable()
    table, failed = Counter[tuple[str, str]](), list[str]()
    with Mosquitto() as broker, tempfile.TemporaryDirectory() as directory:
        killed_run(Path(directory) / "killed", broker, Random(args.seed))
        for number in range(args.trials):
            base = Path(directory) / str(number)
            try:
                table[trial(base, Path(directory) / "killed", broker, args.seed * 10**6 + number)] += 1
            except AssertionError as e:
                failed.append(str(e))
                print(e, file=sys.stderr, flush=True)
            shutil.rmtree(base)
    for (file, what), count in sorted(table.items()):
        print(f"{file:40} {what:20} {count:6}")
    print(f"{args.trials - len(failed)} of {args.trials} trials went on rightly or said so")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
