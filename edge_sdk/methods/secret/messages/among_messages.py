"""Messages of sums that the devices of a hospital open among themselves (among_devices/among_device.py,
among_devices/among_hospital.py).

Sets of devices travel as bits, in the order of the roster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge_sdk.algebra.arrays import Drawn
from edge_sdk.algebra.secure_aggregation.neighbours import digest
from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.environment.sharing import COMMITTED, PUBLIC, SEALED, TAG
from edge_sdk.contract.run import ID
from edge_sdk.methods.integers.vectors.messages import Octets
from edge_sdk.methods.secret.messages.messages import MOST_TERMS, SumForm, Words, check_width

FEW, UNSHARED, SPLIT, FALSE, REFUSED = "few", "unshared", "split", "false", "refused"
WHY = {
    FEW: "fewer devices than a sum is made of",
    UNSHARED: "too few devices have told their shares",
    SPLIT: "too few neighbours of a device were left, or they fell apart into groups",
    FALSE: "what devices have told does not open it",
    REFUSED: "the sum cannot be one of honest answers",
}
"""Why there is no sum -> as a sentence."""


def to_bits(names: Sequence[str], members: Collection[str]) -> Octets:
    """Which of the names are members, a bit each."""
    return np.packbits(np.array([name in members for name in names], np.uint8))


def from_bits(names: Sequence[str], bits: Octets) -> tuple[str, ...]:
    """The inverse of `to_bits`. Raises ValueError for bits of another number of names."""
    if bits.size != -(-len(names) // 8):
        raise ValueError(f"{bits.size} bytes for {len(names)} devices, a bit each")
    found = np.unpackbits(bits)
    if found[len(names) :].any():
        raise ValueError("bits of more devices than there are")
    return tuple(name for name, there in zip(names, found, strict=False) if there)


def check_ticket(ticket: int) -> None:
    if ticket < 1:
        raise ValueError(f"exchange {ticket}: 1 or more")


def check_pieces(octets: Octets, size: int, what: str) -> None:
    """Raises ValueError for bytes that are not so many pieces of one size."""
    if octets.size % size or octets.size > size * MOST_TERMS:
        raise ValueError(f"{octets.size} bytes of {what}, {size} each")


def check_bits(bits: Octets) -> None:
    if not 1 <= bits.size <= MOST_TERMS // 8:
        raise ValueError(f"{bits.size} bytes of bits, 1 or more")


def pieces(octets: Octets, size: int, names: Sequence[str]) -> dict[str, bytes]:
    """Name -> its piece. Raises ValueError where there are not as many pieces as names."""
    if octets.size != size * len(names):
        raise ValueError(f"{octets.size} bytes for {len(names)} devices, {size} each")
    whole = octets.tobytes()
    return {name: whole[size * i : size * (i + 1)] for i, name in enumerate(names)}


def nothing() -> Octets:
    """No bytes."""
    return np.zeros(0, np.uint8)


def to_octets(parts: Collection[bytes]) -> Octets:
    return np.frombuffer(b"".join(parts), np.uint8)


@dataclass(frozen=True)
class KeysOffer:
    """Up, in place of an answer: the device has one, and fresh keys under which it will hide it.

    Attributes:
        form: of the answer.
        public: uint8 (PUBLIC,).
    """

    form: SumForm
    public: Octets

    def check(self, layout: Layout) -> None:
        self.form.check(layout)
        if self.public.size != PUBLIC:
            raise ValueError(f"keys of {self.public.size} bytes, expected {PUBLIC}")


@dataclass(frozen=True)
class Participants:
    """Down: who has an answer, from which follows who is whose neighbour. Deal your shares out.

    Attributes:
        ticket: number of the question, at the hospital.
        form: of the answers.
        names: sorted.
        publics: uint8 (PUBLIC x names,), in that order.
    """

    ticket: Drawn
    form: SumForm
    names: tuple[str, ...]
    publics: Octets

    def check(self, layout: Layout) -> None:
        check_ticket(self.ticket)
        self.form.check(layout)
        if not 1 <= len(self.names) < MOST_TERMS or not all(map(ID.fullmatch, self.names)):
            raise ValueError(f"a roster of {len(self.names)} devices, 1 or more with names, below {MOST_TERMS}")
        if any(a >= b for a, b in zip(self.names, self.names[1:], strict=False)):
            raise ValueError("names that are not sorted, or one twice")
        pieces(self.publics, PUBLIC, self.names)

    def digest(self) -> bytes:
        """What the exchange is known by, and the public draw of who is whose neighbour."""
        form = self.form
        parts = (form.kind, form.there, form.size, form.bits, form.half.hex(), form.round)
        return digest(repr((self.ticket, parts, self.names)).encode() + self.publics.tobytes())


@dataclass(frozen=True)
class Dealt:
    """Up: shares of two secrets, dealt out.

    Attributes:
        sealed: uint8 (SEALED x neighbours,), shares for each neighbour, by name, which it alone can read.
        commitments: uint8 (COMMITTED x holders,), hashes of the shares of neighbours and of the device itself, by name:
            whoever tells another share is found out.
    """

    sealed: Octets
    commitments: Octets = field(default_factory=nothing)

    def check(self, layout: Layout) -> None:
        check_pieces(self.sealed, SEALED, "shares")
        check_pieces(self.commitments, COMMITTED, "commitments")


@dataclass(frozen=True)
class PassedShares:
    """Down: what others have sealed for you. Send your answer under its masks.

    Attributes:
        ticket: as of `Participants`.
        width: bits of the ring for the answer's steps.
        dealers: bits of all who have dealt.
        sealed: uint8 (SEALED x neighbours who have dealt,), by name.
        commitments: uint8 (COMMITTED x neighbours who have dealt,), what they have committed themselves to, by name.
    """

    ticket: Drawn
    width: int
    dealers: Octets
    sealed: Octets
    commitments: Octets = field(default_factory=nothing)

    def check(self, layout: Layout) -> None:
        check_ticket(self.ticket)
        check_width(self.width)
        check_bits(self.dealers)
        check_pieces(self.sealed, SEALED, "shares")
        check_pieces(self.commitments, COMMITTED, "commitments")


@dataclass(frozen=True)
class Covered:
    """Up: an answer under its masks.

    Attributes:
        steps, words: as of `Masked`, in the ring that was asked for.
        disputed: bits of those neighbours whose shares were not what they have committed themselves to.
    """

    steps: Octets
    words: Words
    disputed: Octets = field(default_factory=nothing)


@dataclass(frozen=True)
class Survivors:
    """Down: whose answers are added up. Confirm that to your neighbours.

    Attributes:
        ticket: as of `Participants`.
        members: bits of all of them.
    """

    ticket: Drawn
    members: Octets

    def check(self, layout: Layout) -> None:
        check_ticket(self.ticket)
        check_bits(self.members)


@dataclass(frozen=True)
class Confirmed:
    """Up: uint8 (TAG x neighbours among the survivors,), a word for each that it was shown the same, by name."""

    words: Octets

    def check(self, layout: Layout) -> None:
        check_pieces(self.words, TAG, "words")


@dataclass(frozen=True)
class Agreement:
    """Down: which neighbours were shown the same survivors. Tell your shares.

    Attributes:
        ticket: as of `Participants`.
        senders: bits of all who have confirmed.
        words: uint8 (TAG x neighbours among these,), what they say to you, by name.
    """

    ticket: Drawn
    senders: Octets
    words: Octets

    def check(self, layout: Layout) -> None:
        check_ticket(self.ticket)
        check_bits(self.senders)
        check_pieces(self.words, TAG, "words")


@dataclass(frozen=True)
class Revealed:
    """Up: uint8 (SHARE x holders,), a share of each neighbour who has dealt, and is not disputed by this device, and of
    the device itself, by name: of a survivor's own mask, or of the key of one who is missing."""

    shares: Octets

    def check(self, layout: Layout) -> None:
        check_pieces(self.shares, SHARE, "shares")


