"""Debts: who owes an answer, what counts, and when a round is over."""

from math import inf

import pytest

from edge_sdk.contract import round as rounds
from edge_sdk.contract.children import patience
from edge_sdk.contract.round import Policy
from edge_sdk.errors import UsageError

ABC = ("a", "b", "c")


def asked(policy=Policy(), children=ABC, now=0.0, before=None):  # noqa: B008 (frozen)
    return rounds.ask(before or rounds.begin(policy, 0.0), children, True, now)


def hear(r, child, number=None):
    r, why = rounds.hear(r, child, r.number if number is None else number)
    assert why is None
    return r


def refusal(r, child, number):
    after, why = rounds.hear(r, child, number)
    assert after == r
    return why


def test_a_question_creates_debts_and_an_answer_pays_one():
    r = asked()
    assert r.owed == {"a": 1, "b": 1, "c": 1} and r.open and r.number == 1
    r = hear(r, "b")
    assert r.owed == {"a": 1, "c": 1} and r.heard == {"b"}


def test_duplicate_stranger_and_stale_are_refused():
    r = hear(asked(), "a")
    assert refusal(r, "a", 1) == "a owes nothing"
    assert refusal(r, "z", 1) == "z owes nothing"
    r = asked(before=r)
    assert refusal(r, "a", 1) == "a answers question 1, owed is 2"


def test_barrier_a_late_answer_finds_no_debt():
    r = rounds.close(hear(asked(), "a"), 1.0)
    assert refusal(r, "b", 1) == "b owes nothing"
    assert r.closes == 1 and not r.open and not r.heard


def test_first_b_a_late_answer_counts_next_time():
    r = asked(Policy(need=2, keep_late=True))
    r = hear(hear(r, "a"), "b")
    assert rounds.is_over(r, 0.0)
    r = asked(children=("a", "b"), before=rounds.close(r, 1.0))
    assert r.owed == {"a": 2, "b": 2, "c": 1}
    assert hear(r, "c", 1).heard == {"c"}
    assert refusal(r, "c", 2) == "c answers question 2, owed is 1"


def test_rigorous_first_b_everybody_is_asked_again():
    r = hear(hear(asked(Policy(need=2)), "a"), "b")
    r = asked(before=rounds.close(r, 1.0))
    assert refusal(r, "c", 1) == "c answers question 1, owed is 2"


@pytest.mark.parametrize("late", [True, False])
def test_a_question_to_all_waits_for_all_and_forgets_what_was_owed(late):
    r = rounds.close(hear(hear(asked(Policy(need=2, keep_late=late)), "a"), "b"), 1.0)
    r = rounds.ask(r, ("a", "b"), True, 1.0, all=True)
    assert set(r.owed) == {"a", "b"} and not rounds.is_over(hear(r, "a"), 1.0)
    r = hear(hear(r, "a"), "b")
    assert rounds.is_over(r, 1.0)
    assert not asked(before=rounds.close(r, 2.0)).all


def test_over_when_everybody_has_answered():
    r = asked()
    for child in ABC:
        assert not rounds.is_over(r, 1e9)
        r = hear(r, child)
    assert rounds.is_over(r, 0.0)


def test_over_at_the_deadline_with_a_quorum():
    r = hear(asked(Policy(quorum=1, deadline=5.0), now=2.0), "a")
    assert not rounds.is_over(r, 6.9) and rounds.is_over(r, 7.0) and not rounds.is_stuck(r, 7.0)


def test_stuck_at_the_deadline_without_one():
    r = asked(Policy(quorum=2, deadline=5.0))
    r = hear(r, "a")
    assert rounds.is_stuck(r, 5.0) and not rounds.is_over(r, 5.0)
    r = rounds.extend(r, 5.0)
    assert not rounds.is_stuck(r, 9.9) and rounds.is_stuck(r, 10.0)
    assert rounds.is_over(hear(r, "b"), 10.0)


@pytest.mark.parametrize("quorum, over", [(0, 0.0), (1, 5.0)])
def test_a_question_to_nobody_closes_at_once_or_at_the_deadline(quorum, over):
    r = asked(Policy(quorum=quorum, deadline=5.0), children=())
    assert rounds.is_over(r, over) and not rounds.is_stuck(r, 5.0)
    assert quorum == 0 or not rounds.is_over(r, 4.9)


def test_last_words_wait_for_nothing():
    r = rounds.ask(rounds.begin(Policy(), 0.0), (), False, 0.0)
    assert not r.open and not rounds.is_over(r, 1e9)


