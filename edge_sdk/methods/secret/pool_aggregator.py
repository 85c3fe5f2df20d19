"""An aggregator that opens sums over hospitals only, in two steps: who has a sum, and then all these sums.

If any of the members does not send its sum, nothing of that question is opened: the masks between hospitals cancel over
all of them or not at all. The method goes on as if nobody had answered, and its next question is the next attempt, with
new answers and new masks among those who are there then. No sum is asked for twice, so no two pools differ by one
hospital.

A sum that cannot be, once all masks are off it, blames nobody: which hospital has spoilt it, or which device, cannot be
seen. Refused, and in the end suspended, is a hospital only for what it alone has sent: another form or ring than asked
for, or a sum that it has not announced.

The method inside is made for answers of single hospitals. It is given the mean answer of a device in each hospital's
place, times the number of its devices: the integers are dealt out so that they add up to the sum, to the bit. Scores
and counts, which are only added up, are given as one hospital's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra import rounding
from edge_sdk.contract.masks import TAG
from edge_sdk.contract.method import ME, OUT, NodeEnv, Role, Send, Step
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.integers.messages import Integers
from edge_sdk.methods.secret import aggregator
from edge_sdk.methods.secret.aggregator import NotSummed
from edge_sdk.methods.secret.masking import cut
from edge_sdk.methods.secret.messages import MaskedSum, SumForm
from edge_sdk.methods.secret.plan import SecretPlan, says_nothing
from edge_sdk.methods.secret.pool_messages import (
    NotOpened,
    NotPooled,
    PoolQuestion,
    PoolReady,
    PoolState,
    pool_state_around,
)
from edge_sdk.methods.shared.guard import Refused
from edge_sdk.methods.shared.suspension import Suspended

TOGETHER = "all hospitals together"


def around(inner: Role, plan: SecretPlan) -> Role:
    """The aggregator's role around that of the method, with secret sums inside."""
    secret = aggregator.around(inner, plan)
    kind = pool_state_around(secret.state)

    def start(env: NodeEnv) -> Step:
        if len(env.sizes) < plan.hospitals:
            found = f"there are {len(env.sizes)}"
            raise UsageError(f"sums are made of {plan.hospitals} hospitals (run.uploads.hospitals): {found}")
        state, sends = secret.start(env)
        return kind(state), sends

    def receive(env: NodeEnv, s: PoolState, sender: str, m: Any) -> Step:
        try:
            if isinstance(m, PoolReady):
                return noted(env, plan, s, sender, m), []
            if isinstance(m, MaskedSum):
                return summed(env, plan, s, sender, m), []
        except PeerError as error:
            return refuse(env, s, sender, str(error))
        if s.number and sender != ME and says_nothing(m):
            return s, []  # it has had a sum, and does not send it
        return inside(s, secret.receive(env, s.inner, sender, m))

    def close(env: NodeEnv, s: PoolState) -> Step:
        if s.ready and not s.number and not too_few(plan, s):
            members = together(s)
            nonces = np.concatenate([s.ready[h].nonce for h in members])
            question = PoolQuestion(s.inner.ticket, members, nonces, tuple(s.ready[h].devices for h in members))
            return replace(s, number=env.asked + 1), [Send(members, question, all=True)]
        s, told = delivered(env, s) if s.ready else (s, [])
        s, sends = inside(s, secret.close(env, s.inner))
        return s, [*told, *sends]

    def delivered(env: NodeEnv, s: PoolState) -> Step:
        """The state after the method was given what came of the sums, of which nothing is kept here."""
        told, parts = list[Send](), dict[str, Any]()
        env_then, cleared = replace(env, asked=s.inner.ticket), replace(s, ready={}, sums={}, number=0)
        nothing = {h: nothing_of(plan, ready.form) for h, ready in sorted(s.ready.items())}
        try:
            cleared, parts = opened(env_then, cleared, s)
        except PeerError as error:
            told, parts = [not_opened(s, str(error))], nothing
        if not parts:
            missing = tuple(h for h in together(s) if h not in s.sums)
            event = too_few(plan, s) or NotPooled(tuple(sorted(s.ready)), missing, plan.hospitals)
            told, parts = [Send(OUT, event)], nothing
        try:
            return given(env, cleared, parts, told)
        except PeerError as error:
            return given(env, cleared, nothing, [not_opened(s, str(error))])

    def opened(env: NodeEnv, cleared: PoolState, s: PoolState) -> tuple[PoolState, dict[str, Any]]:
        members = together(s)
        if not s.number or set(members) != set(s.sums):
            return cleared, {}
        counts = {h: len(s.sums[h].names) for h in members}
        whole = replace(env, sizes={TOGETHER: sum(env.sizes.get(h, 0) for h in members)})
        state, message = aggregator.opened(whole, plan, s.inner, TOGETHER, added(plan, s.sums))
        return replace(cleared, inner=state), dict(shares(plan, s.ready[members[0]].form, message, counts))

    def given(env: NodeEnv, s: PoolState, parts: Mapping[str, Any], told: Sequence[Send]) -> Step:
        """The state after the method has heard each part, as its hospital's answer.

        Raises:
            PeerError: it cannot be one.
        """
        lead, whole = next(iter(parts)), sum(env.sizes.get(h, 0) for h in parts)
        why, told = "", list(told)
        for h, part in parts.items():
            own = env if isinstance(part, Integers) else replace(env, sizes={**env.sizes, lead: whole})
            state, sends = inner.receive(own, s.inner.inner, h, part)
            if refusals := [send.message for send in sends if isinstance(send.message, Refused)]:
                why = refusals[0].reason
                state, sends = unblamed(s.inner.inner, state, sends)
            s = replace(s, inner=replace(s.inner, inner=state))
            told += sends
        return s, [*told, Send(OUT, NotOpened(tuple(parts), why))] if why else told

    def refuse(env: NodeEnv, s: PoolState, sender: str, why: str) -> Step:
        assert secret.refuse is not None
        return inside(s, secret.refuse(env, s.inner, sender, why))

    return Role(start, receive, close, kind, refuse)


