"""The cohort over hospitals is no word of the aggregator's alone: hospitals count who is in a pool before they send."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.methods.secret.messages.messages import MaskedSum
from edge_sdk.methods.secret.messages.pool_messages import NotPooled, PoolQuestion
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.problems import LAYOUT, told
from tests.methods.secret.test_pools import QUESTION, answer, played, pool_run

TOTAL = 6


def test_hospitals_with_fewer_devices_than_the_cohort_together_are_not_asked_for_their_sums() -> None:
    _, transcript = played(pool_run(rounds=2, uploads={"cohort": TOTAL + 1}))
    assert not [m for *_, m in transcript.crossed if isinstance(m, PoolQuestion | MaskedSum)]
    assert {(m.devices, m.cohort) for m in told(transcript, NotSummed)} == {(TOTAL, TOTAL + 1)}
    assert not told(transcript, NotPooled) and [p.devices for p in told(transcript, Progress)] == [0, 0]


def test_a_question_says_how_many_devices_each_member_has() -> None:
    assert QUESTION.devices == (3, 2, 1)
    for devices in ((3, 2), (3, 2, 0)):
        with pytest.raises(ValueError, match="devices"):
            replace(QUESTION, devices=devices).check(LAYOUT)


def test_a_hospital_sends_its_sum_to_no_pool_below_the_cohort() -> None:
    """Its run's cohort is 2 where it has 3 devices itself; so the same hospital in a run with a larger one."""
    assert isinstance(answer(QUESTION)[0], MaskedSum)
    assert answer(QUESTION, cohort=TOTAL)[0].names == ("d0", "d1", "d2")
    assert answer(QUESTION, cohort=TOTAL + 1)[0] == Nobody()


def test_a_hospital_does_not_answer_a_question_with_a_false_number_of_its_own_devices() -> None:
    assert answer(replace(QUESTION, devices=(4, 2, 1)))[0] == Nobody()


def test_who_makes_another_hospital_seem_larger_gets_masks_that_do_not_cancel() -> None:
    """The other one masks for the number that it has: a pair of hospitals shares masks for one pair of numbers only."""
    true, false = (answer(q)[0] for q in (QUESTION, replace(QUESTION, devices=(3, 2, 100))))
    assert isinstance(false, MaskedSum) and not np.array_equal(true.words, false.words)
