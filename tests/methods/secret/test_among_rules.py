"""What a hospital could ask of devices to have more opened than one sum of many, and why they do not answer."""

import random
from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.contract.environment.sharing import COMMITTED, PUBLIC, SEALED, TAG
from edge_sdk.errors import UsageError
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
    from_bits,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, ToldMasks
from tests.methods.problems import DEVICES
from tests.methods.secret.among import PEERS, keeper_of
from tests.methods.secret.among_fleet import (
    METHOD,
    QUESTIONS,
    RUN,
    TICKET,
    WIDTH,
    Fleet,
    fleet_offer,
    others,
    roster_of,
)
from tests.methods.secret.parties import KEYS


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


def exchanged(fleet, ticket, members, question=QUESTIONS):
    """Device -> its last word when these are asked a question under that number, and to add up exactly these. Who has
    withdrawn is asked no further, and the others go on without it as long as they will."""
    answers = fleet.ask_all(lambda d: replace(question[d], ticket=ticket), members)
    roster = replace(roster_of(answers, members[0]), ticket=ticket)
    dealt = left(answers := answers | fleet.ask_all(lambda d: roster, members), Dealt)

    def passed(name):
        peers = [d for d in members if d != name and d in dealt]
        sealed = [pieces(dealt[p].sealed, SEALED, [d for d in members if d != p])[name] for p in peers]
        said = [pieces(dealt[p].commitments, COMMITTED, members)[name] for p in peers]
        return PassedShares(ticket, WIDTH, to_bits(members, dealt), to_octets(sealed), to_octets(said))

    covered = left(answers := answers | fleet.ask_all(passed, dealt), Covered)
    survivors = Survivors(ticket, to_bits(members, covered))
    return answers | fleet.ask_all(lambda d: survivors, covered)


def left(answers, kind):
    return {d: m for d, m in answers.items() if isinstance(m, kind)}


def test_no_sums_of_one_question_can_be_opened_that_have_a_device_in_common():
    """(S1 + S2 - S3) / 2 is d0's answer, though each two of these sets differ by a cohort, and no device is in all."""
    sets = [("d0", "d1", "d2"), ("d0", "d3", "d4"), ("d1", "d2", "d3", "d4")]
    fleet = Fleet()
    said = [exchanged(fleet, TICKET + i, members) for i, members in enumerate(sets)]
    assert [len(left(m, Confirmed)) for m in said] == [3, 0, 0]
    assert "it has given an answer to this question before, or to a later one of its kind" in fleet.why


def test_a_question_is_answered_again_where_no_answer_was_given():
    """Somebody was missing before anything was masked: the same question then has another sum."""
    fleet = Fleet().upto(2)
    assert {type(m) for m in exchanged(fleet, TICKET + 1, DEVICES[:5]).values()} == {Confirmed}


def test_who_has_given_an_answer_gives_no_other_one_whoever_is_missing():
    fleet = Fleet().upto(3)
    fleet.restart("d1")
    assert {type(m) for m in exchanged(fleet, TICKET + 1, DEVICES[:5]).values()} == {Withdrawn}
    later = {d: replace(QUESTIONS[d], question=with_round(QUESTIONS[d].question, 1)) for d in DEVICES}
    assert {type(m) for m in exchanged(fleet, TICKET + 2, DEVICES[:5], later).values()} == {Confirmed}
    assert {type(m) for m in exchanged(fleet, TICKET + 3, DEVICES).values()} == {Withdrawn}, "an earlier one"


def with_round(question, number):
    return replace(question, label=replace(question.label, round=number))


def test_a_question_of_a_round_that_the_run_has_not_is_not_answered():
    """Else a hospital had as many questions that differ in nothing but the number of the round."""
    fleet = Fleet()
    beyond = {d: replace(QUESTIONS[d], question=with_round(QUESTIONS[d].question, RUN.rounds + 1)) for d in DEVICES}
    assert {type(m) for m in exchanged(fleet, TICKET, DEVICES, beyond).values()} == {Withdrawn}
    assert set(fleet.why) == {f"a question of round {RUN.rounds + 1}, and the run has {RUN.rounds}"}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_sets_are_asked_each_device_gives_one_answer_to_a_question(seed):
    """A hospital at random: the same question to any sets, each exchange broken off anywhere, any device restarted."""
    dice, fleet, given = random.Random(seed), Fleet(), {}
    for i in range(30):
        members = tuple(d for d in DEVICES if dice.random() < 0.8)
        if len(members) < 2:
            continue
        answers = exchanged(fleet, TICKET + (i if dice.random() < 0.8 else 0), members)
        for name in left(answers, Covered) | left(answers, Confirmed):
            now = fleet.envs[name].secrets.now
            given.setdefault(name, set()).add(now.covered[1].tobytes())
        if dice.random() < 0.3:
            fleet.restart(dice.choice(DEVICES))
    assert len(given) >= 3 and {len(answers) for answers in given.values()} == {1}


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
    fleet.take_dealt(dealt)
    assert fleet.ask("d0", fleet.passed("d0")) == Withdrawn(), "it can read nobody's shares"
    assert from_bits(DEVICES, fleet.ask("d1", fleet.passed("d1")).disputed) == ("d0",), "it tells nothing of d0"


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


def without_own_mask(fleet, name, m, width):
    """The steps of a device's answer, when enough have told the seed of its own mask."""
    now = fleet.envs[name].secrets.now
    steps = rounding.unpack(m.steps, now.steps.size, width)
    size = (now.words.size, now.steps.size, width)
    return steps - ToldMasks().own_mask(now.seed, now.about, name, *size)[0]


def test_rings_of_two_widths_have_no_mask_in_common():
    """The upper bytes of wide masks, which nothing small hides, would be the masks of single bytes in narrow ones: the
    hospital asks d0 for bytes and all others for 32 bits, and reads half of d0's answer off the others' sum."""
    fleet = Fleet().upto(2)
    asked = {d: replace(fleet.passed(d), width=8 if d == "d0" else 32) for d in DEVICES}
    bare = {d: without_own_mask(fleet, d, fleet.ask(d, m), m.width) for d, m in asked.items()}
    wide = sum(bare[d] for d in DEVICES[1:])
    uppermost = (-wide.view(np.int32)).view(np.uint32) >> 24  # of the masks that d0 has added, but for a small carry
    guessed = bare["d0"][3::4] - uppermost[: len(bare["d0"][3::4])]
    wrong = (guessed - fleet.envs["d0"].secrets.now.steps[3::4] + len(DEVICES)) % 256
    assert (wrong > 2 * len(DEVICES)).any()


def test_a_device_without_keys_does_not_start():
    env = replace(Fleet().envs["d0"], secrets=None)
    with pytest.raises(UsageError, match="has no keys for that"):
        METHOD.device.start(env)
