"""Running sums of what each device said last, while nobody keeps what a single one said.

FedBCD and AugFL count a device that is silent with its latest contribution c_i. Whoever holds every c_i can replace one
in the sum S of all; that is a hospital which reads single uploads. Where nobody may, the devices keep c_i themselves:

    a device sends c_i - c_i^-, where c_i^- is its contribution that was counted last (the first time all of c_i)
    a hospital adds up what comes in a round, and need not look at it
    the aggregator adds the sums of a round to S

S stays the sum of all c_i only if a device takes c_i for its counted one exactly when its upload was counted, which
shared/membership/mirror.py tells it. A lost disk begins a new era: S is nothing again, and every device says all of c_i
the next time it is asked. What the aggregator opens, with secret sums too, is a sum of changes over the devices of one
round: S - S^- again. Two of these differ by what other devices have said in another round, never by one device alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation import exact, gather
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.gather import FULL, Nobody, Tally
from edge_sdk.methods.shared.aggregation.guard import Measure, norm
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.aggregation.uploads import checked
from edge_sdk.methods.shared.membership import mirror
from edge_sdk.methods.shared.membership.mirror import Account, CountedQuestion

ROUNDING = 1e-6  # of weights, which are added up as floats


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Increment:
    """Up: by how much contributions have changed, added up over some devices.

    Attributes:
        total: float (k,), the sum of changes.
        weight: of the devices that are counted for the first time in this era, 0 if there is none.
        count: how many devices.
        scores: sums of anything to be reported.
    """

    total: Values
    weight: float
    count: int = 1
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if not (np.abs(self.total) <= LARGEST).all():
            raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")
        if not 0 <= self.weight <= LARGEST or self.count < 1:
            raise ValueError(f"{self.count} devices with weight {self.weight}: above 0, and 0 or more")
        check_scores(self.scores, self.count)

    def onto(
        self, high: exact.Integers | None, low: exact.Integers | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The integers (k,) of a tally with this vector added, as of `Sum`."""
        return exact.add_split(self.total, high, low)

    def measure(self) -> Measure:
        """Length per device; first contributions, which are as long as models, are compared among themselves."""
        return Measure(norm(self.total) / self.count, 1.0, longer=30.0, kind="first" if self.weight else "moved")


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stake:
    """What a device counts with.

    Attributes:
        counted: its contribution that was counted last, if its last upload was not; empty: none was in this era.
        tried: the one of its last upload.
        account: the round of that, and what became of it.
    """

    counted: Values
    tried: Values
    account: Account = field(default_factory=Account)


def no_stake(env: NodeEnv) -> Stake:
    nothing = env.theta0[:0].copy()
    return Stake(nothing, nothing)


def settle_stake(s: Stake, me: str, question: CountedQuestion) -> Stake | None:
    """The stake now that the device was told what was counted; None: it remembers something else than it is told."""
    account = mirror.recalled(s.account, me, question)
    if account is None:
        return None
    if account.era != s.account.era:
        return Stake(s.counted[:0], s.counted[:0], account)
    counted = s.tried if account.counted == s.account.round else s.counted
    return Stake(counted, counted, account)


def raise_stake(s: Stake, round: int, contribution: Vector) -> tuple[Stake, Vector, bool]:
    """The stake with an upload on its way, the change that travels, and whether it is all of the contribution."""
    first = not s.counted.size
    change = contribution if first else contribution - s.counted
    return replace(s, tried=contribution, account=replace(s.account, round=round)), change, first


def was_counted(stake: Stake, me: str, question: CountedQuestion) -> bool | None:
    """True if the device's last upload is in the running sum, False if it is not; None: in this era no upload is."""
    if question.era != stake.account.era:
        return None
    return question.counted.get(me, -1) == stake.account.round


# Sums -----------------------------------------------------------------------------------------------------------
def gathered(env: NodeEnv, tally: Tally | None, sender: str, message: object, size: int) -> Tally | None:
    """The tally after a child's answer.

    Raises:
        PeerError: it is no answer, is not of this size, or counts more devices than the child has.
    """
    m: Increment | Nobody = gather.expected(sender, message, Increment, Nobody)
    if isinstance(m, Nobody):
        return tally
    checked(sender, m.total, size)
    if m.count > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} sent a sum of {m.count} devices, it has {env.sizes.get(sender, 1)}")
    return gather.add(tally, sender, m)


def answer(tally: Tally | None, like: npt.NDArray[np.floating]) -> Increment | Nobody:
    """What a hospital sends up."""
    if tally is None:
        return Nobody()
    s = gather.total(tally, like)
    return Increment(s.total, s.weight, s.count, s.scores)


def movement(env: NodeEnv, question: CountedQuestion, upload: Increment) -> tuple[Vector, Vector]:
    """A `Movement`: by which c_i (k,) moves, which is all that an upload says."""
    return upload.total, upload.total


def add_round(running: Tally | None, tally: Tally | None) -> Tally | None:
    """The running sum with a round's; its count and scores are of no round and stay empty."""
    if tally is None:
        return running
    if running is not None:
        tally = replace(
            tally,
            high=running.high + tally.high,
            low=running.low + tally.low,
            weight=exact.plus(running.weight, tally.weight),
        )
    over, low = exact.carry(tally.low)
    return Tally(tally.high + over, low, exact.carry_number(tally.weight), 0, {}, ())


def is_full(running: Tally | None) -> bool:
    """True for a sum that the next round might carry beyond the integers; no model that is of use has such numbers."""
    return running is not None and bool((np.abs(running.high) > FULL).any())


def check_weight(running: Tally | None, tally: Tally | None, sender: str, message: Any, most: float) -> None:
    """Raises PeerError for a sum with which more weight would be counted than all devices have."""
    known = sum(exact.number(t.weight) for t in (running, tally) if t is not None)
    if isinstance(message, Increment) and known + message.weight > most * (1 + ROUNDING):
        raise PeerError(f"{sender} adds weight {message.weight:.6g} to {known:.6g}; all devices have {most:.6g}")
