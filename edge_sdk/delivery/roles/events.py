"""Events, which a role tells the application: saved with the state that they are about, handed over after the commit.

Each is handed over at least once: it is deleted after the application has had it, and a kill between the two repeats
it, with the same number. What an application does with an event is often to write a file (a model, a line of metrics).
If that fails because the disk is full, the event is handed over again until it succeeds, and later events wait behind
it; any other exception is the application's own affair.

An event that ends the run (its class says `ends_run = True`) is never deleted, and is handed over at every start: an
application that is started again after the end must learn that there is nothing more to wait for.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Iterable
from logging import Logger
from math import inf
from typing import Any

from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import MessageCodec, decode_saved
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.store import Store

RETRY = 1.0  # seconds until an event is handed over again after the disk has failed
DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS}


def is_disk_failure(error: BaseException) -> bool:
    """The disk is full or broken, or the process has too many files open: that may pass."""
    return isinstance(error, OSError) and error.errno in DISK_FAILURES


class Events:
    """Events that the application has not had. Functions that change the disk are called within a transaction.

    Attributes:
        told: number and message of each, in order.
        done: numbers of events that it has had, to be deleted by `delete_told`.
        retry_at: when to hand over again, by time.monotonic(), after the disk has failed; 0: it has not.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        records: MessageCodec,
        tell: Callable[[int, Any], None],
        counters: Counters,
        log: Logger,
    ):
        self.name, self.store, self.tell, self.counters, self.log = name, store, tell, counters, log
        self.told = deque((id, decode_saved(records, body, f"event {id}")) for id, body in store.load_told())
        self.done: list[int] = []
        self.retry_at = 0.0

    def add_events(self, told: Iterable[tuple[Any, bytes]]) -> None:
        """Save events, each of which comes with its encoding."""
        self.told += [(self.store.save_told(encoded), message) for message, encoded in told]

    def tell_application(self) -> float:
        """Hand over what the application has not had.

        Returns:
            When the first was handed over, by time.monotonic(); inf where there was none.
        """
        first = inf
        while self.is_due():
            id, message = self.told[0]
            try:
                self.tell(id, message)
                reach("told")
            except Exception as e:
                self.counters.count("told_failed")
                if is_disk_failure(e):
                    self.wait_for_disk(message, e)
                    break
                self.log.exception("%s: the application failed on %s", self.name, type(message).__name__)
            self.told.popleft()
            if not getattr(message, "ends_run", False):
                self.done.append(id)
            self.retry_at, first = 0.0, min(first, time.monotonic())
        return first

    def wait_for_disk(self, message: Any, why: Exception) -> None:
        """Hand this event over again later. It is said once."""
        if not self.retry_at:
            self.log.error("%s: %s cannot be saved (%s); it is tried again", self.name, type(message).__name__, why)
        self.retry_at = time.monotonic() + RETRY

    def is_due(self) -> bool:
        """An event can be handed over now."""
        return bool(self.told) and time.monotonic() >= self.retry_at

    def until_due(self) -> float:
        """Seconds until an event can be handed over; inf: there is none."""
        return max(0.0, self.retry_at - time.monotonic()) if self.told else inf

    def delete_told(self) -> None:
        """Delete what the application has had."""
        if self.done:
            self.store.drop_told(self.done)
        self.done = []
