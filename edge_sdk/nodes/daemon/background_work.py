"""Side work of a service: what is nice to have (a ledger, a note), and must never end the run or disturb it."""

from __future__ import annotations

import logging
from collections.abc import Callable


class SideWork:
    """Does a piece of work again and again; one that fails is said once, and tried the next time.

    Args:
        what: name of the work, for the log.
        work: does it. It may raise anything, such as OSError where the disk is full or too many files are open.
    """

    def __init__(self, what: str, work: Callable[[], None], log: logging.Logger):
        self.what, self.work, self.log = what, work, log
        self.failing = ""

    def __call__(self) -> None:
        try:
            self.work()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if why != self.failing:
                self.log.error("%s cannot be written (%s); the run goes on, and it is tried again", self.what, why)
            self.failing = why
            return
        if self.failing:
            self.log.info("%s is written again", self.what)
        self.failing = ""
