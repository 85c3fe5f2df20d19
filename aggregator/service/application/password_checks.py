"""The door of the console: passwords are checked a few at a time, beside everything else that is answered.

To check a password takes long and 64 MB, on purpose (argon2id), and anybody may send one. Checked where pages are made,
guesses would keep everybody else from being answered; checked all at once, they would take the machine's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

AT_ONCE, WAITING = 2, 20
"""Passwords that are checked at a time, and that may wait for it."""


class Door:
    """Checks of passwords of one console.

    Attributes:
        inside: checks that go on or wait.
    """

    def __init__(self) -> None:
        self.free, self.inside = asyncio.Semaphore(AT_ONCE), 0

    @property
    def is_full(self) -> bool:
        return self.inside >= AT_ONCE + WAITING

    async def check(self, sign_in: Callable[..., tuple[str, str]], *given: str) -> tuple[str, str]:
        """The keys that `sign_in` gives for a name, a password and the rest. Raises what that raises."""
        self.inside += 1
        try:
            async with self.free:
                return await run_in_threadpool(sign_in, *given)
        finally:
            self.inside -= 1
