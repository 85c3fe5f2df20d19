"""Sums that devices open among themselves: the same as in the clear to the bit, whoever stays away, or none at all."""

from dataclasses import replace
from functools import cache

import pytest

from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.contract.method import Role
from edge_sdk.contract.round import Policy
from edge_sdk.methods.secret.messages.among_messages import (
    FEW,
    SPLIT,
    UNSHARED,
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    KeysOffer,
    NoneOpened,
    Participants,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
    pieces,
)
from edge_sdk.methods.secret.messages.messages import NumberedQuestion
from edge_sdk.methods.shared.evaluation import evaluation
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets.secret_sharing import ToldMasks
from tests.methods import contract
from tests.methods.contract import fingerprint
from tests.methods.problems import DEVICES, told
from tests.methods.secret.among import CALM, among_run, answering, keeper_of, played

STEPS = (KeysOffer, Dealt, Covered, Confirmed, Revealed)
WAITING = {"aggregator": Policy(quorum=1), "hospital": Policy(deadline=20.0)}


def outcome(net, transcript):
    """All that the aggregator ends with, and all that it told its application, but for sums that there are not."""
    state = net.nodes["aggregator"].record.state
    events = [m for who, m in transcript.told if who == "aggregator" and not isinstance(m, NoneOpened)]
    return fingerprint([state, sorted(map(fingerprint, events))])


CASES = [("fedavg", {}), ("fedslr", {"evaluate_every": 2, "settle": {"steps": [0, 5], "local_steps": [5]}})]
LONG = [pytest.param(name, {"evaluate_every": 2}, marks=pytest.mark.long) for name in ("scaffold", "augfl", "feddyn")]


@pytest.mark.parametrize(("method", "more"), [*CASES, *LONG])
def test_it_is_the_same_as_in_the_clear_to_the_bit(method, more, monkeypatch):
    monkeypatch.setattr(evaluation, "judge_personal", lambda *_: {})  # facts that are never masked
    pairs = [played(among_run(method, clear=clear, **more)) for clear in (False, True)]
    assert outcome(*pairs[0]) == outcome(*pairs[1])
    kinds = [type(m) for a, _, m in pairs[0][1].crossed if a in DEVICES]
    assert all(kinds.count(kind) >= 4 * len(DEVICES) for kind in STEPS)


# Who stays away -------------------------------------------------------------------------------------------------
def second_round(question):
    """True for questions of the second round: each has five of the hospital's."""
    if isinstance(question, NumberedQuestion) or hasattr(question, "ticket"):
        return question.ticket == 6
    return question.round == 1


def without(devices, step, instead=None):
    """The change by which these devices do not answer a step of the second round, or withdraw."""

    def change(name, question, message):
        if name in devices and second_round(question) and isinstance(message, step):
            return instead
        return message

    return answering(change)


@cache
def clear_without(devices):
    run = among_run(clear=True, rounds=3)

    def change(name, question, message):
        return None if name in devices and question.round == 1 else message

    return outcome(*played(run, answering(change)(method_of(run)), policies=WAITING))


RUN = among_run(rounds=3)
METHOD = method_of(RUN)


def missing(devices, step, instead=None, faults=CALM):
    return played(RUN, without(devices, step, instead)(METHOD), policies=WAITING, faults=faults)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("instead", [None, pytest.param(Withdrawn(), marks=pytest.mark.long)])
def test_who_is_missing_at_a_step_costs_at_most_its_own_answer(step, instead):
    if step is KeysOffer and instead:
        instead = None  # before it has offered anything, a device has nothing to withdraw
    net, transcript = missing(("d1", "d4"), step, instead)
    gone = ("d1", "d4") if step in (KeysOffer, Dealt, Covered) else ()
    assert outcome(net, transcript) == clear_without(gone)
    assert not told(transcript, NoneOpened)


VOID = [
    (("d0", "d1", "d2", "d4"), KeysOffer, FEW, 2),
    (("d0", "d1", "d2"), Dealt, SPLIT, 6),
    (("d0", "d1", "d2", "d3"), Dealt, FEW, 6),
    (("d0", "d1", "d2"), Covered, SPLIT, 6),
    (("d0", "d1", "d2"), Confirmed, UNSHARED, 6),
    (("d0", "d1", "d2"), Revealed, UNSHARED, 6),
    (DEVICES, Confirmed, UNSHARED, 6),
]


