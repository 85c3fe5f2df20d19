"""A device that lies among others: it is named for what can be seen of it, left out in the end, and the rest go on."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.environment.sharing import COMMITTED, PUBLIC, SEALED
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.among_messages import (
    FALSE,
    FEW,
    Covered,
    Dealt,
    Disputed,
    KeysOffer,
    NoneOpened,
    PassedShares,
    Revealed,
)
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets
from tests.methods.problems import DEVICES, told
from tests.methods.secret.among import CALM, PEERS, among_envs, among_run, answering, played
from tests.methods.secret.parties import KEYS

ROUNDS, LIAR = 6, "d1"
RUN = among_run(rounds=ROUNDS)
WAITING = {"aggregator": Policy(quorum=1), "hospital": Policy(deadline=20.0)}


class OtherKey(DeviceSecrets):
    """It deals out shares of a key that it has not offered."""

    def split(self, secret, places):
        false = secret == self.now.mask.private_bytes_raw()
        return super().split(secret[::-1] if false else secret, places)


class TwoSecrets(DeviceSecrets):
    """It deals out shares of two secrets as if they were of one."""

    def split(self, secret, places):
        places = [*places]
        one, other = super().split(secret, places), super().split(secret[::-1], places)
        return one | {place: other[place] for place in places[::2]}


def excusing(method):
    """The method, whose hospitals refuse who has sent what is of no use, as a node does (delivery/roles/engine.py)."""
    role = method.hospital

    def receive(env, s, sender, m):
        try:
            return role.receive(env, s, sender, m)
        except PeerError as why:
            return role.refuse(env, s, sender, str(why))

    return replace(method, hospital=replace(role, receive=receive))


def outcome(lie, keeper=DeviceSecrets):
    """Counted devices of each round, and the names of those refused and suspended. `keeper`: of the liar's secrets."""

    def change(name, question, message):
        return lie(message) if name == LIAR else message

    envs = among_envs(RUN)
    envs[LIAR] = replace(envs[LIAR], secrets=keeper(KEYS[LIAR], lambda: PEERS, "r"))
    envs["h0"] = replace(envs["h0"], limits=Limits(suspend_after=2))
    method = excusing(answering(change)(method_of(RUN)))
    _, transcript = played(RUN, method, policies=WAITING, faults=CALM, envs=envs)
    counts = [p.devices for p in told(transcript, Progress)]
    return counts, told(transcript, Refused, "h0"), told(transcript, Suspended, "h0"), transcript


def flipped(octets, first=0, last=None):
    """The bytes with one bit of each of a part of them changed."""
    found = octets.copy()
    found[first:last] ^= 1
    return found


def changed(kind, **fields):
    """The lie that changes fields of one type of message."""
    return lambda m: replace(m, **{f: g(getattr(m, f)) for f, g in fields.items()}) if isinstance(m, kind) else m


FALSE_SHARES = changed(Revealed, shares=flipped)
FALSE_SEALS = changed(Dealt, sealed=lambda octets: flipped(octets, 0, 3 * SEALED))
FALSE_WORD = changed(Dealt, commitments=lambda octets: flipped(octets, 0, 4 * COMMITTED))
NO_KEYS = changed(KeysOffer, public=lambda octets: np.zeros(PUBLIC, np.uint8))


def accusing(m):
    """It disputes what all others have dealt, and tells no share but its own."""
    if isinstance(m, Covered):
        return replace(m, disputed=np.packbits([d != LIAR for d in DEVICES]))
    at = SHARE * DEVICES.index(LIAR)
    return replace(m, shares=m.shares[at : at + SHARE]) if isinstance(m, Revealed) else m


