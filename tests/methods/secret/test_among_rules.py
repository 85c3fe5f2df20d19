"""What a hospital could ask of devices to have more opened than one sum of many, and why they do not answer."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.shamir import SHARE
from edge_sdk.contract.method import OUT, UP
from edge_sdk.contract.sharing import PUBLIC, SEALED, TAG
from edge_sdk.errors import UsageError
from edge_sdk.methods.secret.among_messages import (
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    NoSum,
    Offer,
    Passed,
    Revealed,
    Roster,
    Survivors,
    Withdrawn,
    Withheld,
    from_bits,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.messages import NumberedQuestion
from edge_sdk.methods.secret.neighbours import threshold
from edge_sdk.methods.shared.gather import Nobody
from edge_sdk.nodes.assembly import method_of
from edge_sdk.nodes.sharing import DeviceSecrets
from tests.methods.problems import DEVICES, LAYOUT
from tests.methods.secret.among import CALM, PEERS, among_envs, among_run, keeper_of, played
from tests.methods.secret.parties import KEYS

RUN = among_run(rounds=2)
METHOD = method_of(RUN)
_, TRANSCRIPT = played(RUN, faults=CALM)
QUESTIONS = {b: m for _, b, m in reversed(TRANSCRIPT.crossed) if isinstance(m, NumberedQuestion)}  # the first of each
WIDTH = next(m.width for _, _, m in TRANSCRIPT.crossed if isinstance(m, Passed))
TICKET = QUESTIONS["d0"].ticket
ENOUGH = threshold(len(DEVICES))


class Fleet:
    """Six devices whose hospital is the test: it asks each of them whatever it likes."""

    def __init__(self):
        envs = among_envs(RUN)
        self.envs = {d: replace(envs[d], me=d) for d in DEVICES}
        self.states = {d: METHOD.device.start(env)[0] for d, env in self.envs.items()}
        self.why = []

    def ask(self, name, m):
        """The device's answer."""
        self.states[name], sends = METHOD.device.receive(self.envs[name], self.states[name], UP, m)
        self.why += [send.message.why for send in sends if send.to == OUT and isinstance(send.message, Withheld)]
        return next(send.message for send in sends if send.to == UP)

    def ask_all(self, make, names=DEVICES):
        return {name: self.ask(name, make(name)) for name in names}

    def restart(self, name):
        """A new process on the same disk, or on one that was put back: the state is what it was, and no secret is."""
        self.states[name] = copy.deepcopy(self.states[name])
        self.envs[name] = replace(self.envs[name], secrets=keeper_of(name))

    # An honest hospital's questions, which tests change
    def offers(self):
        self.roster = roster_of(self.ask_all(QUESTIONS.get))
        return self.roster

    def deals(self):
        self.dealt = {d: pieces(m.sealed, SEALED, others(d)) for d, m in self.ask_all(lambda d: self.roster).items()}
        return self.dealt

    def passed(self, name, dealers=DEVICES):
        sealed = to_octets([self.dealt[peer][name] for peer in others(name) if peer in dealers])
        return Passed(self.roster.ticket, WIDTH, to_bits(DEVICES, dealers), sealed)

    def survivors(self, members=DEVICES):
        return Survivors(self.roster.ticket, to_bits(DEVICES, members))

    def agreement(self, name, confirmed, members=DEVICES):
        """The words that some have said to one, of which each knows the members it was shown."""
        said = []
        for peer in others(name):
            if isinstance(m := confirmed.get(peer), Confirmed):
                said.append(pieces(m.words, TAG, [d for d in others(peer) if d in members]).get(name, bytes(TAG)))
        senders = [d for d in confirmed if isinstance(confirmed[d], Confirmed)]
        return Agreement(self.roster.ticket, to_bits(DEVICES, senders), to_octets(said))

    def upto(self, step):
        """Ask all of them honestly, up to and with a step."""
        for ask in ("offers", "deals", "covers", "confirms")[:step]:
            getattr(self, ask)()
        return self

    def covers(self):
        self.covered = self.ask_all(self.passed)
        return self.covered

    def confirms(self):
        self.confirmed = self.ask_all(lambda d: self.survivors())
        return self.confirmed


def fleet_offer(roster, name):
    """A device's offer, as the roster has it."""
    return Offer(roster.form, np.frombuffer(pieces(roster.publics, PUBLIC, roster.names)[name], np.uint8))