def inside(s: PoolState, step: Step) -> tuple[PoolState, Sequence[Send]]:
    """The state around one inside after its step. A new question has new sums."""
    state, sends = step
    if state.ticket != s.inner.ticket:
        s = replace(s, ready={}, sums={}, number=0)
    return replace(s, inner=state), sends


def too_few(plan: SecretPlan, s: PoolState) -> NotPooled | NotSummed | None:
    """Why no sum is asked for: too few hospitals have one, or too few devices are in all of them; None: enough are."""
    members = together(s)
    devices = sum(s.ready[h].devices for h in members)
    if len(members) < plan.hospitals:
        return NotPooled(tuple(sorted(s.ready)), (), plan.hospitals)
    return NotSummed(", ".join(members), devices, plan.cohort) if devices < plan.cohort else None


def not_opened(s: PoolState, why: str) -> Send:
    return Send(OUT, NotOpened(together(s), why))


def unblamed(before: Any, after: Any, sends: Sequence[Send]) -> tuple[Any, list[Send]]:
    """What the method did with a part that it has refused, but for what that counts against the part's hospital."""
    guard = replace(after.guard, refusals=before.guard.refusals, suspended=before.guard.suspended)
    return replace(after, guard=guard), [e for e in sends if not isinstance(e.message, Refused | Suspended)]


def noted(env: NodeEnv, plan: SecretPlan, s: PoolState, sender: str, m: PoolReady) -> PoolState:
    """The state after a hospital has said that it has a sum.

    Raises:
        PeerError: it is of another question, or of more devices than it has.
    """
    if s.number or m.ticket != s.inner.ticket or m.ticket != env.asked:
        raise PeerError(f"{sender} has a sum of question {m.ticket}, and {env.asked} is open")
    if m.devices > env.sizes.get(sender, 0):
        raise PeerError(f"{sender} has a sum of {m.devices} devices, it has {env.sizes.get(sender, 0)}")
    if plan.kind_of(m.form) is None:
        raise PeerError(f"{sender} has a sum of {m.form.kind}, which this run does not add up")
    return replace(s, ready={**s.ready, sender: m})


