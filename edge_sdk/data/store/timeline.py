"""What was done when, as people have said it: later words count more. Pure.

A word is about a stretch of time. It may correct an earlier one, in whole or in part, or withdraw it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan
from numbers import Real
from typing import Any

from edge_sdk.errors import UsageError

LONGEST_NAME = 200  # characters
MOST_PARTS = 10_000
"""Parts of one stretch of time that are said at once."""
LATEST_TIME = 1e11
"""Seconds since 1970, in the year 5138: what lies beyond is milliseconds, or less."""


@dataclass(frozen=True, order=True)
class LabelledSpan:
    """A stretch of time in which one thing was done; `began` belongs to it, `ended` does too."""

    began: float
    ended: float
    activity: str


class Timeline:
    """Spans in order, none of which overlap."""

    def __init__(self, spans: Iterable[LabelledSpan] = ()) -> None:
        self.spans = sorted(spans)

    def say(self, activity: str | None, began: float, ended: float) -> None:
        """From `began` to `ended` this was done, whatever was said before; None: nobody knows."""
        at = self.find_place(began, ended)
        before = [LabelledSpan(s.began, began, s.activity) for s in self.spans[at] if s.began < began]
        after = [LabelledSpan(ended, s.ended, s.activity) for s in self.spans[at] if s.ended > ended]
        said = [] if activity is None else [LabelledSpan(began, ended, activity)]
        self.spans[at] = join_spans([*before, *said, *after])
        self.join_neighbours(at.start)

    def say_parts(self, parts: Sequence[str | None], began: float, ended: float) -> None:
        """From `began` to `ended` these were done one after the other, each as long; None: nobody knows."""
        edges = part_edges(len(parts), began, ended)
        for activity, (start, end) in zip(parts, pairwise(edges), strict=True):
            self.say(activity, start, end)

    def find_place(self, began: float, ended: float) -> slice:
        """The spans that overlap a stretch of time."""
        first = bisect_left(self.spans, began, key=lambda span: span.ended)
        return slice(first, max(first, bisect_right(self.spans, ended, key=lambda span: span.began)))

    def join_neighbours(self, at: int) -> None:
        """Make one span of two that touch and say the same, as where a long activity was labelled in pieces."""
        low, high = max(0, at - 1), at + 4
        self.spans[low:high] = join_spans(self.spans[low:high])

    def find(self, began: float, ended: float) -> str | None:
        """What was done all the time from `began` to `ended`; None: nobody knows, or several things."""
        at = bisect_right(self.spans, began, key=lambda span: span.began) - 1
        if at < 0 or self.spans[at].ended < ended:
            return None
        return self.spans[at].activity

    def forget_before(self, time: float) -> None:
        """Drop what was said of times before this one."""
        self.spans = [span for span in self.spans if span.ended >= time]


def join_spans(spans: list[LabelledSpan]) -> list[LabelledSpan]:
    """Spans in order, where those that touch and say the same are one."""
    found: list[LabelledSpan] = []
    for span in spans:
        if found and found[-1].activity == span.activity and found[-1].ended >= span.began:
            found[-1] = LabelledSpan(found[-1].began, max(found[-1].ended, span.ended), span.activity)
        elif span.ended > span.began:
            found.append(span)
    return found


def part_edges(count: int, began: float, ended: float) -> list[float]:
    """Where each of so many equal parts of a stretch of time begins, and where the last one ends."""
    return [*(began + (ended - began) * at / count for at in range(count)), ended]


def check_words(parts: Sequence[str | None], began: float, ended: float) -> None:
    """Raises UsageError unless these are names of things that were done one after the other in a stretch of time."""
    if not 0 < len(parts) <= MOST_PARTS:
        raise UsageError(
            f"label: {len(parts)} parts of a stretch of time, expected 1 to {MOST_PARTS}: label it piecewise"
        )
    for activity in {*parts}:
        check_word(activity, began, ended)
    edges = part_edges(len(parts), began, ended)
    if any(end <= start for start, end in pairwise(edges)):
        raise UsageError(f"label: {len(parts)} parts of {ended - began:g} s are too short to be told apart")


def check_word(activity: str | None, began: float, ended: float) -> None:
    """Raises UsageError unless this is a name of something done, and a stretch of time."""
    named = activity is None or (isinstance(activity, str) and 0 < len(activity.strip()) <= LONGEST_NAME)
    if not named or not (activity is None or activity.isprintable()):
        raise UsageError(f"label: activity = {activity!r:.80}; expected a name of 1 to {LONGEST_NAME} characters")
    check_stretch("label", began, ended)
    if not (isfinite(began) and isfinite(ended) and began < ended):
        raise UsageError(f"label: from {began} to {ended}; expected seconds since 1970, the end after the start")


def check_stretch(what: str, began: Any, ended: Any) -> None:
    """Raises UsageError unless these are times in seconds since 1970, the end not before the start; each may be
    infinite."""
    for time in (began, ended):
        if not isinstance(time, Real) or isinstance(time, bool) or isnan(time):
            raise UsageError(f"{what}: a time is {time!r:.80}; expected a number of seconds since 1970")
        if isfinite(time) and abs(float(time)) >= LATEST_TIME:
            raise UsageError(f"{what}: a time is {time:.15g}; expected seconds since 1970, not milliseconds")
    if began > ended:
        raise UsageError(f"{what}: from {began} to {ended}; expected seconds since 1970, the end after the start")
