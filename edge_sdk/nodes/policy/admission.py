"""The gate of a node: judges each run by the [allow] table, before it begins and while it goes on.

A run that may not begin leaves the node idle, so nobody below hears of it; the parent hears why, and so does the
console. A run that may no longer go on is left with everything saved, and taken up again when that has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters, RestOfCounters
from edge_sdk.nodes.policy.allow import Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.approvals import DECIDED, SPENT, digest_of, note_asked, read_table, write_table

if TYPE_CHECKING:
    from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger

SAVE_EVERY = 2.0  # seconds between two savings of what a run has cost


class Gate:
    """The gate of one node. Its methods are for the node's own loop.

    Args:
        allow: what its owner allows.
        directory: of the node.
        over: set when the present run is over, which then costs nothing and asks nothing any more.
        clock: seconds since 1970.

    Attributes:
        counters: of the node; given once there are some.
        digest: of the run whose bytes are counted.
        before: bytes of the node's counters at the last look.
        spent: digest -> bytes so far.
    """

    def __init__(self, allow: Allow, directory: Path, over: threading.Event, clock: Callable[[], float] = time.time):
        self.allow, self.directory, self.over, self.clock = allow, directory, over, clock
        self.counters: Counters | RestOfCounters | None = None
        self.digest, self.before, self.save_at = "", 0, 0.0
        self.spent: dict[str, int] | None = None

    @cached_property
    def ledger(self) -> EpsilonLedger:
        """The ledger of what runs have told about the node."""
        from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger  # with the first run

        return EpsilonLedger(self.directory)

    @property
    def owner(self) -> Gate | None:
        """This gate, if it has anything to ask: a node without rules need not look at them again and again."""
        return None if self.allow.takes_all else self

    def judge_offer(self, run: Run) -> str:
        """Judge a run that is offered, and note it for a person: why it may not begin; "": it may."""
        self.digest, why = "", self.judge(run)
        note_asked(self.directory, run, why)
        return why

    def look(self, run: Run) -> str:
        """Judge the run that goes on, or that was not let in: why it may not go on now; "": it may."""
        self.count(run)
        return "" if self.over.is_set() else self.judge(run)

    def judge(self, run: Run) -> str:
        return next(find_objections(self.allow, run, self.read_facts(run)), "")

    def read_facts(self, run: Run) -> RunFacts:
        local, digest = time.localtime(self.clock()), digest_of(run)
        decided = read_table(self.directory / DECIDED).get(digest)
        minute, told = 60 * local.tm_hour + local.tm_min, self.ledger.spent_by_others(run)
        return RunFacts(minute, self.load_spent().get(digest, 0), told, decided)

    # -- bytes

    def load_spent(self) -> dict[str, int]:
        if self.spent is None:
            self.spent = {str(k): int(v) for k, v in read_table(self.directory / SPENT).items()}
        return self.spent

    def count(self, run: Run) -> None:
        """Add what has crossed this node's lines since the last look to what the run has cost."""
        if not self.allow.max_bytes or self.counters is None:
            return
        totals, digest = self.counters.totals(), digest_of(run)
        now = totals.get("bytes_in", 0) + totals.get("bytes_out", 0)
        if digest == self.digest:
            spent = self.load_spent()
            spent[digest] = spent.get(digest, 0) + max(0, now - self.before)
            if self.clock() >= self.save_at or spent[digest] >= self.allow.max_bytes:
                write_table(self.directory / SPENT, spent)
                self.save_at = self.clock() + SAVE_EVERY
        self.digest, self.before = digest, now
