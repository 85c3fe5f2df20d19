"""Later words count more, moment by moment: compared with a table of moments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from edge_sdk.data.store.timeline import LabelledSpan, Timeline, check_word
from edge_sdk.errors import UsageError


@pytest.mark.parametrize("seed", range(20))
def test_a_timeline_says_what_a_table_of_moments_says(seed: int) -> None:
    random, line, table = np.random.default_rng(seed), Timeline(), [None] * 101
    for _ in range(40):
        a, b = sorted(int(t) for t in random.choice(100, 2, replace=False))
        activity = [None, "walk", "sit"][random.integers(3)]
        line.say(activity, a, b)
        table[a:b] = [activity] * (b - a)
        assert all(one.ended <= other.began for one, other in pairwise(line.spans))
        for began, ended in random.integers(0, 100, (20, 2)):
            if began < ended:
                said = set(table[began:ended])
                assert line.find(began, ended) == (said.pop() if len(said) == 1 else None)
    assert all(one.activity != other.activity or one.ended < other.began for one, other in pairwise(line.spans))


def test_words_that_say_nothing_are_refused() -> None:
    for wrong in (("", 0, 1), ("x" * 201, 0, 1), ("a\n", 0, 1), ("a", 1, 1), ("a", 0, float("inf")), (None, 2, 1)):
        with pytest.raises(UsageError, match="label"):
            check_word(*wrong)


def test_what_ends_at_a_time_is_not_before_it() -> None:
    line = Timeline([LabelledSpan(0, 5, "walk"), LabelledSpan(6, 7, "sit")])
    line.forget_before(5.0)
    assert [span.ended for span in line.spans] == [5, 7]
    line.forget_before(5.5)
    assert [span.ended for span in line.spans] == [7]
