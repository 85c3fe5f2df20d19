"""Offers of parents: runs that are looked at before they are taken up, and those of two parents of one name, by whose
hellos their child would go to and fro between two runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import Logger
from math import inf
from typing import TypeVar

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError

Made = TypeVar("Made")

PATIENCE = 30.0  # seconds without a word in the present run, after which an earlier one may be gone back to


def assemble_offered(
    run: Run, check: Callable[[Run], None], assemble: Callable[[Run], Made], name: str, log: Logger
) -> Made:
    """What to play in a run that has come from a peer: whatever is wrong with it must not end this node.

    Args:
        check: UsageError: the run is not to be trusted.
        name: of the node, for the log.

    Raises:
        UsageError: the run cannot be used here.
    """
    try:
        check(run)
        return assemble(run)
    except (UsageError, OSError):
        raise
    except Exception as e:
        log.exception("%s: run %s cannot be assembled", name, run.id)
        raise UsageError(f"it cannot be assembled here ({type(e).__name__}: {e})") from e


class Turns:
    """The changes of one node from run to run.

    If a child followed both parents, neither run would ever end. So it stays in the run to which it has gone last for
    as long as that one's parent is heard, unless this says goodbye: then somebody lets one run wait for another.

    Attributes:
        left: runs that were left for another one since the node was started.
        heard_at: when the parent was last heard in the present run, by time.monotonic(); -inf: not since a goodbye.
    """

    def __init__(self) -> None:
        self.left: set[str] = set()
        self.heard_at = -inf

    def note_change(self, before: str, run: str) -> None:
        """The node has gone from one run ("": from none) to another one."""
        self.left = (self.left | ({before} if before else set())) - {run}
        self.heard()

    def heard(self) -> None:
        """The parent has said something in the present run."""
        self.heard_at = time.monotonic()

    def end(self) -> None:
        """The parent has said goodbye."""
        self.heard_at = -inf

    def are_taken(self, run: str) -> bool:
        """Two parents take turns, if this run is offered now."""
        return run in self.left and time.monotonic() <= self.heard_at + PATIENCE
