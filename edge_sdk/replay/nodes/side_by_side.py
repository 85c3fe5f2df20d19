"""Several jobs in threads, all at the same time, which Ctrl-C ends where no lock is held."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")
LOOK = 0.2
"""Seconds between two looks at whether somebody wants the jobs to end."""


def play_side_by_side(
    jobs: Mapping[Key, Callable[[], Found]],
    at_once: int,
    stopping: threading.Event,
    look: Callable[[], None] = lambda: None,
) -> dict[Key, Found]:
    """What each job returns, once all are over.

    Whatever ends this, `stopping` is set and the threads are gone: the first job that fails ends the others, and so do
    Ctrl-C and SIGTERM.

    Args:
        jobs: each ends soon after `stopping` is set.
        at_once: threads at most.
        look: called a few times a second; what it raises ends all.
    """
    with DeferredSignals() as signals, ThreadPoolExecutor(at_once) as pool:
        try:
            running = {key: pool.submit(job) for key, job in jobs.items()}
            left = {*running.values()}
            while left:
                done, left = wait(left, LOOK, FIRST_EXCEPTION)
                signals.look()
                look()
                for one in done:
                    one.result()  # raises what it has failed with, before the others fail by being ended
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
    return {key: one.result() for key, one in running.items()}


class DeferredSignals:
    """Ctrl-C and SIGTERM are noted, and handled at the next `look` or at the end of the context.

    Python runs a handler between any two steps of the main thread. One that raises may do so where a lock has just been
    taken and nobody will give it back: here that of a future, for which its thread then waits for ever. A second signal
    is handled at once, in case that the end of the jobs is what takes too long.
    """

    def __init__(self) -> None:
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.noted: list[int] = []

    def __enter__(self) -> DeferredSignals:
        if threading.current_thread() is threading.main_thread():  # no other one runs handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(handler := signal.getsignal(number)):
                    self.before[number] = handler
                    signal.signal(number, self.note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.look()

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            self.before[number](number, frame)
        self.noted.append(number)

    def look(self) -> None:
        """Handles the signal that has come, if one has."""
        if self.noted:
            number = self.noted.pop()
            self.before[number](number, None)
