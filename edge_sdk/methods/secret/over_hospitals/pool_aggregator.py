"""An aggregator that opens sums over hospitals only, in two steps: who has a sum, and then all these sums.

If any of the members does not send its sum, nothing of that question is opened: the masks between hospitals cancel over
all of them or not at all. The method goes on as if nobody had answered, and its next question is the next attempt, with
new answers and new masks among those who are there then. No sum is asked for twice, so no two pools differ by one
hospital.

A sum that cannot be, once all masks are off it, blames nobody: which hospital has spoilt it, or which device, cannot be
seen. Refused, and in the end suspended, is a hospital only for what it alone has sent: another form or ring than asked
for, or a sum that it has not announced. What the method inside is given of a sum says pool_sums.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import ME, OUT, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in, state_around
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.secret.messages.messages import MaskedSum
from edge_sdk.methods.secret.messages.plan import SecretPlan, says_nothing
from edge_sdk.methods.secret.messages.pool_messages import (
    NotOpened,
    NotPooled,
    PoolQuestion,
    PoolReady,
    PoolState,
)
from edge_sdk.methods.secret.over_hospitals.pool_sums import added, nothing_of, shares, together
from edge_sdk.methods.secret.to_aggregator import aggregator
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.membership.changing import as_they_came

TOGETHER = "all hospitals together"


def around(inner: Role, plan: SecretPlan) -> Role:
    """The aggregator's role around that of the method, with secret sums inside."""
    secret = aggregator.around(inner, plan)
    pools = PoolAggregator(inner, secret, plan)
    kind = state_around(PoolState, secret.state)
    return Role(pools.start, pools.receive, pools.close, kind, pools.refuse, passed_in(secret.renew))


@dataclass(frozen=True)
class PoolAggregator:
    """The functions of the aggregator's role in a run with sums over hospitals.

    Attributes:
        inner: the method's own role.
        secret: the one that opens secret sums, around it.
        plan: what does not change in the run.
    """

    inner: Role
    secret: Role
    plan: SecretPlan

    def start(self, env: NodeEnv) -> Step:
        if len(env.sizes) < self.plan.hospitals:
            found = f"there are {len(env.sizes)}"
            raise UsageError(f"sums are made of {self.plan.hospitals} hospitals (run.uploads.hospitals): {found}")
        state, sends = self.secret.start(env)
        return state_around(PoolState, self.secret.state)(state), sends

    def receive(self, env: NodeEnv, s: PoolState, sender: str, m: Any) -> Step:
        try:
            if isinstance(m, PoolReady):
                return noted(env, self.plan, s, sender, m), []
            if isinstance(m, MaskedSum):
                return summed(env, self.plan, s, sender, m), []
        except PeerError as error:
            return self.refuse(env, s, sender, str(error))
        if s.number and sender != ME and says_nothing(m):
            return s, []  # it has had a sum, and does not send it
        return inside(s, self.secret.receive(env, s.inner, sender, m))

    def close(self, env: NodeEnv, s: PoolState) -> Step:
        if s.ready and not s.number and not too_few(self.plan, s):
            members = together(s)
            return replace(s, number=env.asked + 1), [Send(members, ask(s, members), all=True)]
        s, told = self.deliver(env, s) if s.ready else (s, [])
        s, sends = inside(s, self.secret.close(env, s.inner))
        return s, [*told, *sends]

    def refuse(self, env: NodeEnv, s: PoolState, sender: str, why: str) -> Step:
        assert self.secret.refuse is not None
        return inside(s, self.secret.refuse(env, s.inner, sender, why))

    def deliver(self, env: NodeEnv, s: PoolState) -> Step:
        """The state after the method was given what came of the sums, of which nothing is kept here; also of those of
        hospitals that have left since."""
        told, parts = list[Send](), dict[str, Any]()
        env = as_they_came(env, {h: ready.devices for h, ready in s.ready.items() if h not in env.sizes})
        env_then, cleared = replace(env, asked=s.inner.ticket), replace(s, ready={}, sums={}, number=0)
        nothing = {h: nothing_of(self.plan, ready.form) for h, ready in sorted(s.ready.items())}
        try:
            cleared, parts = self.open(env_then, cleared, s)
        except PeerError as error:
            told, parts = [not_opened(s, str(error))], nothing
        if not parts:
            told, parts = [Send(OUT, too_few(self.plan, s) or not_pooled(self.plan, s))], nothing
        try:
            return self.give(env, cleared, parts, told)
        except PeerError as error:
            return self.give(env, cleared, nothing, [not_opened(s, str(error))])

    def open(self, env: NodeEnv, cleared: PoolState, s: PoolState) -> tuple[PoolState, dict[str, Any]]:
        """Open the sum over all members, and deal it out; nothing, if it was not asked for or a member's is missing.

        Raises:
            PeerError: a rule forbids it, or the masks do not open it.
        """
        members = together(s)
        if not s.number or set(members) != set(s.sums):
            return cleared, {}
        counts = {h: len(s.sums[h].names) for h in members}
        whole = replace(env, sizes={TOGETHER: sum(env.sizes.get(h, 0) for h in members)})
        state, message = aggregator.opened(whole, self.plan, s.inner, TOGETHER, added(self.plan, s.sums))
        return replace(cleared, inner=state), dict(shares(self.plan, s.ready[members[0]].form, message, counts))

    def give(self, env: NodeEnv, s: PoolState, parts: Mapping[str, Any], told: Sequence[Send]) -> Step:
        """The state after the method has heard each part, as its hospital's answer.

        Raises:
            PeerError: it cannot be one.
        """
        lead, whole = next(iter(parts)), sum(env.sizes.get(h, 0) for h in parts)
        why, told = "", list(told)
        for h, part in parts.items():
            own = env if isinstance(part, Integers) else replace(env, sizes={**env.sizes, lead: whole})
            state, sends = self.inner.receive(own, s.inner.inner, h, part)
            if refusals := [send.message for send in sends if isinstance(send.message, Refused)]:
                why = refusals[0].reason
                state, sends = unblamed(s.inner.inner, state, sends)
            s = replace(s, inner=replace(s.inner, inner=state))
            told += sends
        return s, [*told, Send(OUT, NotOpened(tuple(parts), why))] if why else told


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


def ask(s: PoolState, members: tuple[str, ...]) -> PoolQuestion:
    """The question for the sums of these hospitals."""
    nonces = np.concatenate([s.ready[h].nonce for h in members])
    return PoolQuestion(s.inner.ticket, members, nonces, tuple(s.ready[h].devices for h in members))


def not_opened(s: PoolState, why: str) -> Send:
    return Send(OUT, NotOpened(together(s), why))


def not_pooled(plan: SecretPlan, s: PoolState) -> NotPooled:
    missing = tuple(h for h in together(s) if h not in s.sums)
    return NotPooled(tuple(sorted(s.ready)), missing, plan.hospitals)


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