def test_the_clock_tick_of_a_node_that_asked_nobody():
    r = rounds.begin(Policy(idle=3.0), 1.0)
    assert not rounds.is_over(r, 3.9) and rounds.is_over(r, 4.0)
    r = rounds.close(r, 4.0)
    assert not rounds.is_over(r, 6.9) and rounds.is_over(r, 7.0)


@pytest.mark.parametrize(
    "key, value",
    [("need", 0), ("quorum", -1), ("deadline", 0.0), ("deadline", -inf), ("idle", 0.0), ("deadline", float("nan"))],
)
def test_policies_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Policy(**{key: value})


# Deadlines that are measured ---------------------------------------------------------------------------------------
MEASURED = Policy(deadline=3600.0, measured=True, least=60.0)


def played(seconds, before=None, now=0.0, kind="train", children=ABC):
    """A round in which everybody answers, the last one after so many seconds."""
    r = rounds.ask(before or rounds.begin(MEASURED, 0.0), children, True, now, kind=kind)
    for child in children:
        r, _ = rounds.hear(r, child, r.number, now + seconds)
    return rounds.close(r, now + seconds)


def deadline_after(r, kind="train"):
    return rounds.patience(rounds.ask(r, ABC, True, 0.0, kind=kind))


def test_a_measured_deadline_follows_the_slowest_answers_and_begins_long():
    assert deadline_after(rounds.begin(MEASURED, 0.0)) == 3600.0
    assert deadline_after(played(2.0)) == 60.0  # four times that would be too short for anybody to come back
    assert deadline_after(played(100.0)) == 400.0
    assert deadline_after(played(100.0), "evaluate") == 3600.0  # which nobody has answered yet


def test_one_slow_round_in_many_does_not_move_it_but_slower_rounds_do():
    r = played(100.0)
    for _ in range(39):
        r = played(100.0, r)
    assert deadline_after(played(5000.0, r)) == 400.0
    for _ in range(patience.LATEST):
        r = played(200.0, r)
    assert deadline_after(r) == 800.0 and len(r.times["train"]) == patience.LATEST


def test_who_does_not_answer_moves_no_deadline():
    """Or each round that waits for somebody who is gone would make the next one longer."""
    r = played(100.0)
    for _ in range(10):
        r = rounds.ask(r, ABC, True, 0.0, kind="train")
        r, _ = rounds.hear(r, "a", r.number, 100.0)
        assert rounds.is_over(r, 400.0) and not rounds.is_over(r, 399.0)
        r = rounds.close(r, 400.0)
    assert deadline_after(r) == 400.0


def test_as_long_as_nothing_is_measured_a_round_needs_an_answer():
    """Or devices that train for longer than the first deadline would never be heard."""
    r = rounds.ask(rounds.begin(MEASURED, 0.0), ABC, True, 0.0, kind="train")
    assert rounds.is_stuck(r, 3600.0) and not rounds.is_over(r, 3600.0)
    r, _ = rounds.hear(rounds.extend(r, 3600.0), "a", r.number, 5000.0)
    assert rounds.is_over(r, 7200.0)
    assert deadline_after(rounds.close(r, 7200.0)) == 20_000.0
    nobody = rounds.ask(rounds.begin(MEASURED, 0.0), (), True, 0.0, kind="train")
    assert rounds.is_over(nobody, 0.0), "nobody was asked, so nobody is waited for"


def test_a_quorum_is_at_most_as_many_as_were_asked():
    r = asked(Policy(quorum=2, deadline=5.0), children=("a",))
    assert not rounds.is_over(r, 5.0) and rounds.is_over(hear(r, "a"), 1.0)


def test_another_process_measures_nothing_of_a_round_that_it_did_not_open():
    r = rounds.ask(played(100.0), ABC, True, 0.0, kind="train")
    r = rounds.resume(r, MEASURED, 77.0)
    assert r.deadline == 477.0
    for child in ABC:
        r, _ = rounds.hear(r, child, r.number, 78.0)
    assert rounds.close(r, 78.0).times == {"train": (100.0,)}


def test_another_policy_counts_from_the_question_on():
    r = rounds.ask(rounds.begin(Policy(), 0.0), ABC, True, 10.0)
    assert rounds.with_policy(r, Policy(deadline=5.0), 12.0).deadline == 15.0
    assert rounds.with_policy(rounds.resume(r, Policy(), 1.0), Policy(deadline=5.0), 12.0).deadline == 17.0


def test_a_round_with_nobody_left_does_not_stand_for_ever():
    r = asked(Policy(quorum=1), children=())
    assert r.deadline == rounds.EMPTY and rounds.is_over(r, rounds.EMPTY)
