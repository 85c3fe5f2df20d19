"""Masks: how a device puts one on an answer, and how the aggregator takes those of a sum off again.

    context = what the answer is to: the question's number, the device, the form of the answer, the ring
    tag     = PRF(tag key, context, answer)                  travels beside the masked answer
    mask    = ChaCha20(HKDF(key, context, tag))              added in the ring

The key is the device's and the aggregator's. The tag key is the device's alone, or the aggregator could try out on a
tag what the device might have sent; it takes a mask off by the tag that came. The tag depends on the answer, as the
nonce of an SIV mode does (RFC 5297), so the same mask never hides two answers, whatever the device has forgotten:
killed before its answer was saved, put back from a backup, asked twice by a lying hospital or trained by code that
never gives the same twice, it has another tag and another mask for another answer. The same answer gives the same
bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.rounding import Ring
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.contract.method import UP, NodeEnv
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.secret.messages.forms import Flat, SumKind, check_count
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum, SumForm


def ring_type(width: int) -> npt.DTypeLike:
    """The smallest integers that hold a ring of so many bits: they wrap around at a multiple of it."""
    return "<u1" if width <= 8 else "<u2" if width <= 16 else "<u4"


def context_of(ticket: int, device: str, form: SumForm, width: int) -> bytes:
    """What an answer is to, as bytes; different ones for all that may differ."""
    parts = (ticket, device, form.kind, form.there, form.size, form.bits, form.half.hex(), form.round, width)
    return repr(parts).encode()


def mask_for(
    env: NodeEnv, peer: str, context: bytes, tag: bytes, width: int, lengths: tuple[int, int]
) -> tuple[Ring, npt.NDArray[np.uint64]]:
    """The mask of one answer: of its steps, in a ring type, and of its words."""
    steps, words = lengths
    kind = np.dtype(ring_type(width))
    assert env.masks is not None
    octets = env.masks.stream(peer, context, tag, 8 * words + kind.itemsize * steps)
    return octets[8 * words :].view(kind), octets[: 8 * words].view("<u8")


def cut(ring: Ring, width: int) -> rounding.Steps:
    """Integers of a ring type, modulo 2**width; uint32."""
    return ring.astype(np.uint32) & np.uint32((1 << width) - 1)


# Device ---------------------------------------------------------------------------------------------------------
def put_on(env: NodeEnv, kind: SumKind, ticket: int, terms: int, message: object) -> Masked:
    """A device's answer under its mask.

    Args:
        terms: how many answers are added up at most.

    Raises:
        UsageError: this node was given no key.
    """
    if env.masks is None:
        raise UsageError("this run's uploads are secret, and this node has no keys to mask them with")
    form = kind.form(env, message)
    flat = kind.flatten(form, message)
    width = kind.width(form, terms)
    context = context_of(ticket, env.me, form, width)
    ring = flat.steps.astype(ring_type(width))
    tag = env.masks.tag(UP, context, b"".join((ring.data, flat.words.astype("<u8").data)))
    mask, word_mask = mask_for(env, UP, context, tag, width, (ring.size, flat.words.size))
    ring += mask
    ring &= ring.dtype.type((1 << width) - 1)
    return Masked(form, width, np.frombuffer(tag, np.uint8), rounding.pack(ring, width), flat.words + word_mask)


# Aggregator -----------------------------------------------------------------------------------------------------
def take_off(env: NodeEnv, kind: SumKind, m: MaskedSum) -> Flat:
    """The sum of the answers that were masked.

    Raises:
        PeerError: there is no key of a device, or the answers in the sum are not theirs, or not to this question.
    """
    masks, lengths, terms = env.masks, kind.lengths(m.form), len(m.names)
    assert masks is not None
    if strange := next((name for name in m.names if not masks.knows(name)), None):
        raise PeerError(f"a sum with {strange}, of whom there is no key")
    steps = rounding.unpack(m.steps, lengths[0], m.width).astype(ring_type(m.width))
    words = m.words.copy()
    for i, name in enumerate(m.names):
        tag = m.tags[TAG * i : TAG * (i + 1)].tobytes()
        context = context_of(m.ticket, name, m.form, m.width)
        mask, word_mask = mask_for(env, name, context, tag, m.width, lengths)
        steps -= mask
        words -= word_mask
    check_count(words, terms)
    return Flat(cut(steps, m.width), words)
