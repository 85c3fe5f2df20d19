"""Tells systemd that a service is ready, and that its loops go round: a few datagrams, without a library.

Source: sd_notify(3) and systemd.service(5): Type=notify, WatchdogSec=. Without systemd nothing is said.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from edge_sdk.live.loop.runtime import LONGEST_NAP, Runtime

STUCK = 2 * LONGEST_NAP
"""Seconds after which a loop that has not gone round is stuck: it wakes by itself at least every LONGEST_NAP."""


def notify(state: str) -> None:
    """Send a line to systemd, where that has said where to; it costs nothing if nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line, suppress(OSError):
        line.connect("\0" + address[1:] if address[0] == "@" else address)
        line.send(state.encode())


def find_period() -> float | None:
    """Seconds between two signs of life, half of what systemd waits for; None: it waits for none of this process."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdigit() or int(microseconds) == 0 or process != str(os.getpid()):
        return None
    return int(microseconds) / 2e6


class Watchdog:
    """Called about twice a second: says once that the service is ready, and then that all its loops go round."""

    def __init__(self, runtimes: Sequence[Runtime]):
        self.runtimes, self.period = runtimes, find_period()
        self.is_ready, self.due = False, 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if not self.is_ready and all(runtime.holds_directory for runtime in self.runtimes):
            self.is_ready = True
            notify("READY=1")
        if self.period is not None and now >= self.due and not self.is_stuck(now):
            self.due = now + self.period
            notify("WATCHDOG=1")

    def is_stuck(self, now: float) -> bool:
        """A loop has not gone round for too long. One that has not begun yet is not stuck."""
        return any(now - runtime.turned > STUCK for runtime in self.runtimes)
