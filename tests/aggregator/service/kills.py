"""The kill matrix of the service: it dies at every one of its transactions, before and after the commit.

A process plays what people and the supervisor do in the life of a fleet: each thing is done unless it is done already,
and is told when it is. Killed at one point, it is started again and plays to the end. Then all that was told is there,
no change is without its entry in the audit log, and nothing was done twice.

    python -m tests.aggregator.service.kills [--database URL] [--every 1]

Prints a line for each point: which transaction it was, and what had been told before.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.service.administration.accounts import TOKEN
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.service import FleetService
from aggregator.service.database import audit
from aggregator.service.models import promotion
from aggregator.service.runs.runs import Wanted, add_run, change_run, find_run, list_runs
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from tests.delivery.fleet import eventually

CLASSES = tuple(f"c{i}" for i in range(11))
POINTS = ("service.saved", "service.committed")
ONCE = (
    "people.add",
    "run.queue",
    "run.pause",
    "run.stop",
    "run.resume",
    "run.finished",
    "model.global",
    "model.promote",
)
Step = tuple[str, Callable[[FleetService], bool], Callable[[FleetService], None]]
"""What is done; is it done already; do it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--database", default="", help="URL of an empty database for each kill, with NUMBER in its name"
    )
    parser.add_argument("--every", type=int, default=1, help="only each n-th transaction")
    options = parser.parse_args()
    played = 0
    for number in range(1, 1000, options.every):
        for point in POINTS:
            with tempfile.TemporaryDirectory() as base:
                told = kill_at(Path(base), f"{point}:{number}", options.database.replace("NUMBER", f"{number}"))
            if told is None:
                print(f"{played} kills, nothing lost and nothing twice")
                return
            played += 1
            print(f"{point} {number:<3} after {', '.join(told) or 'nothing'}", flush=True)


def kill_at(base: Path, point: str, database: str = "") -> list[str] | None:
    """Dies there, is started again, and is checked at the end; None: it has no such transaction any more.

    Returns:
        What was told before it died.
    """
    before = play(base, point, database)
    if before.returncode == 0:
        return None
    assert before.returncode == -signal.SIGKILL, before.stderr
    after = play(base, "", database)
    assert after.returncode == 0, after.stderr
    told, again = before.stdout.split(), after.stdout.split()
    assert not {*told} & {*again}, f"done twice: {told}, {again}"
    silent = [name for name, _, _ in STEPS if name not in [*told, *again, *AT_ONCE]]
    assert len(silent) <= 1, f"{silent} were done, and only the last one before the kill may be done and not told"
    return told


def play(base: Path, point: str, database: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AUSCULT_FAIL": point}
    command = [sys.executable, "-c", "from tests.aggregator.service.kills import live; live()", str(base), database]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


# What the process does ------------------------------------------------------------------------------------------------


def live() -> None:
    """The life of a service up to its end, which is checked."""
    NodeProcesses.start = start_stand_in  # type: ignore[method-assign]
    bundle = find_shipped_bundle("wrist.bundle")
    assert bundle is not None
    file = FleetFile(name="cloud", broker="mqtt://127.0.0.1:1", directory=Path(sys.argv[1]) / "service",
                     bundles=(bundle,), classes=CLASSES, hospitals={"north": 2}, database=sys.argv[2])  # fmt: skip
    service = FleetService(file)
    for name, is_done, do in STEPS:
        if not is_done(service):
            do(service)
            print(name, flush=True)
    check(service)
    service.supervisor.processes.stop()


def start_stand_in(processes: NodeProcesses, name: str, arguments: list[Any]) -> None:
    from tests.aggregator.service.runs.test_supervisor import AGGREGATOR

    processes.running[name] = subprocess.Popen([sys.executable, "-c", AGGREGATOR, str(arguments[-1])])
    processes.logs.mkdir(parents=True, exist_ok=True)


def look_until(service: FleetService, what: Callable[[], bool]) -> None:
    def look() -> bool:
        service.supervisor.look()
        return what()

    eventually(look, 60)


def rounds(service: FleetService, id: str) -> int:
    lines = service.supervisor.lines_of(id)
    lines.read_on()
    return lines.round


def has_entry(action: str, subject: str) -> Callable[[FleetService], bool]:
    return lambda service: (action, subject) in list_entries(service)


def list_entries(service: FleetService) -> Iterator[tuple[str, str]]:
    for entry in audit.list_latest(service.database, 10_000):
        yield entry["action"], entry["subject"]


def queue(id: str) -> Step:
    def add(service: FleetService) -> None:
        add_run(service.database, Wanted(), CLASSES, "ada", id)

    return f"queue-{id}", lambda service: id in [row["id"] for row in list_runs(service.database)], add


def change(id: str, action: str) -> Step:
    def ask(service: FleetService) -> None:
        change_run(service.database, id, action, "ada")

    return f"{action}-{id}", has_entry(f"run.{action}", id), ask


def come_to(id: str, state: str) -> Step:
    """The supervisor brings a run to a state; once it has been there, that is in the log."""

    def look(service: FleetService) -> None:
        look_until(service, lambda: find_run(service.database, id)["state"] == state)

    return f"{id}-{state}", has_entry(f"run.{'start' if state == 'running' else state}", id), look


def end_rounds(service: FleetService) -> None:
    """The run's process is told to write its model and end."""
    look_until(service, lambda: rounds(service, "a") >= 1)
    place = service.file.directory / "runs" / "a" / "finish"
    with place.with_suffix(".part").open("wb") as file:
        np.savez(file, weight=np.zeros(3))
    place.with_suffix(".part").rename(place)


def promote(service: FleetService) -> None:
    [model] = service.registry.list_all("global")
    promotion.promote(service.registry, model["sha256"], "ada")


def make_token(service: FleetService) -> None:
    service.people.make_key(TOKEN, "robot", "viewer", 3600.0, "ada")


STEPS: tuple[Step, ...] = (
    ("name", lambda s: bool(s.people.list_all()), lambda s: s.people.add("ada", "admin", "correct horse", "ada")),
    ("token", has_entry("token.make", "robot"), make_token),
    queue("a"),
    queue("b"),
    come_to("a", "running"),
    change("a", "pause"),
    come_to("a", "paused"),
    come_to("b", "running"),
    change("b", "stop"),
    come_to("b", "stopped"),
    change("a", "resume"),
    ("end-a", lambda s: (s.file.directory / "runs" / "a" / "finish").exists(), end_rounds),
    come_to("a", "finished"),
    ("promote", lambda s: s.registry.promoted() is not None, promote),
)
AT_ONCE = ("b-running",)
"""Steps that are done with the one before: the look at which the supervisor finds a paused begins b."""


def check(service: FleetService) -> None:
    """All is there, once, and the log tells of it."""
    assert audit.find_break(service.database)[0] is None
    assert {row["id"]: row["state"] for row in list_runs(service.database)} == {"a": "finished", "b": "stopped"}
    counts = Counter(list_entries(service))
    assert not [entry for entry, count in counts.items() if entry[0] in ONCE and count > 1], counts
    assert service.people.sign_in("ada", "correct horse")
    promoted = service.registry.promoted()
    assert promoted is not None and promoted["run"] == "a" and service.registry.path_of(promoted["sha256"]).exists()


if __name__ == "__main__":
    main()
