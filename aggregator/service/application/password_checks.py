"""The doors of the console: who wants to sign in is checked a few at a time, beside everything else that is answered.

To check a password takes long and 64 MB, on purpose (argon2id), and anybody may send one. Checked where pages are made,
guesses would keep everybody else from being answered; checked all at once, they would take the machine's memory. A
provider may take seconds for its answer, and anybody may have it asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from aggregator.service.administration.wrong_passwords import find_network

AT_ONCE, WAITING = 2, 20
"""Who is checked at a time, and who may wait for it."""
EACH = (AT_ONCE + WAITING) // 2
"""Of these at most from one network, so that no machine alone stands in the door for all others."""


class Door:
    """A way into one console.

    Attributes:
        inside: network -> checks that go on or wait.
    """

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.inside: Counter[str] = Counter()

    def is_full(self, address: str) -> bool:
        """Says whether somebody from there has to come again."""
        return self.inside.total() >= AT_ONCE + WAITING or self.inside[find_network(address)] >= EACH

    async def check(self, address: str, sign_in: Callable[..., tuple[str, str]], *given: str) -> tuple[str, str]:
        """What `sign_in` returns for what somebody at an address has given. Raises what that raises."""
        network = find_network(address)
        self.inside[network] += 1
        try:
            async with self.free:
                return await run_in_threadpool(sign_in, *given)
        finally:
            self.inside[network] -= 1
            if not self.inside[network]:
                del self.inside[network]
