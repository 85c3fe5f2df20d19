"""The door of the console: passwords are checked a few at a time, beside everything else that is answered.

To check a password takes long and 64 MB, on purpose (argon2id), and anybody may send one. Checked where pages are made,
guesses would keep everybody else from being answered; checked all at once, they would take the machine's memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from aggregator.service.administration.wrong_passwords import find_network

AT_ONCE, WAITING = 2, 20
"""Passwords that are checked at a time, and that may wait for it."""
EACH = (AT_ONCE + WAITING) // 2
"""Of these at most from one network, so that no machine alone stands in the door for all others."""


class Door:
    """Checks of passwords of one console.

    Attributes:
        inside: network -> checks that go on or wait.
    """

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.inside: Counter[str] = Counter()

    def is_full(self, address: str) -> bool:
        """Says whether somebody from there has to come again."""
        return self.inside.total() >= AT_ONCE + WAITING or self.inside[find_network(address)] >= EACH

    async def check(
        self, sign_in: Callable[..., tuple[str, str]], name: str, password: str, address: str, browser: str
    ) -> tuple[str, str]:
        """The keys that `sign_in` gives for these, as `People.sign_in` has them. Raises what that raises."""
        network = find_network(address)
        self.inside[network] += 1
        try:
            async with self.free:
                return await run_in_threadpool(sign_in, name, password, address, browser)
        finally:
            self.inside[network] -= 1
            if not self.inside[network]:
                del self.inside[network]
