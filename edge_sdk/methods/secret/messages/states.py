"""What hospital and aggregator remember of secret sums, around the method's own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.methods.integers.tiers.states import Ring
from edge_sdk.methods.integers.vectors.messages import Octets
from edge_sdk.methods.secret.messages.messages import SumForm, Words


@dataclass(frozen=True)
class MaskedPending:
    """Masked answers of a round, added up.

    Attributes:
        form, width: of each.
        tags: device -> its tag, uint8 (TAG,).
        steps: uint32 (k,), modulo 2**width.
        words: uint64 (m,).
    """

    form: SumForm
    width: int
    tags: Mapping[str, Octets]
    steps: Ring
    words: Words


@dataclass(frozen=True)
class SecretState:
    """A hospital's or the aggregator's state around the one inside.

    Attributes:
        inner: the state inside.
        ticket: number of the question that is on, at the aggregator; 0: none is.
        terms: how many answers to it are added up at most; devices that enrol meanwhile change nothing.
        pending: hospital: the answers so far.
        opened: aggregator: hospital -> the devices whose masks were taken off its sum of the question that is on.
    """

    inner: Any
    ticket: int = 0
    terms: int = 0
    pending: MaskedPending | None = None
    opened: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def guard(self) -> Any:
        """What the node has seen of its children, for gauges."""
        return self.inner.guard
