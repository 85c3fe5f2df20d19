"""Says in the log which deadline a node's questions have, and who was not asked or not waited for any longer."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger

from edge_sdk.contract import round as rounds
from edge_sdk.contract.children.device_facts import Reason
from edge_sdk.contract.children.patience import FACTOR, usual_time
from edge_sdk.contract.round import Round
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Task
from edge_sdk.delivery.roles.listing import list_some

NEWS = 1.5  # a deadline that has changed by this factor is said again


class RoundLog:
    """Watches the rounds of one node. `said`: kind of question -> the deadline that was said last, in seconds."""

    def __init__(self, name: str, counters: Counters, log: Logger):
        self.name, self.counters, self.log = name, counters, log
        self.said: dict[str, float] = {}

    def note(self, task: Task, after: Round, unwilling: Mapping[str, Reason]) -> None:
        """Note what a call has done to the round. `unwilling`: child that wants no training now -> why."""
        before = task.node.record.below
        if after.closes > before.closes and task.now >= before.deadline:
            self.note_late(before, task)
        if after.number > before.number and after.open:
            self.note_unwilling(after, unwilling)
        if after.number > before.number and after.open and after.policy.measured:
            self.say_deadline(after)

    def note_unwilling(self, after: Round, unwilling: Mapping[str, Reason]) -> None:
        """Say who was not asked in a new round of this node, because it wants no training now."""
        for child in sorted(unwilling.keys() - after.owed.keys()):
            self.counters.count(f"unwilling.{child}")
            self.log.info("%s: %s is not in round %d: %s", self.name, child, after.closes + 1, unwilling[child])

    def note_late(self, before: Round, task: Task) -> None:
        """The deadline has ended a round."""
        answered = {task.job.sender} if task.job is not None else set()
        late = sorted(before.owed.keys() - answered)
        for child in late:
            self.counters.count(f"late.{child}")
        if late:
            number, seconds, who = rounds.count_questions(before), rounds.patience(before), list_some(late)
            self.log.warning("%s: question %d is over after %.0f s without %s", self.name, number, seconds, who)

    def say_deadline(self, r: Round) -> None:
        deadline, usual = rounds.patience(r), usual_time(r.times, r.kind)
        said = self.said.get(r.kind)
        if said is not None and said / NEWS < deadline < said * NEWS:
            return
        self.said[r.kind] = deadline
        why = f"{FACTOR:.0f} times the usual {usual or 0:.3g} s, at least {r.policy.least:g} s"
        why = why if usual is not None else "nothing of that kind has been measured yet"
        self.log.info("%s: deadline of %s: %.0f s (%s)", self.name, r.kind, deadline, why)
