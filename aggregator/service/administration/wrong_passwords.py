"""Counts of wrong passwords: who guesses has to wait, and whom a stranger pretends to be does not.

Counted is by name and address, so that a stranger's guesses make the stranger wait. Guesses from very many addresses
make the name wait as a whole. Somebody who has signed in before still gets in then: that browser was given a proof, a
random key that only says "has signed in with this name", and its tries are counted by themselves.
"""

from __future__ import annotations

import ipaddress
import threading
import time

TRIES, WITHIN = 5, 300.0
"""So many wrong passwords for a name from one address within so many seconds; then it has to wait from there."""
TRIES_OF_ALL = 50
"""The same for a name from all addresses together, those of proven browsers left out."""
MOST_COUNTED = 10_000  # names, addresses and pairs of them that are counted at a time

Tried = tuple[str, str]  # name, and an address or a proof; "": all addresses


class WrongPasswords:
    """The latest wrong passwords of one service. From any thread.

    Attributes:
        tries: what was tried -> when, by time.monotonic(): a clock that is set must lock nobody out.
    """

    def __init__(self) -> None:
        self.tries: dict[Tried, list[float]] = {}
        self.lock = threading.Lock()

    def must_wait(self, name: str, address: str, proof: str = "") -> bool:
        """True if no password of a name is looked at now from there. `proof`: of a browser that was let in before."""
        with self.lock:
            if proof:
                return self.count((name, proof)) >= TRIES
            return self.count((name, find_network(address))) >= TRIES or self.count((name, "")) >= TRIES_OF_ALL

    def note(self, name: str, address: str, proof: str = "") -> None:
        """Count a wrong password."""
        with self.lock:
            for tried in [(name, proof)] if proof else [(name, find_network(address)), (name, "")]:
                recent = [*self.recent(tried), time.monotonic()]
                self.tries.pop(tried, None)
                self.tries[tried] = recent[-TRIES_OF_ALL:]
            while len(self.tries) > MOST_COUNTED:
                del self.tries[next(iter(self.tries))]

    def forget(self, name: str, address: str, proof: str = "") -> None:
        """The right password has come from there. What others have tried stays counted."""
        with self.lock:
            self.tries.pop((name, proof or find_network(address)), None)

    def recent(self, tried: Tried) -> list[float]:
        return [at for at in self.tries.get(tried, ()) if at > time.monotonic() - WITHIN]

    def count(self, tried: Tried) -> int:
        return len(self.recent(tried))


def find_network(address: str) -> str:
    """An address as it is counted: of IPv6 the network of 64 bits, of which one machine has all addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "?"
    return str(ipaddress.ip_network(f"{found}/64", strict=False)) if found.version == 6 else str(found)
