"""Sleeps for a node's loop: until a connection has something, a time has come, or another thread wakes it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

from edge_sdk.wire.mqtt import Connection


class Waiter:
    """Sleeps between `__enter__` and `__exit__`; `wake` may be called at any time and from any thread."""

    def __init__(self) -> None:
        self.waker: socket.socket | None = None
        self.poll_of = list[tuple[int, int]](), select.poll()

    def __enter__(self) -> Waiter:
        waker, self.wakened = socket.socketpair()
        for end in (waker, self.wakened):
            end.setblocking(False)
        self.waker = waker
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        waker, self.waker = self.waker, None
        for end in (waker, self.wakened):
            if end is not None:
                end.close()

    def wake(self) -> None:
        waker = self.waker
        if waker is not None:
            with suppress(OSError):  # full: it is awake; closed: it has ended
                waker.send(b"\0")

    def wait(self, connections: Iterable[Connection], patience: float, due: float) -> bool:
        """Sleep for at most `patience` seconds, until `due` by time.monotonic(); True: another thread has woken us.

        Sets `ready` of each connection.
        """
        wanted, looked = [(self.wakened.fileno(), select.POLLIN)], list[tuple[Connection, int]]()
        for connection in connections:
            connection.flush()
            looked.append((connection, number := connection.fileno()))
            if number >= 0:
                wanted.append((number, connection.events))
                patience = 0.0 if connection.pending else patience
        ready = dict(self.prepare_poll(wanted).poll(max(0.0, min(patience, due - time.monotonic())) * 1000))
        for connection, number in looked:
            connection.ready = number in ready or connection.pending
        if wanted[0][0] not in ready:
            return False
        with suppress(BlockingIOError):
            while self.wakened.recv(4096):
                pass
        return True

    def prepare_poll(self, wanted: list[tuple[int, int]]) -> select.poll:
        """A poll object for these files and events. Most often they are the same as before, and so is it."""
        if wanted != self.poll_of[0]:
            self.poll_of = wanted, select.poll()
            for number, events in wanted:
                self.poll_of[1].register(number, events)
        return self.poll_of[1]
