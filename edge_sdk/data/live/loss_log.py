"""Lines in the log about samples that are lost: the first at once, then one a minute with the sum of what came since.

A disk that is full loses a window every second. A line for each, with a traceback, would fill what is left of the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import ERROR, WARNING, Logger

from edge_sdk.errors import AuscultError

EVERY = 60.0  # seconds between two lines about one cause


class LossLog:
    """Counts samples that a device loses, by cause, and says so now and then.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, name: str, log: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.log, self.clock = name, log, clock
        self.untold: dict[str, int] = {}
        self.due: dict[str, float] = {}

    def note(self, count: int, cause: str, error: Exception | None = None) -> None:
        """Count samples that are lost for a cause, a sentence's end such as "are lost: the disk is full".

        Args:
            error: by which they were lost. One that is no fault of a disk is shown with where it was raised.
        """
        if not count:
            return
        self.untold[cause] = self.untold.get(cause, 0) + count
        if (now := self.clock()) >= self.due.get(cause, now):
            self.due[cause] = now + EVERY
            expected = error is None or isinstance(error, AuscultError | OSError)
            self.say(cause, WARNING if error is None else ERROR, None if expected else error)

    def say(self, cause: str, level: int = WARNING, error: Exception | None = None) -> None:
        self.log.log(level, "%s: %d samples %s", self.name, self.untold.pop(cause), cause, exc_info=error)

    def close(self) -> None:
        """Say what nobody has heard of yet."""
        for cause in [*self.untold]:
            self.say(cause)