def roster_of(offers, like=DEVICES[-1]):
    publics = to_octets([m.public.tobytes() for m in offers.values()])
    return Roster(TICKET, offers[like].form, tuple(offers), publics)


def others(name):
    return [d for d in DEVICES if d != name]


# One answer, one sum ---------------------------------------------------------------------------------------------
def test_an_honest_hospital_is_told_what_opens_the_sum():
    fleet = Fleet().upto(4)
    told = fleet.ask_all(lambda d: fleet.agreement(d, fleet.confirmed))
    assert {type(m) for m in told.values()} == {Revealed} and not fleet.why
    assert all(m.shares.size == SHARE * len(DEVICES) for m in told.values())


def test_the_same_question_has_the_same_answer():
    fleet = Fleet().upto(4)
    assert all((fleet.ask("d0", fleet.roster).sealed == fleet.ask("d0", fleet.roster).sealed).tolist())
    again = fleet.ask("d0", fleet.passed("d0"))
    assert (again.steps == fleet.covered["d0"].steps).all() and (again.words == fleet.covered["d0"].words).all()
    assert (fleet.ask("d0", fleet.survivors()).words == fleet.confirmed["d0"].words).all()


def test_an_answer_is_masked_once():
    """Another set of dealers would be the same answer under other masks of two, and the difference these masks."""
    fleet = Fleet().upto(3)
    assert fleet.ask("d0", fleet.passed("d0", DEVICES[:5])) == Withdrawn()
    assert fleet.ask("d0", replace(fleet.passed("d0"), width=WIDTH + 1)) == Withdrawn()


def test_an_answer_that_is_worked_out_again_has_other_masks():
    """Asked the same question twice, a device draws new secrets, and can do nothing with those before."""
    fleet = Fleet().upto(2)
    fleet.ask("d0", QUESTIONS["d0"])
    assert fleet.ask("d0", fleet.passed("d0")) == Withdrawn()
    assert fleet.ask("d0", fleet.roster) == Withdrawn()


def test_secrets_are_shared_out_once():
    """Shares of two polynomials would be twice as many as a secret is hidden from."""
    fleet = Fleet().upto(2)
    smaller = roster_of({d: fleet_offer(fleet.roster, d) for d in DEVICES[:5]}, DEVICES[4])
    assert fleet.ask("d0", smaller) == Withdrawn()


def test_one_set_of_survivors_is_confirmed():
    fleet = Fleet().upto(4)
    assert fleet.ask("d0", fleet.survivors(DEVICES[:5])) == Withdrawn()
    assert isinstance(fleet.ask("d0", fleet.survivors()), Confirmed)


def test_who_were_shown_different_survivors_reveal_nothing():
    """Some hear that d5 is missing: its key, from these, and its own mask, from others, would open its answer."""
    fleet = Fleet().upto(3)
    fleet.ask("d5", fleet.survivors())
    shown = {d: DEVICES if d in DEVICES[:2] else DEVICES[:5] for d in DEVICES[:5]}
    said = {d: fleet.ask(d, fleet.survivors(shown[d])) for d in shown}
    assert {type(m) for m in said.values()} == {Confirmed}
    for name in shown:
        words = []
        for peer in (d for d in shown if d != name):
            mine = [d for d in others(peer) if d in shown[peer]]
            words.append(pieces(said[peer].words, TAG, mine)[name])
        m = Agreement(TICKET, to_bits(DEVICES, shown), to_octets(words))
        assert fleet.ask(name, m) == Withdrawn()
    assert set(fleet.why) == {"too few neighbours were shown the same survivors"}


FORGED = {
    "too few": lambda fleet, d: fleet.agreement(d, {p: m for p, m in fleet.confirmed.items() if p in DEVICES[:3]}),
    "made up": lambda fleet, d: replace(fleet.agreement(d, fleet.confirmed), words=np.zeros(TAG * 5, np.uint8)),
    "of another": lambda fleet, d: replace(
        fleet.agreement(d, fleet.confirmed), words=fleet.agreement("d1", fleet.confirmed).words
    ),
    "none": lambda fleet, d: Agreement(TICKET, to_bits(DEVICES, ()), np.zeros(0, np.uint8)),
}


@pytest.mark.parametrize("how", FORGED)
def test_nothing_is_revealed_without_the_words_of_enough_neighbours(how):
    fleet = Fleet().upto(4)
    assert fleet.ask("d0", FORGED[how](fleet, "d0")) == Withdrawn()


