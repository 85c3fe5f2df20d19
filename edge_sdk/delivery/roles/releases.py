"""Children that a round of this node is over without: each is to be told, so that it does not train for nothing.

The word is not saved and not repeated: lost, it costs a child's energy and nothing else, and who comes again hears it
anew. A child that is asked the next question needs none, since a newer question makes the older one void.

A node between two others passes it on: when its parent wants no answer any more, all that its children work on for that
is for nothing, although its own round is still open. It stays open, since it costs nothing, and an answer that was on
its way counts in it as it always did; the parent's next question ends it. It does not pass the word on where the method
says that such work counts in a later round (`Method.late_counts`: a hospital goes on, and mixes when it is ready).
"""

from __future__ import annotations

from edge_sdk.contract.round import Round
from edge_sdk.delivery.roles.engine import Task


class Releases:
    """Words that are yet to be said.

    Args:
        name: of this node, which may ask itself and needs no word.
        parent: of this node.
    """

    def __init__(self, name: str, parent: str | None) -> None:
        self.others = {name, parent}
        self.latest: dict[str, int] = {}

    def note_call(self, task: Task, after: Round) -> None:
        """Note who owed an answer before a call, has not given it by that, and owes none after it."""
        before = task.node.record.below
        if (before.number, before.closes) == (after.number, after.closes):
            return  # no debt has gone but that of the sender; among thousands, a look at all for each answer is dear
        owed, answered = before.owed, set() if task.job is None else {task.job.sender}
        self.latest |= {child: owed[child] for child in owed.keys() - after.owed.keys() - answered - self.others}

    def note_void(self, below: Round) -> None:
        """The answer to which this round is to lead is not wanted any more: tell all who still work for it."""
        self.latest |= {child: number for child, number in below.owed.items() if child not in self.others}

    def note_arrival(self, child: str, below: Round, void: bool) -> None:
        """A child has come. If it owes nothing, or the round is `void`, then whatever it was asked before is over."""
        if child not in self.others and below.number and (void or child not in below.owed):
            self.latest[child] = below.number

    def take(self) -> dict[str, int]:
        """Take them all: child -> number of the latest question to which no answer is wanted."""
        found, self.latest = self.latest, {}
        return found
