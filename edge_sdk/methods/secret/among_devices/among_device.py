"""A device that hides its answer from hospital and aggregator together, and helps to open the sum of many.

    hospital asks                KeysOffer: there is an answer, and fresh keys for it
    Participants: who has one    Dealt: shares of two secrets, sealed for each neighbour
    PassedShares: of others      Covered: the answer, its own mask, and one shared with each neighbour who dealt
    Survivors: whose came        Confirmed: a word to each neighbour among these that it was shown the same
    Agreement: such words        Revealed: of each neighbour a share: a survivor's own mask, or a missing one's key

Masks shared by two survivors cancel in the sum; what is left follows from what is revealed. A device tells of nobody
both shares, of a set that is not large enough, not in one piece or not the one that its neighbours were shown nothing,
and of its answer nothing but one sum. All of that is in the memory of one process
(nodes/secrets/secret_sharing.py), and a device that was restarted has withdrawn.

To one question a device gives one masked answer, ever. So the sums of a question that are opened have no device in
common, and nobody can make of several of them what is about fewer devices than one of them. A rule about how much two
sets of survivors may have in common would not do: three sets that differ by many devices, pair by pair, can still be
added and subtracted to one device's answer, and no device is in all three of them. What it has answered is in the
role's state, so it is saved with the answer, in one transaction.

Sources: K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017 (the
exchange); J. H. Bell et al., CCS 2020 (neighbours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.neighbours import is_in_one_piece, neighbours, threshold
from edge_sdk.contract.environment.sharing import COMMITTED, PUBLIC, SEALED, TAG, SecretKeeper
from edge_sdk.contract.method import OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import state_around
from edge_sdk.errors import UsageError
from edge_sdk.methods.secret.among_devices.among_states import AmongDeviceState
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    KeysOffer,
    Participants,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
    Withheld,
    from_bits,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.messages.messages import NumberedQuestion
from edge_sdk.methods.secret.messages.plan import SecretPlan, says_nothing
from edge_sdk.methods.secret.to_aggregator.device import permitted, unmasked

LOST = "the device was started again meanwhile, and has kept no secret"
TWICE = "it has given an answer to this question before, or to a later one of its kind"
TOO_FEW = "fewer devices are left than a sum is made of"
Graph = Mapping[str, Sequence[str]]
"""Device -> its neighbours; all devices of the roster, sorted."""


def around(inner: Role, plan: SecretPlan) -> Role:
    """The device's role around the method's."""
    around_it = state_around(AmongDeviceState, inner.state)

    def start(env: NodeEnv) -> Step:
        if env.secrets is None:
            raise UsageError("devices open the sums of this run among themselves, and this one has no keys for that")
        state, sends = inner.start(env)
        return around_it(state), unmasked(sends)

    def receive(env: NodeEnv, s: AmongDeviceState, sender: str, m: Any) -> Step:
        if isinstance(m, Participants | PassedShares | Survivors | Agreement):
            return answered(env, plan, s, m)
        question = m.question if isinstance(m, NumberedQuestion) else m
        state, sends = inner.receive(env, s.inner, sender, question)
        s = replace(s, inner=state)
        if not isinstance(m, NumberedQuestion):
            return s, unmasked(sends)
        found = [offered(env, plan, m, send) for send in sends]
        if any(isinstance(send.message, KeysOffer) for send in found):
            s = replace(s, ticket=m.ticket, kind=m.wrapped_kind, turn=m.turn, given=False)
        return s, found

    def close(env: NodeEnv, s: AmongDeviceState) -> Step:
        state, sends = inner.close(env, s.inner)
        return replace(s, inner=state), unmasked(sends)

    return Role(start, receive, close, around_it)


def keeper_of(env: NodeEnv) -> SecretKeeper:
    assert env.secrets is not None  # looked at when the role was started
    return env.secrets


def offered(env: NodeEnv, plan: SecretPlan, m: NumberedQuestion, send: Send) -> Send:
    """What the role inside sends, or, in place of an answer, the word that there is one."""
    if send.to != UP or says_nothing(send.message):
        return send
    kind = plan.kinds.get(type(send.message))
    if kind is None:
        raise ValueError(f"{type(send.message).__name__} is no answer that can be masked")
    message = permitted(env, send.message)
    form = kind.form(env, message)
    flat = kind.flatten(form, message)
    public = keeper_of(env).begin(m.ticket, flat.steps, flat.words)
    return Send(UP, KeysOffer(form, np.frombuffer(public, np.uint8)))


def answered(env: NodeEnv, plan: SecretPlan, s: AmongDeviceState, m: Any) -> Step:
    """The answer to a question of the exchange; where there must be none, that the device has withdrawn, and why."""
    try:
        if isinstance(m, Participants):
            check_first(env, s, m.ticket)
            return s, [Send(UP, dealt(env, plan, m))]
        graph = graph_of(keeper_of(env), m.ticket)
        if isinstance(m, PassedShares):
            check_first(env, s, m.ticket)
            answer = covered(env, plan, graph, m)
            return replace(s, given=True, answered={**s.answered, s.kind: s.turn}), [Send(UP, answer)]
        return s, [Send(UP, confirmed(env, plan, graph, m) if isinstance(m, Survivors) else revealed(env, graph, m))]
    except (ValueError, UsageError) as why:  # also a file of keys that was spoilt since it was last read
        return s, [Send(UP, Withdrawn()), Send(OUT, Withheld(m.ticket, str(why)))]


def check_first(env: NodeEnv, s: AmongDeviceState, ticket: int) -> None:
    """Raises ValueError where an answer to this question was given in another exchange, or it is none of this run."""
    if s.ticket != ticket:
        raise ValueError(LOST)
    if s.was_answered:
        raise ValueError(TWICE)
    if not 0 <= s.turn <= 2 * (env.rounds + 1) + 1:
        raise ValueError(f"a question of round {s.turn // 2 - 1}, and the run has {env.rounds}")


def graph_of(keeper: SecretKeeper, ticket: int) -> Graph:
    """Device -> its neighbours. Raises ValueError where nothing is known of the exchange."""
    found = keeper.exchange(ticket)
    if found is None:
        raise ValueError(LOST)
    about, roster = found
    return neighbours(tuple(roster), about)


def dealt(env: NodeEnv, plan: SecretPlan, m: Participants) -> Dealt:
    keeper, roster = keeper_of(env), pieces(m.publics, PUBLIC, m.names)
    if len(roster) < plan.cohort:
        raise ValueError(TOO_FEW)
    if strangers := [name for name in keeper.strangers(m.names) if name != env.me]:
        raise ValueError(f"there is no key of {', '.join(strangers[:5])} on file, of {len(strangers)} in all")
    peers = neighbours(m.names, m.digest()).get(env.me, ())
    sealed = keeper.deal(m.ticket, m.digest(), env.me, roster, peers, threshold(len(roster)))
    if sealed is None:
        raise ValueError(LOST)
    committed = keeper.commitments(m.ticket)
    return Dealt(to_octets([sealed[peer] for peer in peers]), to_octets([committed[h] for h in sorted(committed)]))


def covered(env: NodeEnv, plan: SecretPlan, graph: Graph, m: PassedShares) -> Covered:
    dealers = from_bits(tuple(graph), m.dealers)
    check_enough(env, plan, graph, dealers)
    mine = [peer for peer in graph[env.me] if peer in dealers]
    sealed, committed = pieces(m.sealed, SEALED, mine), pieces(m.commitments, COMMITTED, mine)
    found = keeper_of(env).cover(m.ticket, sealed, committed, m.width)
    if found is None:
        raise ValueError("too many neighbours' shares are false, or the answer was given already")
    steps, words, disputed = found
    return Covered(rounding.pack(steps, m.width), words, to_bits(tuple(graph), disputed))


def confirmed(env: NodeEnv, plan: SecretPlan, graph: Graph, m: Survivors) -> Confirmed:
    members = from_bits(tuple(graph), m.members)
    check_enough(env, plan, graph, members)
    if not is_in_one_piece(graph, members):
        raise ValueError("the devices in the sum have fallen apart into groups, of which each would have a sum")
    peers = [peer for peer in graph[env.me] if peer in members]
    words = keeper_of(env).confirm(m.ticket, members, peers)
    if words is None:
        raise ValueError("another sum was confirmed before, or this device is in none")
    return Confirmed(to_octets([words[peer] for peer in peers]))


def revealed(env: NodeEnv, graph: Graph, m: Agreement) -> Revealed:
    senders = from_bits(tuple(graph), m.senders)
    words = pieces(m.words, TAG, [peer for peer in graph[env.me] if peer in senders])
    shares = keeper_of(env).reveal(m.ticket, words, threshold(len(graph)))
    if shares is None:
        raise ValueError("too few neighbours were shown the same survivors")
    return Revealed(to_octets([shares[name] for name in sorted(shares)]))


def check_enough(env: NodeEnv, plan: SecretPlan, graph: Graph, names: Sequence[str]) -> None:
    """Raises ValueError for a sum without this device, or with too few in all or of those who hold its shares."""
    if env.me not in names:
        raise ValueError("the sum is to be opened without this device's answer")
    if len(names) < plan.cohort or 1 + len({*graph[env.me]} & {*names}) < threshold(len(graph)):
        raise ValueError(TOO_FEW)
