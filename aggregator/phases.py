"""Times of a round's phases: how long the slowest hospital took to answer each question.

A node notes these times for its deadlines (edge_sdk/contract/children/patience.py). What has been added to them since
the line of metrics before is of the questions that were closed in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.contract.children.patience import LATEST, Times


class PhaseClock:
    """Tells the times that are new since it was asked before.

    Attributes:
        before: all times at that moment; None: it was not asked yet.
    """

    def __init__(self) -> None:
        self.before: Times | None = None

    def read(self, times: Times) -> dict[str, float]:
        """Kind of question -> seconds for which its slowest answer was waited for, since the line before.

        After a restart nobody knows which times are new, so the first line has none, unless there are no older ones.
        """
        before, self.before = self.before, times
        if before is None:
            before = {} if all(len(found) == 1 for found in times.values()) else times
        return {kind: sum(new) for kind, found in times.items() if (new := list_new(before.get(kind, ()), found))}


def list_new(before: tuple[float, ...], now: tuple[float, ...]) -> tuple[float, ...]:
    """Times that were added at the end; where there are LATEST of them, old ones have left at the beginning."""
    if len(now) < LATEST:
        return now[len(before) :]
    gone = next(n for n in range(len(before) + 1) if before[n:] == now[: len(before) - n])
    return now[len(before) - gone :]


def round_seconds(phases: Mapping[str, float]) -> dict[str, float]:
    """For a line of metrics: to a millisecond."""
    return {kind: round(seconds, 3) for kind, seconds in sorted(phases.items())}
