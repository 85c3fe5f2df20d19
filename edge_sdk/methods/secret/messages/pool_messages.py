"""Messages and states of sums over hospitals (over_hospitals/pool_hospital.py, over_hospitals/pool_aggregator.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edge_sdk.algebra.arrays import Drawn
from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.methods.integers.vectors.messages import Octets
from edge_sdk.methods.secret.messages.messages import LONGEST, MOST_TERMS, MaskedSum, SumForm

MOST_HOSPITALS = 1 << 12


@dataclass(frozen=True)
class PoolReady:
    """Up, in place of a sum: this hospital has one, and waits to hear with whom it is added up.

    Attributes:
        ticket: number of the question that it answers.
        nonce: uint8 (TAG,), drawn for this sum; without it nobody makes its masks.
        form: of the answers in it.
        devices: how many these are.
    """

    ticket: Drawn
    nonce: Octets
    form: SumForm
    devices: int

    def check(self, layout: Layout) -> None:
        self.form.check(layout)
        if self.nonce.size != TAG or not 1 <= self.devices < MOST_TERMS:
            raise ValueError(f"a nonce of {self.nonce.size} bytes and {self.devices} devices: {TAG}, and 1 or more")


@dataclass(frozen=True)
class PoolQuestion:
    """Down: add your sum up with those of these hospitals.

    Attributes:
        ticket: number of the question that the sums answer.
        members: all who have a sum, sorted.
        nonces: uint8 (TAG x members,), in that order.
        devices: of each member's sum, in that order; over all of them there must be a cohort.
    """

    ticket: Drawn
    members: tuple[str, ...]
    nonces: Octets
    devices: tuple[int, ...]

    def check(self, layout: Layout) -> None:
        if self.ticket < 1 or not 1 <= len(self.members) < MOST_HOSPITALS:
            raise ValueError(f"question {self.ticket} for {len(self.members)} hospitals: both are 1 or more")
        if any(a >= b for a, b in zip(self.members, self.members[1:], strict=False)):
            raise ValueError("names that are not sorted, or one twice")
        if self.nonces.size != TAG * len(self.members) or any(len(name) > LONGEST for name in self.members):
            raise ValueError(f"{self.nonces.size} bytes of nonces for {len(self.members)} hospitals, {TAG} each")
        if len(self.devices) != len(self.members) or not all(1 <= count < MOST_TERMS for count in self.devices):
            raise ValueError(f"numbers of devices of {len(self.devices)} hospitals, 1 or more for each member")

    def devices_of(self, member: str) -> int:
        return self.devices[self.members.index(member)]

    def nonce_of(self, member: str) -> bytes:
        at = self.members.index(member)
        found: bytes = self.nonces[TAG * at : TAG * (at + 1)].tobytes()
        return found


@dataclass(frozen=True)
class NotPooled:
    """Event of the aggregator: the sums of a question were not opened, because not all hospitals have sent theirs.

    Attributes:
        members: who have said that they have one.
        missing: who of these have not sent it, or too few are.
        hospitals: of how many a sum is made at least.
    """

    members: tuple[str, ...]
    missing: tuple[str, ...]
    hospitals: int

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "not pooled", **asdict(self)}

    def to_sentence(self) -> str:
        if self.missing:
            return f"nothing of this round is opened: {', '.join(self.missing)} did not send the sum that it has"
        return f"{len(self.members)} hospitals have a sum, and it is opened of {self.hospitals} at least"


@dataclass(frozen=True)
class NotOpened:
    """Event of the aggregator: the sum of all these hospitals says what no honest sum says, and nothing of it counts.

    Attributes:
        members: whose sums are in it. Which of them spoils it, or which of their devices, cannot be seen.
        why: what is wrong with it.
    """

    members: tuple[str, ...]
    why: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "not opened", **asdict(self)}

    def to_sentence(self) -> str:
        return f"the sum of {', '.join(self.members)} does not count, and nobody can see who has spoilt it: {self.why}"


@dataclass(frozen=True)
class PoolState:
    """State of a hospital or the aggregator around that of secret sums.

    Attributes:
        inner: the state inside.
        held: hospital: the sum that it has, until it is sent.
        answer: hospital: what it will answer the question that is on with; None: that is the role's inside.
        ready: aggregator: hospital -> what it has said of its sum.
        sums: aggregator: hospital -> its sum.
        number: aggregator: of the question by which sums were asked for; 0: none is on.
    """

    inner: Any
    held: MaskedSum | None = None
    answer: MaskedSum | None = None
    pooling: bool = False
    ready: Mapping[str, PoolReady] = field(default_factory=dict)
    sums: Mapping[str, MaskedSum] = field(default_factory=dict)
    number: int = 0

    @property
    def guard(self) -> Any:
        """What the node has seen of its children, for gauges."""
        return self.inner.guard