def summed(env: NodeEnv, plan: SecretPlan, s: PoolState, sender: str, m: MaskedSum) -> PoolState:
    """The state after a hospital's sum.

    Raises:
        PeerError: it was not asked for, is not the one that was announced, or is in another ring than asked for.
    """
    ready = s.ready.get(sender)
    if not s.number or env.asked != s.number or ready is None or m.ticket != s.inner.ticket:
        raise PeerError(f"{sender} sent a sum of question {m.ticket}, which was not asked for")
    if (m.form, len(m.names)) != (ready.form, ready.devices):
        raise PeerError(f"{sender} sent a sum of {len(m.names)} devices, another than the one it said it has")
    kind = plan.kind_of(m.form)
    assert kind is not None  # noted
    (size, words), width = kind.lengths(m.form), kind.width(m.form, s.inner.terms)
    if (m.width, m.steps.size, m.words.size) != (width, rounding.packed_size(size, width), words):
        raise PeerError(f"{sender} sent a sum in a ring of {m.width} bits and {m.words.size} words, not asked for")
    return replace(s, sums={**s.sums, sender: m})


def together(s: PoolState) -> tuple[str, ...]:
    """Hospitals whose sums are of one form: the most common one, so that one that lies is left out."""
    forms = [ready.form for _, ready in sorted(s.ready.items())]
    most = max(forms, key=forms.count)
    return tuple(h for h, ready in sorted(s.ready.items()) if ready.form == most)


def added(plan: SecretPlan, sums: Mapping[str, MaskedSum]) -> MaskedSum:
    """One sum of all hospitals, in which their masks are gone.

    Raises:
        PeerError: a device is in two of them.
    """
    first, tags = next(iter(sums.values())), dict[str, Any]()
    kind = plan.kind_of(first.form)
    assert kind is not None  # noted
    size = kind.lengths(first.form)[0]
    for h, m in sums.items():
        if twice := sorted({*m.names} & {*tags}):
            raise PeerError(f"{h} sent a sum with {twice[0]}, who is in that of another hospital")
        tags |= {name: m.tags[TAG * i : TAG * (i + 1)] for i, name in enumerate(m.names)}
    steps = sum((rounding.unpack(m.steps, size, m.width) for m in sums.values()), np.zeros(size, np.uint32))
    words = sum((m.words for m in sums.values()), np.zeros(first.words.size, np.uint64))
    names, packed = tuple(sorted(tags)), rounding.pack(cut(steps, first.width), first.width)
    return replace(first, names=names, tags=np.concatenate([tags[n] for n in names]), steps=packed, words=words)


def nothing_of(plan: SecretPlan, form: SumForm) -> Any:
    kind = plan.kind_of(form)
    assert kind is not None  # noted
    return kind.nothing(form)


def shares(plan: SecretPlan, form: SumForm, message: Any, counts: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """What the method is given of a sum, for each hospital."""
    if not isinstance(message, Integers):
        yield from ((h, message if i == 0 else nothing_of(plan, form)) for i, h in enumerate(counts))
        return
    whole, rest = np.divmod(message.steps, np.uint32(message.terms))
    done, scores = 0, message.label.scores
    for h, count in counts.items():
        before, done = done, done + count
        mine = whole * np.uint32(count) + dealt(rest, done, message.terms) - dealt(rest, before, message.terms)
        label = replace(message.label, weight=message.label.weight * count / message.terms, count=count)
        label = replace(label, scores={name: value * count / message.terms for name, value in scores.items()})
        packed = rounding.pack(mine.astype(np.uint32), rounding.width(message.bits, count))
        yield h, replace(message, label=label, terms=count, packed=packed)


def dealt(rest: rounding.Steps, done: int, terms: int) -> rounding.Steps:
    """The part of what is left of each number that the first `done` of so many devices are given."""
    found: rounding.Steps = (rest.astype(np.uint64) * done // terms).astype(np.uint32)
    return found
