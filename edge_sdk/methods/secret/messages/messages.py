"""Messages of secret sums: a question with its number, a masked answer, a sum of such answers, and the lack of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Drawn, Tensor
from edge_sdk.algebra.secure_aggregation.rounding import FEWEST, WIDEST
from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.contract.run import ID
from edge_sdk.methods.integers.vectors.messages import VECTORS, Octets, check_range

Words = Annotated[npt.NDArray[np.uint64], Tensor((ANY,), "uint64")]
MOST_TERMS = 1 << 14
"""Devices that are too many for one sum: two words would not hold it (forms.split_words)."""
LONGEST = 64  # of a name


@dataclass(frozen=True)
class NumberedQuestion:
    """Down: a question to which answers are masked.

    Attributes:
        ticket: number of the question at the aggregator. No number comes twice, also after the aggregator has lost its
            disk or was put back from a backup (delivery/roles/renumbering.py).
        terms: how many answers are added up at most, from which the ring's width follows.
        question: what is asked.
    """

    ticket: Drawn
    terms: int
    question: Any

    def check(self, layout: Layout) -> None:
        if self.ticket < 1 or not 1 <= self.terms < MOST_TERMS:
            raise ValueError(f"question {self.ticket} for a sum of {self.terms}: 1 or more, and below {MOST_TERMS}")

    @property
    def wrapped_kind(self) -> str:
        """Type of the question without riders, by whose duration deadlines are measured."""
        return str(getattr(self.question, "wrapped_kind", type(self.question).__name__))

    @property
    def round(self) -> int | None:
        """The question's round, for whoever logs it."""
        return getattr(self.question, "round", None)

    @property
    def turn(self) -> int:
        """Number that grows from question to question of a kind: two for each round, as the last evaluation may be of a
        round that was evaluated before; 0 where a run asks a kind of question once."""
        return 0 if self.round is None else 2 * (self.round + 1) + bool(getattr(self.question, "final", False))


@dataclass(frozen=True)
class SumForm:
    """All that may be read of a masked answer: what kind it is of, and how many numbers it has.

    Attributes:
        kind: name of the message's type.
        there: an upload: paths of its vectors.
        size: an upload: integers; counts: candidates.
        bits, half: an upload: as of `Integers`.
        round: scores: rounds that are over.
    """

    kind: str
    there: tuple[str, ...] = ()
    size: int = 0
    bits: int = FEWEST
    half: float = 0.0
    round: int = 0

    def check(self, layout: Layout) -> None:
        check_range(self.bits, self.half)
        if len(self.there) > VECTORS or not 0 <= self.size <= max(MOST_TERMS, VECTORS * layout.size) or self.round < 0:
            raise ValueError(f"{self.size} numbers of {len(self.there)} vectors, the model has {layout.size}")
        if len(self.kind) > LONGEST or any(len(path) > LONGEST for path in self.there):
            raise ValueError("a name that is too long")


@dataclass(frozen=True)
class Masked:
    """Up, from a device: an answer under its mask.

    Attributes:
        form: what may be read of it.
        width: bits of an integer in the ring.
        tag: uint8 (TAG,), names the mask, see `Masks.tag`.
        steps: integers of `width` bits each.
        words: uint64 (k,).
    """

    form: SumForm
    width: int
    tag: Octets
    steps: Octets
    words: Words

    def check(self, layout: Layout) -> None:
        self.form.check(layout)
        check_width(self.width)
        if self.tag.size != TAG:
            raise ValueError(f"a tag of {self.tag.size} bytes, expected {TAG}")


@dataclass(frozen=True)
class MaskedSum:
    """Up, from a hospital: a sum of masked answers to one question.

    Attributes:
        ticket: number of that question.
        names: devices whose answers are in it, sorted.
        tags: uint8 (TAG x devices,), in the order of the names.
        form, width, steps, words: as of `Masked`, added up in their rings.
    """

    ticket: Drawn
    names: tuple[str, ...]
    tags: Octets
    form: SumForm
    width: int
    steps: Octets
    words: Words

    def check(self, layout: Layout) -> None:
        self.form.check(layout)
        check_width(self.width)
        if not 1 <= len(self.names) < MOST_TERMS or not all(map(ID.fullmatch, self.names)):
            raise ValueError(f"a sum of {len(self.names)} devices, 1 or more with names, below {MOST_TERMS}")
        if any(a >= b for a, b in zip(self.names, self.names[1:], strict=False)):
            raise ValueError("names that are not sorted, or one twice")
        if self.tags.size != TAG * len(self.names):
            raise ValueError(f"{self.tags.size} bytes of tags for {len(self.names)} devices, {TAG} each")


@dataclass(frozen=True)
class TooFew:
    """Up, in place of a sum: fewer devices have answered than a sum is made of.

    Attributes:
        form: of what was asked.
        devices: how many have answered.
    """

    form: SumForm
    devices: int

    def check(self, layout: Layout) -> None:
        self.form.check(layout)
        if not 0 <= self.devices < MOST_TERMS:
            raise ValueError(f"{self.devices} devices, 0 or more")


def check_width(width: int) -> None:
    if not 1 <= width <= WIDEST:
        raise ValueError(f"integers of {width} bits, 1 to {WIDEST}")