@dataclass(frozen=True)
class Withdrawn:
    """Up: this device takes no part in the exchange any more."""


@dataclass(frozen=True)
class NoSum:
    """Up, from a hospital: its devices have opened no sum, and nothing of it counts.

    Attributes:
        nothing: what its role sends where nobody has answered.
        devices: how many have had an answer.
        why: a key of WHY.
    """

    nothing: Any
    devices: int
    why: str

    def check(self, layout: Layout) -> None:
        if self.why not in WHY or not 0 <= self.devices < MOST_TERMS:
            raise ValueError(f"no sum of {self.devices} devices, for the reason {self.why!r}: one of {', '.join(WHY)}")


# Events ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NoneOpened:
    """Event of hospital and aggregator: devices have opened no sum.

    Attributes:
        hospital: theirs.
        devices: how many have had an answer.
        why: a key of WHY.
    """

    hospital: str
    devices: int
    why: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "none opened", **asdict(self)}

    def to_sentence(self) -> str:
        return f"{self.hospital}: no sum of {self.devices} devices was opened: {WHY[self.why]}"


@dataclass(frozen=True)
class Disputed:
    """Event of a hospital: a device says that another one has not dealt to it what it had committed itself to. One of
    the two lies, and nobody sees which, as long as each of them is in dispute with few others.

    Attributes:
        dealer, holder: names of the two.
    """

    dealer: str
    holder: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "disputed", **asdict(self)}

    def to_sentence(self) -> str:
        return f"{self.holder} says that {self.dealer} has dealt false shares to it; one of the two lies"


@dataclass(frozen=True)
class Withheld:
    """Event of a device: it has had an answer, and did not give it, or not what would open a sum with it.

    Attributes:
        ticket: of which exchange.
        why: as a sentence.
    """

    ticket: Drawn
    why: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "withheld", **asdict(self)}

    def to_sentence(self) -> str:
        return f"an answer was not opened: {self.why}"