@pytest.mark.parametrize(
    ("lie", "why", "before"),
    [
        (FALSE_SHARES, "is not the one that it was dealt", 6),
        (accusing, "it says that shares are false, of 5 of 5", 6),
        (NO_KEYS, "share nothing with anybody's", 5),
        (FALSE_SEALS, "its shares are false, say 3 of 5", 0),
        (FALSE_WORD, "its shares are false, say", 0),
    ],
)
def test_a_liar_is_named_and_suspended_and_the_others_go_on(lie, why, before):
    """Twice refused, then left out. Until then its lie costs nothing, or the round, as so few can do without it."""
    counts, refused, suspended, _ = outcome(lie)
    assert {m.sender for m in refused} == {LIAR} and len(refused) == 2 and why in refused[0].reason
    assert [m.sender for m in suspended] == [LIAR]
    assert counts == [before, before, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("keeper", "lie", "why"),
    [
        (OtherKey, lambda m: None if isinstance(m, Covered) else m, "the key that it has dealt out is not the one"),
        (TwoSecrets, lambda m: m, "the shares that it has dealt out are not of one secret"),
    ],
)
def test_who_has_dealt_out_what_opens_nothing_is_named_and_suspended(keeper, lie, why):
    """Its commitments are to what it has dealt, so all others tell true shares, and no sum can be opened with them. A
    key is told of who is missing, so the first liar is missing in each round."""
    counts, refused, suspended, transcript = outcome(lie, keeper)
    assert {m.sender for m in refused} == {LIAR} and len(refused) == 2 and why in refused[0].reason
    assert [m.sender for m in suspended] == [LIAR] and {m.why for m in told(transcript, NoneOpened)} == {FALSE}
    assert counts == [0, 0, 5, 5, 5, 5]


# Of a version that knew no commitments -------------------------------------------------------------------------
EARLIER = changed(Dealt, commitments=lambda octets: octets[:0])


def test_a_device_of_an_earlier_version_is_left_out_and_the_others_go_on():
    """Nobody could say if it tells true shares. It is refused, and suspended like others that are refused in a row."""
    counts, refused, suspended, _ = outcome(EARLIER)
    assert counts == [5] * ROUNDS and {m.sender for m in refused} == {LIAR}
    assert "0 bytes for 6 devices, 64 each" in refused[0].reason and [m.sender for m in suspended] == [LIAR]


def test_a_hospital_of_an_earlier_version_has_no_sums():
    """It passes no commitments on, and devices of this version send nothing masked then."""
    method = method_of(RUN)

    def receive(env, s, sender, m):
        return method.device.receive(env, s, sender, changed(PassedShares, commitments=lambda octets: octets[:0])(m))

    new = replace(method, device=replace(method.device, receive=receive))
    _, transcript = played(RUN, new, policies=WAITING, faults=CALM, envs=among_envs(RUN))
    assert not any(isinstance(m, Covered) for _, _, m in transcript.crossed)
    assert {m.devices for m in told(transcript, Progress)} == {0}
    assert {m.why for m in told(transcript, NoneOpened)} == {FEW}


# What a hospital cannot see -------------------------------------------------------------------------------------
def test_one_pair_in_dispute_costs_nothing_and_nobody_is_blamed():
    """One of the two lies, and the hospital cannot see which; its application hears of both."""
    counts, refused, _, transcript = outcome(changed(Dealt, sealed=lambda octets: flipped(octets, 0, SEALED)))
    assert counts == [6] * ROUNDS and not refused
    found = told(transcript, Disputed, "h0")
    assert {(m.dealer, m.holder) for m in found} == {(LIAR, "d0")}
    assert "one of the two lies" in found[0].to_sentence() and found[0].to_metrics()["kind"] == "disputed"


TWO = changed(Covered, disputed=lambda _: np.packbits([True, False]))
"""Of two devices d1 says that d0 has dealt falsely."""


@pytest.mark.parametrize(("lie", "why"), [(TWO, FALSE), (changed(Dealt, sealed=flipped), FEW)])
def test_of_two_devices_in_dispute_none_is_blamed(lie, why):
    """A hospital of two can miss neither, so there is no sum, and nobody else to tell which of them lies. Who was dealt
    what is false withdraws; who only says so is in a dispute that both would be blamed for."""
    run, tree = among_run(rounds=2, uploads={"cohort": 2}), {"h0": ("d0", "d1")}
    liar = answering(lambda name, _, m: lie(m) if name == LIAR else m)(method_of(run))
    _, transcript = played(run, liar, policies=WAITING, faults=CALM, envs=among_envs(run, tree), tree=tree)
    assert not told(transcript, Refused, "h0") and {m.why for m in told(transcript, NoneOpened)} == {why}
    disputes = {(m.dealer, m.holder) for m in told(transcript, Disputed, "h0")}
    assert disputes == ({("d0", LIAR)} if lie is TWO else set())


def test_an_answer_that_does_not_fit_its_masks_voids_the_sum_and_is_nobodys():
    """What is under masks nobody can look at, so no one is blamed for it, and none is taken for it."""
    counts, refused, suspended, transcript = outcome(changed(Covered, words=lambda words: words + np.uint64(1)))
    assert counts == [0] * ROUNDS and not refused and not suspended
    assert {m.why for m in told(transcript, NoneOpened)} == {FALSE}
