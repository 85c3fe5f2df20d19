"""Tells systemd that the service is ready, and that its loops go round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from edge_sdk.nodes.daemon.watchdog import find_period, notify

STUCK = 60.0
"""Seconds after which a loop that has not gone round is stuck. The longest that one waits for is half a minute, for the
database's lock."""


class ServiceWatchdog:
    """Called about twice a second.

    Args:
        loops: names each loop, with the time.monotonic() at which it went round last; None: it has not begun.
    """

    def __init__(self, loops: Callable[[], Mapping[str, float | None]]):
        self.loops, self.period = loops, find_period()
        self.is_ready, self.due = False, 0.0

    def __call__(self) -> None:
        now, turned = time.monotonic(), self.loops()
        if not self.is_ready and None not in turned.values():
            self.is_ready = True
            notify("READY=1")
        if self.period is not None and now >= self.due and not self.list_stuck(now):
            self.due = now + self.period
            notify("WATCHDOG=1")

    def list_stuck(self, now: float) -> list[str]:
        """Loops that have not gone round for too long."""
        return [name for name, at in self.loops().items() if at is not None and now - at > STUCK]
