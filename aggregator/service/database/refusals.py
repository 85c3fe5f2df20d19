"""What was refused, in the audit log: who tried what, and why it was not done (answers 403 and 409, and at the door).

Whoever is refused can ask again and again, and the log keeps every entry for good. So each name has room for some
entries, which comes back with time, and so have all names together; what found no room is counted in the next entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from aggregator.service.database import audit
from aggregator.service.database.database import Database

ACTION = "refused"
CODES = (403, 409)
NOBODY = "nobody"
"""Stands for who has not signed in."""
EACH, ALL = 10, 100
"""Entries of one name, and of all, that find room at once."""
PER_MINUTE_EACH, PER_MINUTE_ALL = 1.0, 10.0
TEXT = 200  # characters of an address or a reason that are kept
MOST_NAMES = 1000


@dataclass
class Room:
    """Room for entries: `left` of them at the time `at`, in seconds."""

    left: float
    at: float

    def refill(self, now: float, per_minute: float, most: int) -> float:
        """Let room come back that was taken long enough ago; returns how much there is."""
        self.left, self.at = min(float(most), self.left + (now - self.at) * per_minute / 60), now
        return self.left


class RefusalLog:
    """The refusals of one service. `clock`: seconds that only grow.

    Attributes:
        missed: refusals since the latest entry that have none.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic):
        self.database, self.clock = database, clock
        self.rooms: dict[str, Room] = {}
        self.all, self.missed = Room(ALL, clock()), 0

    def note(self, who: str, what: str, code: int, why: str) -> None:
        """Note that somebody was refused. `what`: such as "POST /runs/a/stop"."""
        if not self.take_room(who):
            self.missed += 1
            return
        more = {"missed": self.missed} if self.missed else {}
        with self.database.transaction() as t:
            audit.note(t, who, ACTION, clean(what), code=code, why=clean(why), **more)
        self.missed = 0

    def take_room(self, who: str) -> bool:
        """Take room for one entry; False: there is none."""
        now = self.clock()
        if len(self.rooms) >= MOST_NAMES:
            self.rooms.clear()  # names are those of people and tokens, so this is for a service of many years
        own = self.rooms.setdefault(who, Room(EACH, now))
        if min(own.refill(now, PER_MINUTE_EACH, EACH), self.all.refill(now, PER_MINUTE_ALL, ALL)) < 1:
            return False
        own.left, self.all.left = own.left - 1, self.all.left - 1
        return True


def clean(text: str) -> str:
    """A text as every database takes it, and no longer than it helps."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()[:TEXT]
