"""Events, which a role tells the application: saved with the state that they are about, handed over after the commit.

Each is handed over at least once: it is deleted after the application has had it, and a kill between the two repeats
it, with the same number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from logging import Logger
from math import inf
from typing import Any

from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import MessageCodec
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.store import Store


class Events:
    """Events that the application has not had. Functions that change the disk are called within a transaction.

    Attributes:
        told: number and message of each.
        done: numbers of events that it has had, to be deleted by `delete_told`.
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
        self.told = [(id, records.decode(body)) for id, body in store.load_told()]
        self.done: list[int] = []

    def add_events(self, told: Iterable[tuple[Any, bytes]]) -> None:
        """Save events, each of which comes with its encoding."""
        self.told += [(self.store.save_told(encoded), message) for message, encoded in told]

    def tell_application(self) -> float:
        """Hand over what the application has not had. An exception that it raises is logged, and changes nothing here.

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

    def delete_told(self) -> None:
        """Delete what the application has had."""
        if self.done:
            self.store.drop_told(self.done)
        self.done = []
