"""What device and hospital remember of exchanges among devices, around the method's own states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_sdk.contract.environment.sharing import PUBLIC
from edge_sdk.methods.integers.tiers.states import Ring
from edge_sdk.methods.integers.vectors.messages import Octets
from edge_sdk.methods.secret.messages.among_messages import Participants, to_octets
from edge_sdk.methods.secret.messages.messages import SumForm, Words

IDLE, OFFERING, DEALING, COVERING, CONFIRMING, REVEALING = range(6)
"""What devices are asked for now."""


@dataclass(frozen=True)
class AmongDeviceState:
    """A device's state around the one inside.

    Attributes:
        inner: the state inside.
        ticket: number of the exchange for which it has offered an answer last; 0: of none.
        kind, turn: the question that this was an answer to, as of `NumberedQuestion`.
        given: the answer is under its masks, and has left or is about to.
        answered: kind of question -> turn of the latest one to which an answer was given under masks.
    """

    inner: Any
    ticket: int = 0
    kind: str = ""
    turn: int = 0
    given: bool = False
    answered: Mapping[str, int] = field(default_factory=dict)

    @property
    def was_answered(self) -> bool:
        """Says if an answer was given to this question, or to a later one of its kind, in another exchange."""
        return not self.given and self.answered.get(self.kind, -1) >= self.turn


@dataclass(frozen=True)
class AmongState:
    """A hospital's state around the one inside.

    Attributes:
        inner: the state inside.
        stage: what devices are asked for; IDLE: no exchange is on.
        ticket: number of the question, at this hospital.
        form: of the answers; None: there is none yet.
        width: bits of their ring.
        offers, dealt, confirmed, revealed: device -> what it has sent of that, as long as it is needed.
        members: whose masked answers came.
        steps, words: their sum.
        committed: device -> what it has committed itself to.
        disputed: device -> whose shares it has found false, a bit each.
        refused: who has lied in this exchange: the role inside is not told of its answer, which is in the sum.
    """

    inner: Any
    stage: int = IDLE
    ticket: int = 0
    form: SumForm | None = None
    width: int = 0
    offers: Mapping[str, Octets] = field(default_factory=dict)
    dealt: Mapping[str, Octets] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    steps: Ring = field(default_factory=lambda: np.zeros(0, np.uint32))
    words: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    confirmed: Mapping[str, Octets] = field(default_factory=dict)
    revealed: Mapping[str, Octets] = field(default_factory=dict)
    committed: Mapping[str, Octets] = field(default_factory=dict)
    disputed: Mapping[str, Octets] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def guard(self) -> Any:
        """What the node has seen of its children, for gauges."""
        return self.inner.guard

    @property
    def names(self) -> tuple[str, ...]:
        """Devices of the roster, sorted."""
        return tuple(sorted(self.offers))

    @property
    def roster(self) -> Participants:
        """Who has an answer."""
        assert self.form is not None  # of the first offer
        publics = to_octets([self.offers[name].tobytes() for name in self.names])
        assert publics.size == PUBLIC * len(self.names)
        return Participants(self.ticket, self.form, self.names, publics)
