"""Calls that go on by turns until each has asked something."""

from __future__ import annotations

import threading

import pytest

from edge_sdk.simulation.training.lockstep import Lockstep


class Course:
    """A lockstep that notes who goes on, and what is asked together. An answer is the sum of all questions."""

    def __init__(self, most=10):
        self.trace, self.asked = [], []
        self.lockstep = Lockstep(self.answer, most)

    def answer(self, questions):
        self.asked.append(list(questions))
        return [sum(questions)] * len(questions)

    def call(self, name, *questions):
        def go():
            found = []
            for question in questions:
                self.trace.append(name)
                found.append(self.lockstep.ask(question))
            return name, found

        return go


def test_all_go_on_in_their_order_and_are_answered_together():
    course = Course()
    calls = [course.call("a", 1, 10), course.call("b"), course.call("c", 2), course.call("d", 3, 20)]
    assert list(course.lockstep.run(calls)) == [("a", [6, 30]), ("b", []), ("c", [6]), ("d", [6, 30])]
    assert course.asked == [[1, 2, 3], [10, 20]] and course.trace == ["a", "c", "d", "a", "d"]


def test_no_more_than_so_many_go_on_side_by_side():
    course = Course(most=2)
    assert [found for _, found in course.lockstep.run([course.call("abc"[i], i) for i in range(3)])] == [[1], [1], [2]]
    assert course.asked == [[0, 1], [2]]


def test_outside_of_a_run_each_question_is_answered_at_once():
    course = Course()
    assert course.call("a", 1, 2)() == ("a", [1, 2]) and course.asked == [[1], [2]]


@pytest.mark.parametrize("where", ["call", "answer"])
def test_a_failure_is_passed_on_and_leaves_no_thread(where):
    course, before = Course(), threading.active_count()

    def fail(*_):
        raise ValueError("here")

    calls = [course.call("a", 1), fail if where == "call" else course.call("b", 2), course.call("c", 3)]
    if where == "answer":
        course.lockstep.answer = fail
    with pytest.raises(ValueError, match="here"):
        list(course.lockstep.run(calls))
    assert threading.active_count() == before
    course.lockstep.answer = course.answer
    assert list(course.lockstep.run([course.call("d", 5)])) == [("d", [5])]
