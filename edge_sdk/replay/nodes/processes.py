"""The processes of nodes: real services with real settings files, started, watched and stopped together.

A replay starts all its nodes with them, `auscult serve` the aggregator of each run that goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.atomic import PRIVATE
from edge_sdk.errors import AuscultError
from edge_sdk.nodes.daemon.serve import WITH_PARENT
from edge_sdk.replay.nodes.forking import ForkServer, NodeProcess

FORKED = ("device", "hospital")
"""Commands of nodes whose modules the server of processes has loaded; the aggregator, which is one, loads torch."""


def environment() -> dict[str, str]:
    """Variables of a node: one thread, since many share this machine and sums must not depend on how a library splits
    them; what it says is written at once; it ends with this process."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONUNBUFFERED": "1", WITH_PARENT: str(os.getpid())}


class ProcessError(AuscultError):
    """A process ended before its time."""


@dataclass
class NodeProcesses:
    """Running nodes, as a context manager: whatever is left at its end is stopped.

    Attributes:
        logs: folder; what a process says goes to NAME.log in it.
        stopping: once it is set, `check` raises; whoever runs several replays side by side ends them with it.
        running: name -> process.
        also: called by `check`, too.
        forks: devices and hospitals are forked from one process that has loaded their modules.
    """

    logs: Path
    stopping: threading.Event = field(default_factory=threading.Event)
    running: dict[str, NodeProcess] = field(default_factory=dict)
    also: Callable[[], None] = lambda: None
    forks: bool = False
    server: ForkServer | None = field(default=None, init=False)

    def prepare(self) -> None:
        """Has the server of processes load its modules, while who starts nodes has something else to do."""
        if self.forks and self.server is None:
            self.server = ForkServer(environment())

    def start(self, name: str, arguments: Sequence[str | Path]) -> None:
        """Starts `auscult` with these arguments."""
        self.logs.parent.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        path = self.logs / f"{name}.log"
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "ab") as log:
            if self.forks and arguments[0] in FORKED:
                self.prepare()
                assert self.server is not None
                self.running[name] = self.server.start([str(each) for each in arguments], path)
                return
            command = [sys.executable, "-m", "edge_sdk.cli", *map(str, arguments)]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment())

    def check(self) -> None:
        """Raises ProcessError if a process has failed, with the end of its log, or if the replay is to stop."""
        self.also()
        if self.stopping.is_set():
            raise ProcessError("stopped before its end")
        for name, process in self.running.items():
            if process.poll() not in (None, 0):
                said = (self.logs / f"{name}.log").read_text(errors="replace").strip().splitlines()[-6:]
                raise ProcessError(f"{name} ended with code {process.returncode}:\n  " + "\n  ".join(said))

    def warnings(self, name: str) -> list[str]:
        """Warnings in the log of a process so far, without time and level."""
        said = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        return [line.split(" WARNING ", 1)[1] for line in said if " WARNING " in line]

    def has_said(self, name: str, words: str) -> bool:
        """Is there a line with these words in the log of a process?"""
        return words in (self.logs / f"{name}.log").read_text(errors="replace")

    def unfinished(self) -> list[str]:
        """Names of the processes that still run."""
        return [name for name, process in self.running.items() if process.poll() is None]

    def stop(self) -> None:
        """Asks all processes to end, and kills those that have not after 5 seconds."""
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 5
        for process in self.running.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.server is not None:
            self.server.close()
            self.server = None

    def __enter__(self) -> NodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
