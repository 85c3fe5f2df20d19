"""What the application is told: saved with what it is about, handed over after the commit, at least once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from logging import Logger
from math import inf
from typing import Any

from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Coder
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.store import Store


class Telling:
    """Messages for the application. What changes the disk is called within a transaction of the caller's.

    Attributes:
        told: number and message of what it has not had.
        done: numbers of what it has had, to be deleted by `tidy`.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        records: Coder,
        tell: Callable[[int, Any], None],
        counters: Counters,
        log: Logger,
    ):
        self.name, self.store, self.tell, self.counters, self.log = name, store, tell, counters, log
        self.told = [(id, records.decode(body)) for id, body in store.told()]
        self.done: list[int] = []

    def add(self, told: Iterable[tuple[Any, bytes]]) -> None:
        """Messages, each with its encoding."""
        self.told += [(self.store.save_told(encoded), message) for message, encoded in told]

    def tell_all(self) -> float:
        """Hand over what the application has not had. An exception there is its own affair, and is logged.

        Returns:
            When the first was handed over, by time.monotonic(); inf where there was none.
        """
        told, self.told, first = self.told, [], inf
        for id, message in told:
            try:
                self.tell(id, message)
                reach("told")
            except Exception:
                self.counters.count("told_failed")
                self.log.exception("%s: the application failed on %s", self.name, type(message).__name__)
            self.done.append(id)
            first = min(first, time.monotonic())
        return first

    def tidy(self) -> None:
        """Delete what it has had."""
        if self.done:
            self.store.drop_told(self.done)
        self.done = []
