"""A hospital whose sum is read by nobody: it is added to those of other hospitals under masks that it shares with them.

    the hospital has a sum           PoolReady: a nonce that is drawn for it
    the aggregator knows who has     PoolQuestion: the members, with their nonces and numbers of devices
    the hospital                     its sum + masks shared with members behind it - those shared with members before it

    mask of two hospitals = ChaCha20(HKDF(X25519(their keys); the run, the question, the form, and of both
                                     hospitals names, nonces and numbers of devices))

A hospital adds these numbers up, and sends nothing where they are less than the run's cohort. They are in the masks of
both hospitals, and each answers to its own true number only. So who was told a false one of another hospital makes
other masks than that hospital, and they do not cancel.

Over all members the masks cancel. A sum goes into one pool only: it is gone from the state when it has left, and its
nonce is kept by the process that drew it and nowhere else, so a store that is put back from a backup, or a process that
was killed in between, has a sum that it can no longer mask. That costs the round, and nothing is opened twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import UP, NodeEnv, Role, Send, Step, ask_nobody
from edge_sdk.contract.wrapping import passed_in, state_around
from edge_sdk.errors import UsageError
from edge_sdk.methods.secret.messages.masking import cut, ring_type
from edge_sdk.methods.secret.messages.messages import MaskedSum
from edge_sdk.methods.secret.messages.plan import SecretPlan
from edge_sdk.methods.secret.messages.pool_messages import PoolQuestion, PoolReady, PoolState
from edge_sdk.methods.shared.aggregation.gather import Nobody


def around(inner: Role, plan: SecretPlan) -> Role:
    """The hospital's role around that of secret sums."""
    kind = state_around(PoolState, inner.state)

    def start(env: NodeEnv) -> Step:
        if env.masks is None:
            raise UsageError("sums over hospitals need keys, and this hospital was given none (masks)")
        state, sends = inner.start(env)
        return kind(state), sends

    def receive(env: NodeEnv, s: PoolState, sender: str, m: Any) -> Step:
        if isinstance(m, PoolQuestion) and sender == UP:
            answer = pooled(env, plan, s.held, m)
            return replace(s, held=None, answer=answer, pooling=True), [ask_nobody(m)]
        if sender == UP:
            s = replace(s, held=None, answer=None, pooling=False)
        state, sends = inner.receive(env, s.inner, sender, m)
        return held(env, replace(s, inner=state), sends)

    def close(env: NodeEnv, s: PoolState) -> Step:
        if s.pooling:
            return replace(s, answer=None, pooling=False), [Send(UP, s.answer or Nobody())]
        state, sends = inner.close(env, s.inner)
        return held(env, replace(s, inner=state), sends)

    return Role(start, receive, close, kind, passed_in(inner.refuse), passed_in(inner.renew))


def held(env: NodeEnv, s: PoolState, sends: Sequence[Send]) -> tuple[PoolState, list[Send]]:
    """The state with the sum that would have left, and the sends with the word that there is one in its place."""
    found = list[Send]()
    for send in sends:
        if isinstance(m := send.message, MaskedSum):
            assert env.masks is not None
            nonce = np.frombuffer(env.masks.draw(m.ticket), np.uint8)
            s, send = replace(s, held=m), replace(send, message=PoolReady(m.ticket, nonce, m.form, len(m.names)))
        found.append(send)
    return s, found


def pooled(env: NodeEnv, plan: SecretPlan, mine: MaskedSum | None, q: PoolQuestion) -> MaskedSum | None:
    """This hospital's sum under the masks that it shares with the others; None: it must not leave."""
    masks = env.masks
    assert masks is not None
    if mine is None or q.ticket != mine.ticket or env.me not in q.members or len(q.members) < plan.hospitals:
        return None
    if q.devices_of(env.me) != len(mine.names) or sum(q.devices) < plan.cohort:
        return None
    if not all(masks.knows(member) for member in q.members if member != env.me):
        return None
    if not masks.spend(mine.ticket, q.nonce_of(env.me), use_of(q, mine)):
        return None
    return masked(env, plan, mine, q)


def use_of(q: PoolQuestion, mine: MaskedSum) -> bytes:
    """What a nonce is spent on: the members, their nonces and numbers of devices, and the sum."""
    parts = (q.members, q.nonces.tobytes(), q.devices, mine.names, mine.steps.tobytes(), mine.words.tobytes())
    return repr(parts).encode()


def masked(env: NodeEnv, plan: SecretPlan, mine: MaskedSum, q: PoolQuestion) -> MaskedSum:
    """The sum with this hospital's masks on it: those of the members behind it added, of those before it taken off."""
    form_kind = plan.kind_of(mine.form)
    assert form_kind is not None  # it is this hospital's own sum
    words, kind, size = mine.words.copy(), np.dtype(ring_type(mine.width)), form_kind.lengths(mine.form)[0]
    steps = rounding.unpack(mine.steps, size, mine.width).astype(kind)
    for other in q.members:
        if other != env.me:
            octets = stream(env, other, q, mine, 8 * words.size + kind.itemsize * size)
            step_mask, word_mask = octets[8 * words.size :].view(kind), octets[: 8 * words.size].view("<u8")
            if env.me < other:
                steps, words = steps + step_mask, words + word_mask
            else:
                steps, words = steps - step_mask, words - word_mask
    return replace(mine, steps=rounding.pack(cut(steps, mine.width), mine.width), words=words)


def stream(env: NodeEnv, other: str, q: PoolQuestion, mine: MaskedSum, size: int) -> Any:
    """Bytes that this hospital and another one share for one pool."""
    pair = tuple((name, q.nonce_of(name).hex(), q.devices_of(name)) for name in sorted((env.me, other)))
    form = mine.form
    parts = ("hospitals", q.ticket, pair, form.kind, form.there, form.size, form.bits, form.half.hex(), form.round)
    assert env.masks is not None
    return env.masks.stream(other, repr((*parts, mine.width)).encode(), b"", size)
