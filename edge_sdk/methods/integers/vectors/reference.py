"""The reference: a model that aggregator, hospitals and devices hold alike, to the bit, and that moves by integers.

The aggregator's model w_t is a vector of floats. R_0 is known to all, and

    R_t = R_{t-1} + (w_t - R_{t-1}) rounded,

which needs a few bits for each number and follows w_t: what rounding has left out is in the next difference. Where w_t
has so low a rank that its factors, with FACTOR_BITS for each number, take fewer bytes (FedSLR), R_t is w_t of rounded
factors, whatever R_{t-1} was. A node that has missed questions is sent the last changes, or those since the last
factors, as long as these are smaller than the whole reference. A checksum
goes with each question; who comes to another sum, or holds another version than its parent believes (a new disk, a
backup), says `Behind` and is sent the whole reference with the next question. It takes no part in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.messages import Change, Changes
from edge_sdk.methods.integers.vectors.rounded import DOWNWARD, downward, read_vector, round_vector
from edge_sdk.methods.integers.vectors.settings import Uploads

FACTOR_BITS = 12
"""Bits of a number of a model's factors, at least: these err by a thousandth, where a difference may err by a fifth."""
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


def move(env: NodeEnv, settings: Uploads, r: Reference, model: Vector, factors: Packed | None = None) -> Reference:
    """The next version, which comes nearer to the aggregator's model.

    Args:
        factors: the model as the method has packed it; None: it has not.
    """
    change = None if factors is None else factored(env, settings, r, factors)
    change = change or difference(env, settings, r, model)
    return replace(applied(env, settings, r, change), recent=kept((*r.recent, change), r.model.size))


def difference(env: NodeEnv, settings: Uploads, r: Reference, model: Vector) -> Change:
    """What is to be added to the reference, rounded."""
    return written_change(env, settings, r.version + 1, settings.downward, model - r.model, ())


def factored(env: NodeEnv, settings: Uploads, r: Reference, model: Packed) -> Change | None:
    """The model's factors, rounded; None where a difference takes fewer bytes."""
    bits = max(FACTOR_BITS, settings.downward)
    if rounding.packed_size(model.values.size, bits) >= rounding.packed_size(r.model.size, settings.downward):
        return None
    return written_change(env, settings, r.version + 1, bits, model.values, model.ranks)


def written_change(
    env: NodeEnv, settings: Uploads, version: int, bits: int, x: Vector, ranks: tuple[int, ...]
) -> Change:
    rounded = round_vector(downward(env, settings, version, bits), x, 0.0, env.random(version, DOWNWARD))
    return Change(version, bits, rounded.half, rounding.pack(rounded.steps, bits), ranks)


def kept(changes: tuple[Change, ...], size: int) -> tuple[Change, ...]:
    """The last changes, as many as are together smaller than the whole reference of that size; none before factors."""
    found, octets = NOTHING, 0
    for change in reversed(changes):
        octets += change.packed.size
        if 8 * octets >= WHOLE * size:
            break
        found = (change, *found)
        if change.ranks:
            break
    return found


def applied(env: NodeEnv, settings: Uploads, r: Reference, change: Change) -> Reference:
    """The reference after a change.

    Raises:
        PeerError: the change is of another size.
    """
    size = lowrank.floats(env.layout, check_ranks(env.layout, change.ranks)) if change.ranks else r.model.size
    if change.packed.size != rounding.packed_size(size, change.bits):
        raise PeerError(f"a change of {change.packed.size} bytes for {size} numbers of {change.bits} bits")
    how = downward(env, settings, change.version, change.bits)
    values = read_vector(how, rounding.unpack(change.packed, size, change.bits), change.half, 1, r.model)
    model = lowrank.unpack(env.layout, Packed(change.ranks, values)) if change.ranks else r.model + values
    return replace(r, model=model, version=change.version)


def check_ranks(layout: Layout, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks of a model of that layout. Raises PeerError if they cannot be."""
    try:
        lowrank.check_ranks(layout, ranks)
    except ValueError as error:
        raise PeerError(f"a change: {error}") from None
    return ranks


def read(env: NodeEnv, settings: Uploads, r: Reference, m: Changes) -> Reference | None:
    """The reference that a question builds on; None: this node cannot make it from what it holds.

    Raises:
        PeerError: the question has vectors of another size.
    """
    first = m.changes[0] if m.changes else None
    if m.base < 0 and first is not None and first.ranks:
        found = r
        for change in m.changes:
            found = applied(env, settings, found, change)
        found = replace(found, recent=kept(m.changes, r.model.size))
    elif m.base < 0:
        if m.whole.shape != r.model.shape:
            raise PeerError(f"a reference of {m.whole.size} numbers, expected {r.model.size}")
        found = Reference(m.whole, m.version, NOTHING, r.held)
    elif not m.base <= r.version <= m.version:
        return None
    else:
        found = r
        for change in m.changes[r.version - m.base :]:  # the others are here: an answer was late, or lost
            found = applied(env, settings, found, change)
        found = replace(found, recent=kept((*r.recent, *m.changes[r.version - m.base :]), r.model.size))
    return found if checksum(found.model) == m.sum else None


def checksum(model: Vector) -> int:
    return crc32(model.tobytes())


def written(r: Reference, child: str, label: object, bits: int, half: float) -> Changes:
    """A question for one child, as the difference to what it holds."""
    base, total = r.held.get(child, 0), checksum(r.model)
    missing, nothing = r.version - base, r.model[:0]
    if base >= 0 and 0 <= missing <= len(r.recent):
        changes = r.recent[len(r.recent) - missing :]
        return Changes(label, base, r.version, nothing, changes, total, bits, half)
    if r.recent and r.recent[0].ranks:
        return Changes(label, -1, r.version, nothing, r.recent, total, bits, half)
    return Changes(label, -1, r.version, r.model, NOTHING, total, bits, half)