SMALL = {
    "a roster of two": lambda f: roster_of({d: fleet_offer(f.roster, d) for d in ("d0", "d1")}, "d1"),
    "a roster without it": lambda f: roster_of({d: fleet_offer(f.roster, d) for d in DEVICES[1:]}, "d1"),
    "a roster with another key of it": lambda f: replace(f.roster, publics=f.roster.publics ^ 1),
}


@pytest.mark.parametrize("which", SMALL)
def test_a_roster_that_hides_nobody_is_not_dealt_to(which):
    fleet = Fleet().upto(1)
    assert fleet.ask("d0", SMALL[which](fleet)) == Withdrawn()


@pytest.mark.parametrize("names", [DEVICES[:2], DEVICES[:3], DEVICES[1:]])
def test_too_few_or_others_are_neither_masked_for_nor_confirmed(names):
    """Of six, four must be left that hold a device's shares; and nobody helps to open a sum without it."""
    fleet = Fleet().upto(2)
    assert fleet.ask("d0", fleet.passed("d0", names)) == Withdrawn()
    assert isinstance(fleet.ask("d0", fleet.passed("d0")), Covered)
    assert fleet.ask("d0", fleet.survivors(names)) == Withdrawn()


def test_a_stranger_on_the_roster_is_found():
    """A name that the device has no key of could be the hospital's own, and so could be all but one."""
    known = {d: key for d, key in PEERS.items() if d not in ("d3", "d4")}
    fleet = Fleet()
    fleet.envs["d0"] = replace(fleet.envs["d0"], secrets=DeviceSecrets(KEYS["d0"], lambda: known, "r"))
    fleet.offers()
    assert fleet.ask("d0", fleet.roster) == Withdrawn()
    assert fleet.why == ["there is no key of d3, d4 on file, of 2 in all"]


def test_a_hospital_cannot_put_keys_of_its_own_in_place_of_a_devices():
    """It shows d0 other keys of d1, to read what d0 seals for it; d1 and d0 then know each other no more."""
    fleet = Fleet().upto(1)
    ours = keeper_of("d1").begin(TICKET, np.zeros(1, np.uint32), np.zeros(1, np.uint64))
    false = fleet.roster.publics.copy()
    false[PUBLIC : 2 * PUBLIC] = np.frombuffer(ours, np.uint8)
    dealt = {d: fleet.ask(d, replace(fleet.roster, publics=false) if d == "d0" else fleet.roster) for d in DEVICES}
    fleet.dealt = {d: pieces(m.sealed, SEALED, others(d)) for d, m in dealt.items()}
    assert fleet.ask("d0", fleet.passed("d0")) == fleet.ask("d1", fleet.passed("d1")) == Withdrawn()


def test_shares_of_another_exchange_or_for_another_device_are_not_read():
    before, fleet = Fleet().upto(2), Fleet().upto(2)
    old = replace(fleet.passed("d0"), sealed=before.passed("d0").sealed)
    swapped = replace(fleet.passed("d0"), sealed=fleet.passed("d1").sealed)
    assert fleet.ask("d0", old) == fleet.ask("d0", swapped) == Withdrawn()


STEPS = [
    lambda f: f.roster,
    lambda f: f.passed("d0"),
    lambda f: f.survivors(),
    lambda f: f.agreement("d0", f.confirmed),
]


@pytest.mark.parametrize("step", range(1, 5))
def test_a_device_that_was_restarted_or_put_back_has_nothing_to_tell(step):
    fleet = Fleet().upto(4)
    fleet.restart("d0")
    assert fleet.ask("d0", STEPS[step - 1](fleet)) == Withdrawn()
    assert fleet.why == ["the device was started again meanwhile, and has kept no secret"]


