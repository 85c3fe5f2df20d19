"""Client of the server that forks nodes: a process that was forked is used like one of `subprocess`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class NodeProcess(Protocol):
    """Process that is watched: what `subprocess.Popen` and `ForkedProcess` have in common."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ForkServer:
    """Server in a process of its own, from its making until `close`; used from one thread at a time.

    Args:
        environment: of the server, and so of all that it forks.
    """

    def __init__(self, environment: Mapping[str, str]):
        self.asked, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "edge_sdk.replay.nodes.fork_server", str(theirs.fileno())]
            self.process = subprocess.Popen(command, env=dict(environment), pass_fds=[theirs.fileno()])
        self.codes: dict[int, int] = {}
        self.has_started = False
        self.started: list[int] = []
        self.buffer = b""

    def start(self, arguments: Sequence[str], log: Path) -> ForkedProcess:
        """A process that runs `auscult` with these arguments, and writes to this file.

        Raises:
            ChildProcessError: the server has ended.
        """
        self.has_started = True
        self.ask({"start": list(arguments), "log": str(log)})
        while not self.started:
            if self.process.returncode is not None:
                raise ChildProcessError(f"the process that forks nodes has ended, with code {self.process.returncode}")
            self.hear(None)
        return ForkedProcess(self, self.started.pop(0))

    def ask(self, what: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the server is gone: `hear` finds out
            self.asked.sendall(json.dumps(what).encode() + b"\n")

    def hear(self, timeout: float | None) -> None:
        """Takes what the server says, and waits for it for so many seconds at most."""
        if self.process.returncode is not None:
            return
        said = select.poll()  # not select.select, which knows no file numbers above 1023
        said.register(self.asked, select.POLLIN)
        if not said.poll(None if timeout is None else 1000 * timeout):
            return
        try:
            some = self.asked.recv(1 << 16)
        except ConnectionResetError:
            some = b""
        if not some:
            self.process.wait()
        *lines, self.buffer = (self.buffer + some).split(b"\n")
        for line in map(json.loads, lines):
            if "started" in line:
                self.started.append(line["started"])
            else:
                self.codes[line["ended"]] = line["code"]

    def code(self, pid: int) -> int | None:
        """Exit code of a process; of one that lost its server, which ends it as well, that of the server."""
        lost = self.process.returncode
        return self.codes.get(pid, None if lost is None else lost or -signal.SIGTERM)

    def close(self) -> None:
        """Ends the server, and with it all that it has started; one that has nothing to end, in whatever it does."""
        self.asked.close()
        if not self.has_started:
            self.process.kill()
        self.process.wait()


class ForkedProcess:
    """Process of a `ForkServer`, with the part of `subprocess.Popen` that a replay needs."""

    def __init__(self, server: ForkServer, pid: int):
        self.server, self.pid = server, pid

    @property
    def returncode(self) -> int | None:
        return self.server.code(self.pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.server.hear(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.returncode) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.server.hear(left)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            self.server.ask({"signal": int(sig), "pid": self.pid})

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork() -> bool:
    """Is a process that has loaded libraries safely copied here? Not where they start threads as they are loaded."""
    return sys.platform == "linux" and hasattr(os, "fork")
