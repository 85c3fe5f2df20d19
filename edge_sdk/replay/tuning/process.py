"""The process that plays a method's trials, seen from the search: started, asked, ended, started again if it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning.worker import LOOK, NUMPY, ONE_THREAD, as_job

Say = Callable[[str], None]


class TrialProcess:
    """A worker process and the temporary directory of its data, as a context manager.

    Args:
        stopping: once it is set, a trial that is under way is given up.
        numpy: its aggregator needs no torch: of methods that take nothing of it but a thresholding.

    Raises:
        UsageError: it refuses the job.
    """

    def __init__(self, job: Replay, say: Say, stopping: threading.Event, numpy: bool = False) -> None:
        self.numpy = numpy
        self.directory = tempfile.TemporaryDirectory(prefix="auscult-tune-")
        self.job, self.say, self.stopping = replace(job, out=Path(self.directory.name) / "data"), say, stopping
        self.process: subprocess.Popen[str] | None = None
        self.watch: threading.Thread | None = None

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.directory.cleanup()

    def end(self) -> int | None:
        """Ends the process, if there is one; returns its exit code."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.kill()
        process.communicate()
        if self.watch is not None:
            self.watch.join()
        return process.returncode

    def start(self) -> subprocess.Popen[str]:
        """The process, which has read the data."""
        if self.process is not None:
            return self.process
        command = [sys.executable, "-m", "edge_sdk.replay.tuning.worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for us, who then end it
        )
        self.watch = threading.Thread(target=self.kill_when_stopping, args=(self.process,), daemon=True)
        self.watch.start()
        self.send({**as_job(self.job), NUMPY: self.numpy})
        found = self.hear()
        if found is not None and "refused" in found:
            raise UsageError(f"{self.job.method}: {found['refused']}")
        if found is None and not self.stopping.is_set():
            raise AuscultError(f"{self.job.method}: the process of its trials ended with code {self.end()}")
        return self.process

    def play(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """One trial. A process that dies in it is a failed trial, and the next one has a new process.

        Returns:
            What the worker replies; None: the search is to stop.
        """
        if self.stopping.is_set():
            return None
        self.start()
        if self.stopping.is_set():
            return None
        self.send(settings)
        found = self.hear()
        if found is not None or self.stopping.is_set():
            return found
        return {"error": f"its process ended with code {self.end()}"}

    def look(self) -> dict[str, Any] | None:
        """The neighbours of the fleet, see alone.py; None: the process has ended."""
        self.start()
        self.send({LOOK: True})
        return self.hear()

    def send(self, line: Mapping[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, which `hear` will find

    def hear(self) -> dict[str, Any] | None:
        """The next line that is no sentence for people; None: there is none, or the search is to stop."""
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if "say" not in found:
                return found
            self.say(found["say"])
        return None

    def kill_when_stopping(self, process: subprocess.Popen[str]) -> None:
        """Kills the process once the search is to stop, so that nobody waits for the end of a trial."""
        while process.poll() is None:
            if self.stopping.wait(0.2):
                process.kill()