def told_of(fleet, name, m):
    """Device -> 0 or 1: which of its two shares that is."""
    now = fleet.envs[name].secrets.now
    found = pieces(m.shares, SHARE, sorted({name, *now.shares}))
    return {d: now.shares[d].index(found[d]) if d != name else 0 for d in found}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_in_whatever_order_nobody_tells_both_shares_of_anybody(seed):
    """A hospital at random: any question of any step to any device, with any sets; each device may be restarted."""
    dice, told, masked, answers = random.Random(seed), {}, {}, 0
    fleet = Fleet().upto(3)
    for _ in range(400):
        name = dice.choice(DEVICES)
        members = tuple(d for d in DEVICES if dice.random() < dice.choice((0.6, 0.95, 1.0)))
        what = dice.randrange(40)
        if what == 0:
            fleet.restart(name)
            continue
        if what == 1:
            fleet = Fleet().upto(3)
        m = any_question(fleet, what, name, members)
        answer = fleet.ask(name, m)
        now = fleet.envs[name].secrets.now
        if isinstance(answer, Covered):
            key = (now.public(), answer.steps.tobytes(), answer.words.tobytes())
            assert masked.setdefault(now.public(), key) == key
        if isinstance(answer, Revealed):
            answers += 1
            for d, which in told_of(fleet, name, answer).items():
                assert told.setdefault((now.public(), d), which) == which
            assert d != name or which == 0
    assert answers > 5


def any_question(fleet, what, name, members):
    if what % 4 == 0:
        return fleet.roster
    if what % 4 == 1:
        return fleet.passed(name, members)
    return fleet.survivors(members) if what % 4 == 2 else fleet.agreement(name, said(fleet, members), members)


def said(fleet, members):
    """What members confirm when they are asked: only those answer who have confirmed no other set before."""
    return {d: fleet.ask(d, fleet.survivors(members)) for d in members}


# What can be seen -----------------------------------------------------------------------------------------------
def test_what_the_hospital_gets_of_one_device_is_noise():
    fleet = Fleet().upto(3)
    for name, m in fleet.covered.items():
        counts = np.bincount(m.steps, minlength=256)
        assert counts.max() < 20 * max(1, m.steps.size / 256)
        bare = fleet.envs[name].secrets.now
        assert (m.words != bare.words).all()


def test_a_device_without_keys_does_not_start():
    env = replace(Fleet().envs["d0"], secrets=None)
    with pytest.raises(UsageError, match="has no keys for that"):
        METHOD.device.start(env)


# Messages -------------------------------------------------------------------------------------------------------
GOOD = Fleet().upto(2)
BYTES = np.zeros(1, np.uint8)
BAD = [
    replace(GOOD.roster, ticket=0),
    replace(GOOD.roster, names=GOOD.roster.names[::-1]),
    replace(GOOD.roster, names=("d0", "d1", "d2", "d3", "d4", "\x1b[2J")),
    replace(GOOD.roster, publics=GOOD.roster.publics[1:]),
    replace(GOOD.passed("d0"), ticket=0),
    replace(GOOD.passed("d0"), width=33),
    replace(GOOD.passed("d0"), sealed=BYTES),
    replace(GOOD.passed("d0"), dealers=BYTES[:0]),
    Offer(GOOD.roster.form, BYTES),
    Dealt(BYTES),
    Survivors(0, BYTES),
    Survivors(1, BYTES[:0]),
    Confirmed(BYTES),
    Agreement(1, BYTES, BYTES),
    Agreement(0, BYTES, BYTES[:0]),
    Revealed(BYTES),
    NoSum(Nobody(), 3, "because"),
    NoSum(Nobody(), -1, "few"),
]


@pytest.mark.parametrize("m", BAD)
def test_what_is_no_message_of_an_exchange_is_refused(m):
    with pytest.raises(ValueError, match=r"."):
        m.check(LAYOUT)


def test_bits_of_other_devices_are_refused():
    assert from_bits(DEVICES, to_bits(DEVICES, ("d1", "d5"))) == ("d1", "d5")
    for bits in (np.array([1], np.uint8), np.zeros(2, np.uint8), BYTES[:0]):
        with pytest.raises(ValueError, match="devices"):
            from_bits(DEVICES, bits)


WRONG = [
    lambda f: replace(f.passed("d0"), sealed=f.passed("d0").sealed[SEALED:]),
    lambda f: replace(f.passed("d0"), dealers=np.zeros(2, np.uint8)),
    lambda f: replace(f.passed("d0"), ticket=TICKET + 1),
    lambda f: replace(f.survivors(), members=np.full(1, 255, np.uint8)),
    lambda f: replace(f.agreement("d0", {}), words=np.zeros(TAG, np.uint8)),
]


@pytest.mark.parametrize("make", WRONG)
def test_a_question_that_does_not_fit_the_exchange_is_not_answered(make):
    fleet = Fleet().upto(2)
    assert fleet.ask("d0", make(fleet)) == Withdrawn()
