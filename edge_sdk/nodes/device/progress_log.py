"""Lines that say what a device is doing between the beginning and the end of its run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from logging import Logger
from typing import Any

from edge_sdk.contract.method import UP, Role, Step

EVERY = 10.0  # seconds; short rounds share a line


class ProgressLog:
    """Writes a line when a question of the hospital has been worked on, but not more than one in EVERY seconds.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, name: str, run: str, log: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.run, self.log, self.clock = name, run, log, clock
        self.worked, self.due = 0, 0.0

    def watch(self, role: Role) -> Role:
        """The role, whose calls are logged; what they do and return is the same."""

        def receive(env: Any, state: Any, sender: str, message: Any) -> Step:
            began = self.clock()
            step: Step = role.receive(env, state, sender, message)
            if sender == UP:
                self.note(message, self.clock() - began)
            return step

        return replace(role, receive=receive)

    def note(self, message: Any, seconds: float) -> None:
        """Say that a question was worked on for so long, if a line is due."""
        self.worked += 1
        now = self.clock()
        if now < self.due:
            return
        self.due = now + EVERY
        round = getattr(message, "round", None)
        where = f"run {self.run}" if round is None else f"run {self.run}, round {round}"
        said = f"{type(message).__name__} worked on in {seconds:.1f} s, {self.worked} questions so far"
        self.log.info("%s: %s: %s", self.name, where, said)
