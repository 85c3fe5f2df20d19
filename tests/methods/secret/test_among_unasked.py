"""Messages of an exchange that a hospital did not ask for: every type, at every moment, of every kind of sender."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation.neighbours import neighbours
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.among_devices.among_opening import held_by
from edge_sdk.methods.secret.among_devices.among_states import CONFIRMING, COVERING, DEALING, OFFERING, REVEALING
from edge_sdk.methods.secret.messages.among_messages import (
    Confirmed,
    Covered,
    Dealt,
    KeysOffer,
    Revealed,
    Withdrawn,
    to_octets,
)
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from edge_sdk.nodes.configuration.assembly import method_of
from tests.methods.problems import DEVICES, told
from tests.methods.secret.among import CALM, among_run, answering, played
from tests.methods.secret.test_among import WAITING

RUN = among_run(rounds=1)
STAGE_OF = {KeysOffer: OFFERING, Dealt: DEALING, Covered: COVERING, Confirmed: CONFIRMING, Revealed: REVEALING}
BY_DEVICE = ("offers", "dealt", "committed", "confirmed", "revealed", "disputed")
MISSING = [
    {"d5": KeysOffer, "d4": Dealt, "d0": Confirmed},
    {"d5": Dealt, "d4": Covered, "d0": Confirmed, "d1": Revealed},
]
"""Device -> the step from which on it says nothing."""
STRANGER = "x"


class Moments:
    """A hospital in one exchange: before each message of a device its env and state, the messages that came, and what
    devices know."""

    def __init__(self, missing):
        self.states, self.came, self.secrets, method = [], {}, {}, method_of(RUN)
        self.hospital = method.hospital

        def notes_states(env, s, sender, m):
            if sender in DEVICES and s.ticket == 1:
                self.states.append((env, s))
                self.came.setdefault(type(m), {})[sender] = m
            return method.hospital.receive(env, s, sender, m)

        def notes_secrets(env, s, sender, m):
            if getattr(m, "ticket", 0) == 1:
                done = method.device.receive(env, s, sender, m)
                self.secrets[env.me] = env.secrets.now
                return done
            return method.device.receive(env, s, sender, m)

        roles = {tier: getattr(method, tier) for tier in ("hospital", "device")}
        noting = replace(method, hospital=replace(roles["hospital"], receive=notes_states))
        noting = replace(noting, device=replace(roles["device"], receive=notes_secrets))
        silent = answering(lambda name, _, m: None if isinstance(m, missing.get(name, ())) else m)(noting)
        played(RUN, silent, faults=CALM, policies=WAITING)

    def messages(self, s, sender):
        """Messages of each type: the sender's own where it has sent one, another's, and what nobody has sent."""
        for of in self.came.values():
            yield from (of[name] for name in sorted({sender, "d1", "d2"} & {*of}))
        some = self.came[Covered]["d2"]
        yield from (replace(some, words=some.words[1:]), replace(some, disputed=np.array([255], np.uint8)))
        yield from (Dealt(np.zeros(0, np.uint8)), Confirmed(np.zeros(0, np.uint8)), Revealed(np.zeros(0, np.uint8)))
        yield from (Withdrawn(), Nobody())
        if sender in s.dealt and s.stage == REVEALING:
            yield self.true_shares(s, sender)

    def true_shares(self, s, sender):
        """What a device would tell that is asked for its shares."""
        now, graph = self.secrets[sender], neighbours(s.names, s.roster.digest())
        told = {peer: pair[0 if peer in s.members else 1] for peer, pair in now.shares.items()} | {sender: now.own}
        return Revealed(to_octets([told[peer] for peer in held_by(s, graph, sender)]))


moments = cache(lambda which: Moments(MISSING[which]))


def asked_before(s, kind):
    """Whom the step before has heard. Who is asked first the round knows (contract/round.py)."""
    first = (*DEVICES, STRANGER)
    return {KeysOffer: first, Dealt: s.offers, Covered: s.dealt, Confirmed: s.members, Revealed: s.confirmed}[kind]


def heard(s, kind):
    return {KeysOffer: s.offers, Dealt: s.dealt, Covered: s.members, Confirmed: s.confirmed, Revealed: s.revealed}[kind]


def is_taken(s, after, sender, m):
    """True if the message counts. What others have sent is as it was, and what the sender had sent before."""
    for name in BY_DEVICE:
        before, now = getattr(s, name), getattr(after, name)
        assert {*before} <= {*now} <= {*before, sender}
        assert all(now[device] is before[device] for device in before)
    assert {*s.members} <= {*after.members} <= {*s.members, sender}
    if after.members == s.members:
        assert after.steps is s.steps and after.words is s.words
    return type(m) in STAGE_OF and sender in heard(after, type(m)) and sender not in heard(s, type(m))


@pytest.mark.parametrize("which", range(len(MISSING)))
@pytest.mark.parametrize("sender", [*DEVICES, STRANGER])
def test_a_device_counts_once_and_only_where_it_was_asked(sender, which):
    taken, found = 0, moments(which)
    assert {s.stage for _, s in found.states} == {*STAGE_OF.values()}
    for env, s in found.states:
        for m in found.messages(s, sender):
            try:
                after, _ = found.hospital.receive(env, s, sender, m)
            except PeerError:
                continue
            assert not (isinstance(m, Nobody) and sender in s.offers)
            if is_taken(s, after, sender, m):
                taken += 1
                assert STAGE_OF[type(m)] == s.stage and sender in asked_before(s, type(m))
    assert taken


@pytest.mark.parametrize("kind", STAGE_OF)
def test_what_a_device_sends_twice_does_not_come_to_the_hospitals_role(kind):
    """Its debt is paid (contract/round.py): the rules above are a second lock."""
    method = method_of(RUN)

    def twice(env, s, sender, m):
        state, sends = method.device.receive(env, s, sender, m)
        again = [send for send in sends if env.me == "d1" and send.to == UP and isinstance(send.message, kind)]
        return state, [*sends, *again]

    _, transcript = played(RUN, replace(method, device=replace(method.device, receive=twice)), faults=CALM)
    assert [p.devices for p in told(transcript, Progress)] == [6]
    reasons = [why for _, sender, why in transcript.refused if sender == "d1"]
    assert reasons and all("d1 owes nothing" in why or "d1 answers question" in why for why in reasons)
