"""Settings of a node's session that are not the run's but its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass
class Habits:
    """Settings of a session that the run does not decide.

    Attributes:
        worker: calls are made on a thread of their own.
        wait_for: children that must be here before the role starts; another number, where others may take part.
        waits_for_able: who says that it cannot take part is not waited for, where it may take part later
            (`Assembly.joins_later`).
        wait_seconds: for which a restarted node waits for them, before it goes on without. In a run in which nobody
            waits for ever (`Assembly.patient`): for which no further one has come.
        rto: seconds until the first repetition of a message.
        outbox_bytes: bytes of bodies in the outbox above which the oldest notices are given up. Questions and answers
            never are: of these there is at most one for each peer.
        addresses_each: what is for all children goes to each of them, and not to the topic for all.
    """

    worker: bool = True
    wait_for: int = 0
    waits_for_able: bool = False
    wait_seconds: float = 10.0
    rto: float = 2.0
    outbox_bytes: float = inf
    addresses_each: bool = False
