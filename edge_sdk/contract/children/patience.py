"""Patience: the deadline of a question, derived from the times that answers to questions of its kind have taken.

Of each round the time of its slowest answer is kept. The deadline is FACTOR times a high quantile of the latest ones:
so much longer than usual that whoever is merely slow today still counts, and finite all the same. It follows the rounds
when these get longer or shorter. Kinds are kept apart (an evaluation is not a training round), and as long as nothing
of a kind has been measured, its deadline is the policy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf

FACTOR, QUANTILE = 4.0, 0.95
LATEST = 64  # rounds of a kind that are kept
KINDS = 16  # of questions that are kept apart; a method has a few

Times = Mapping[str, tuple[float, ...]]
"""Kind of question -> seconds of the slowest answer, in each of its latest rounds."""


def note_time(times: Times, kind: str, seconds: float) -> Times:
    """The times with one more; times that were not measured (0 or not finite) are left out."""
    if not 0 < seconds < inf or (kind not in times and len(times) >= KINDS):
        return times
    return {**times, kind: (*times.get(kind, ()), seconds)[-LATEST:]}


def usual_time(times: Times, kind: str) -> float | None:
    """The quantile of the slowest answers, in seconds; None: nothing has been measured."""
    found = sorted(times.get(kind, ()))
    return found[ceil(QUANTILE * len(found)) - 1] if found else None


def list_deadlines(times: Times, least: float) -> dict[str, float]:
    """Kind of question -> its measured deadline, in seconds."""
    return {kind: measured_deadline(times, kind, least, inf) for kind in sorted(times)}


def measured_deadline(times: Times, kind: str, least: float, first: float) -> float:
    """Seconds that a question of this kind may take.

    Args:
        least: seconds that it may take however fast the others were.
        first: seconds, as long as nothing has been measured.
    """
    usual = usual_time(times, kind)
    return first if usual is None else max(least, FACTOR * usual)