@pytest.mark.parametrize(("devices", "step", "why", "had"), VOID)
def test_where_too_many_are_missing_there_is_no_sum_and_the_reason_is_told(devices, step, why, had):
    net, transcript = missing(devices, step)
    expected = NoneOpened("h0", had, why)
    assert told(transcript, NoneOpened) == told(transcript, NoneOpened, "h0") == [expected]
    assert outcome(net, transcript) == clear_without(DEVICES)


def test_a_census_that_failed_after_it_was_answered_is_not_answered_again():
    """It has no round, so it is always the same question: exact counts, of which two sums would tell a device's."""
    method = answering(lambda name, _, m: None if isinstance(m, Confirmed) and name in DEVICES[:3] else m)
    run = among_run("augfl", rounds=3)
    _, transcript = played(run, method(method_of(run)), policies=WAITING, faults=CALM)
    assert [m.why for m in told(transcript, NoneOpened, "h0")][:3] == [UNSHARED, FEW, FEW], "and an evaluation"
    assert [m.devices for m in told(transcript, evaluation.Progress)] == [0, 0, 0]


QUESTIONS = (NumberedQuestion, Participants, PassedShares, Survivors, Agreement)


def killed(step, told):
    """The method, in which d1 dies in the second round with its answer to a step worked out and nothing saved; what is
    on its disk is worked on by another process. `told`: (device that tells, keys, whose) -> which shares these are."""
    keepers = {}

    def receive(env, s, sender, m):
        env = replace(env, secrets=keepers.setdefault(env.me, env.secrets))
        if env.me == "d1" and isinstance(m, step) and second_round(m):
            METHOD.device.receive(env, s, sender, m)
            keepers["d1"] = keeper_of("d1")
            env = replace(env, secrets=keepers["d1"])
        done = METHOD.device.receive(env, s, sender, m)
        note(told, env, done[1])
        return done

    return replace(METHOD, device=replace(METHOD.device, receive=receive))


def note(told, env, sends):
    now = env.secrets.now
    for m in (send.message for send in sends if isinstance(send.message, Revealed)):
        shares = pieces(m.shares, SHARE, sorted({env.me, *now.shares}))
        for d, pair in now.shares.items():
            told.setdefault((env.me, now.public(), d), set()).add(pair.index(shares[d]))


@pytest.mark.parametrize("step", QUESTIONS)
def test_a_kill_costs_at_most_one_answer_and_makes_nobody_tell_more(step):
    told_shares = {}
    net, transcript = played(RUN, killed(step, told_shares), faults=CALM)
    gone = ("d1",) if step in (Participants, PassedShares) else ()
    assert outcome(net, transcript) == clear_without(gone)
    assert {len(which) for which in told_shares.values()} == {1} and len(told_shares) > 60
    assert {1 in which for which in told_shares.values()} == ({True, False} if step is PassedShares else {False})


# The contract of methods ----------------------------------------------------------------------------------------
def keyed(method):
    """The method, whose devices and hospitals have their keepers and readers whatever env they are given."""
    keepers = {}

    def role(inner):
        def keyed_call(f):
            return lambda env, *more: f(with_keys(env), *more)

        def with_keys(env):
            own = {"reader": ToldMasks()} if env.me.startswith("h") else {}
            if env.me in DEVICES:
                own = {"secrets": keepers.setdefault(env.me, keeper_of(env.me))}
            return replace(env, outputs=2, **own)

        calls = {name: keyed_call(getattr(inner, name)) for name in ("start", "receive", "close")}
        return Role(**calls, state=inner.state, refuse=inner.refuse)

    return replace(method, **{tier: role(getattr(method, tier)) for tier in ("device", "hospital", "aggregator")})


FRESH = (contract.replays, contract.an_interrupted_round_is_dropped)
"""Checks that call a device's role twice, which draws other keys each time."""
USUAL = [("fedavg", contract.survives_the_codec)]
MORE = [(n, c) for n in ("fedavg", "fedslr") for c in contract.CHECKS if c not in FRESH and (n, c) not in USUAL]


@pytest.mark.parametrize(("name", "check"), [*USUAL, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)])
def test_contract(name, check):
    """On a tree with a hospital of three devices, one of two and one of a single device, which has no sum."""
    run = among_run(name, evaluate_every=3, uploads={"cohort": 2})
    check(keyed(method_of(run)), settings_of(run))
