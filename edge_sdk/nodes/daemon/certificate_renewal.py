"""A node that has enrolled renews its certificate by itself before that ends: it looks once a day.

The work is that of the command `auscult enrol NAME --renew`, in a process of its own: it may wait for the network, and
whatever becomes of it, the node goes on with the certificate that it has. The next connection is made with the new one.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

FIRST, EVERY = 60.0, 86400.0  # seconds until the first look, and between two looks
NOTE = "enrolment.json"
"""File that enrolment leaves beside the settings file."""


class Renewal:
    """Renewal of one node's certificate. Call it again and again; it returns at once.

    Args:
        settings: the node's settings file, in the folder in which it has enrolled; else nothing is done.
        name: of the node.
        clock: seconds that only grow.

    Attributes:
        due: when to look again, by the clock.
        process: the command, while it works.
    """

    def __init__(self, settings: Path, name: str, log: logging.Logger, clock: Callable[[], float] = time.monotonic):
        self.folder, self.name, self.log, self.clock = settings.parent, name, log, clock
        self.due = clock() + FIRST
        self.process: subprocess.Popen[str] | None = None

    @property
    def has_enrolled(self) -> bool:
        return (self.folder / NOTE).exists() and (self.folder / f"{self.name}.crt").exists()

    def __call__(self) -> None:
        if self.process is not None:
            return self.look_at(self.process)
        if self.clock() >= self.due:
            self.due = self.clock() + EVERY
            if self.has_enrolled:
                self.begin()

    def begin(self) -> None:
        """Start the command."""
        command = [sys.executable, "-m", "edge_sdk.cli", "enrol", self.name, "--renew", "--folder", str(self.folder)]
        import subprocess  # once a month

        nothing, pipe, same = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
        try:
            self.process = subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=same, text=True)
        except OSError as error:
            self.log.error("%s: its certificate could not be renewed, which is tried daily: %s", self.name, error)

    def look_at(self, process: subprocess.Popen[str]) -> None:
        """Say what has become of the command, if it has ended. One that works for a day waits for what never comes."""
        if process.poll() is None and self.clock() >= self.due:
            process.kill()
            process.wait()
        if process.poll() is None:
            return
        said = " ".join(process.communicate()[0].split())
        self.process = None
        if process.returncode:
            self.log.error("%s: its certificate could not be renewed, which is tried daily: %s", self.name, said)
        else:
            self.log.info("renewal: %s", said)

    def end(self) -> None:
        """End the command, if it still works: the node stops. What it has written by then is whole."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
