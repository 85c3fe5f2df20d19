"""The reference: a model that aggregator, hospitals and devices hold alike, to the bit, and that moves by integers.

The aggregator's model w_t is a vector of floats. R_0 is known to all, and

    R_t = R_{t-1} + (w_t - R_{t-1}) rounded,

which needs a few bits for each number and follows w_t: what rounding has left out is in the next difference. A node
that has missed questions is sent the last changes, as long as these are smaller than the whole reference. A checksum
goes with each question; who comes to another sum, or holds another version than its parent believes (a new disk, a
backup), says `Behind` and is sent the whole reference with the next question. It takes no part in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from edge_sdk.algebra import rounding
from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.messages import Change, Changes
from edge_sdk.methods.integers.rounded import DOWNWARD, downward, read_vector, round_vector
from edge_sdk.methods.integers.settings import Uploads

WHOLE = 32
"""Bits of a number of the whole reference."""
NOTHING: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A node's copy.

    Attributes:
        model: R_t.
        version: t.
        recent: parents: the last changes, for children that have missed some.
        held: parents: child -> the version that it has last answered with.
    """

    model: Values
    version: int = 0
    recent: tuple[Change, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)

    def answered(self, child: str) -> Reference:
        """The reference after a child's answer to the latest question: it has read that."""
        return replace(self, held={**self.held, child: self.version})

    def lost(self, child: str) -> Reference:
        """The reference after a child has said that it is behind: nothing is known of it."""
        return replace(self, held={**self.held, child: -1})


def move(env: NodeEnv, settings: Uploads, r: Reference, model: Vector) -> Reference:
    """The next version, which comes nearer to the aggregator's model."""
    version, bits = r.version + 1, settings.downward
    how, random = downward(env, settings, version, bits), env.random(version, DOWNWARD)
    rounded = round_vector(how, model - r.model, 0.0, random)
    change = Change(version, bits, rounded.half, rounding.pack(rounded.steps, bits))
    return replace(applied(env, settings, r, change), recent=kept((*r.recent, change)))


def kept(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The last changes, as many as are together smaller than the whole reference."""
    found, bits = NOTHING, 0
    for change in reversed(changes):
        bits += change.bits
        if bits >= WHOLE:
            break
        found = (change, *found)
    return found


def applied(env: NodeEnv, settings: Uploads, r: Reference, change: Change) -> Reference:
    """The reference after a change.

    Raises:
        PeerError: the change is of another size.
    """
    if change.packed.size != rounding.packed_size(r.model.size, change.bits):
        raise PeerError(f"a change of {change.packed.size} bytes, the model has {r.model.size} numbers")
    steps = rounding.unpack(change.packed, r.model.size, change.bits)
    how = downward(env, settings, change.version, change.bits)
    moved = read_vector(how, steps, change.half, 1, r.model)
    return replace(r, model=r.model + moved, version=change.version)


def read(env: NodeEnv, settings: Uploads, r: Reference, m: Changes) -> Reference | None:
    """The reference that a question builds on; None: this node cannot make it from what it holds.

    Raises:
        PeerError: the question has vectors of another size.
    """
    if m.base < 0:
        if m.whole.shape != r.model.shape:
            raise PeerError(f"a reference of {m.whole.size} numbers, expected {r.model.size}")
        found = Reference(m.whole, m.version, NOTHING, r.held)
    elif not m.base <= r.version <= m.version:
        return None
    else:
        found = r
        for change in m.changes[r.version - m.base :]:  # the others are here: an answer was late, or lost
            found = applied(env, settings, found, change)
        found = replace(found, recent=kept((*r.recent, *m.changes[r.version - m.base :])))
    return found if checksum(found.model) == m.sum else None


def checksum(model: Vector) -> int:
    return crc32(model.tobytes())


def written(r: Reference, child: str, label: object, bits: int, half: float) -> Changes:
    """A question for one child, as the difference to what it holds."""
    base, total = r.held.get(child, 0), checksum(r.model)
    missing = r.version - base
    if base < 0 or not 0 <= missing <= len(r.recent):
        return Changes(label, -1, r.version, r.model, NOTHING, total, bits, half)
    changes = r.recent[len(r.recent) - missing :]
    return Changes(label, base, r.version, r.model[:0], changes, total, bits, half)
