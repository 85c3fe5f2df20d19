"""Runs in processes of their own: as many at a time as there are workers, each `auscult simulate` as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.research.runs.progress import Bar, rounds_of, said_last
from edge_sdk.simulation.runs.commands import ONE_THREAD

MISUSED = 2
"""Exit code of a command that was given something that cannot be used."""
PAUSE = 0.1
"""Seconds between two looks at the processes."""
NAME = "auscult: "
WORKER = "edge_sdk.research.runs.worker"
"""The module that a run's process begins with."""


@dataclass
class Running:
    """One run: its command line, its directory, and its process once it has one."""

    arguments: Sequence[str]
    out: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.out.with_suffix(".log")

    @property
    def is_over(self) -> bool:
        return self.process is not None and self.process.poll() is not None


def play_all(jobs: Sequence[tuple[Sequence[str], Path]], workers: int, method: bytes, bar: Bar) -> None:
    """Plays command lines, each into a directory. An error or Ctrl-C ends all of them.

    Args:
        method: that the user has written, for standard input; empty: it has a name.

    Raises:
        UsageError: something that was asked for cannot be used. AuscultError: a run has failed.
    """
    runs = [Running([*arguments, f"--out={out}"], out) for arguments, out in jobs]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        while not all(run.is_over for run in runs):
            busy = [run for run in runs if run.process is not None and not run.is_over]
            for run in [run for run in runs if run.process is None][: max(0, workers - len(busy))]:
                begin(run, environment, method)
            time.sleep(PAUSE)
            doing = [said_last(run.log) for run in runs if run.process is not None and not run.is_over]
            bar.show([rounds_of(run.out) for run in runs], doing[-1] if doing else "")
            for run in runs:
                check(run)
    finally:
        end(runs)
        bar.close()


def begin(run: Running, environment: dict[str, str], method: bytes) -> None:
    """Starts the process of a run, and hands it its method."""
    command = [sys.executable, "-m", WORKER, *run.arguments]
    with run.log.open("wb") as log:
        run.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    if run.process.stdin is not None:
        with suppress(BrokenPipeError), run.process.stdin as pipe:  # one that has ended says why in its log
            pipe.write(method)


def check(run: Running) -> None:
    """Raises UsageError or AuscultError, with what it said last, if a run has failed."""
    code = run.process.poll() if run.process is not None else None
    if not code:
        return
    lines = run.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
    at = max((i for i, line in enumerate(lines) if line.startswith(NAME)), default=len(lines) - 1)
    said = "\n".join(lines[at:]).removeprefix(NAME)
    if code == MISUSED:
        raise UsageError(said)
    raise AuscultError("\n".join(["a run has failed:", *lines[-20:]]))


def end(runs: Sequence[Running]) -> None:
    """Stops what still runs, and removes its log."""
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.terminate()
    for run in runs:
        if run.process is not None:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(10)
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()
        run.log.unlink(missing_ok=True)
