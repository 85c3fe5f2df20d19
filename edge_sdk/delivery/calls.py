"""Calls of the role: what waits for one, which is next, which are being made, and what one that went wrong leaves.

    jobs, excuses, the clock -> Task -> engine.perform -> Outcome

They are made one by one in the loop, or on the worker's thread. What a call that went right brings is for the session
to save. What changes the disk is called within a transaction of the caller's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from logging import Logger
from math import inf
from queue import Empty

from edge_sdk.contract.node import Node, Record
from edge_sdk.contract.records import changed
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Assembly, Outcome, Task, Verb, Worker
from edge_sdk.delivery.store import Job, Store

BATCH = 64  # messages given to the worker at once: their outcomes can share a commit
PAUSE = 60.0  # seconds until a start or a close that failed is tried again


class Calls:
    """Those of one session.

    Args:
        wake: called from the worker's thread after each call; None: there is no worker.

    Attributes:
        jobs: messages that wait for the role.
        excuses: children that have refused the run, and the questions that they owe an answer to.
        mine: for this node itself, after what it has sent has left.
        latest: number of the parent's latest question, whether worked on or not.
        busy: calls that were begun and whose outcome has not been seen; `void`: those of them that change nothing.
        pause: no start and no close before, by time.time().
        stopping: calls in progress are to be given up.
        unusable: why this node cannot go on in this run; "" if it can.
        done_files: of messages that were worked on, to be removed after the commit, by the caller.
    """

    def __init__(
        self,
        name: str,
        parent: str | None,
        assembly: Assembly,
        store: Store,
        counters: Counters,
        wake: Callable[[], None] | None,
        log: Logger,
    ):
        self.name, self.parent, self.store, self.counters, self.log = name, parent, store, counters, log
        self.jobs = deque(store.jobs())
        self.latest = max((j.number for j in self.jobs if j.sender == parent and j.asks), default=0)
        self.excuses = deque[Job]()
        self.mine: list[Job] = []
        self.busy = self.void = 0
        self.pause = 0.0
        self.stopping, self.unusable = False, ""
        self.done_files: list[str] = []
        self.worker = Worker(assembly, wake) if wake is not None else None

    # -- what is to be done

    def add(self, job: Job, lasting: bool) -> None:
        """A message that has been taken in. `lasting`: it may have to wait for longer than this transaction."""
        self.jobs.append(self.store.save_job(job) if lasting else job)
        if job.sender == self.parent and job.asks:
            self.latest = max(self.latest, job.number)

    def add_mine(self, jobs: Sequence[Job]) -> None:
        self.mine += [self.store.save_job(job) for job in jobs]

    def save_jobs(self) -> None:
        """Those that are left at the end of a transaction."""
        self.jobs = deque(job if job.id is not None else self.store.save_job(job) for job in self.jobs)

    def committed(self) -> None:
        """What this node has sent may leave, so what it has sent to itself is next."""
        self.jobs += self.mine
        self.mine = []

    def excuse(self, child: str, number: int) -> None:
        """It will not answer this question."""
        if not any(excuse.sender == child for excuse in self.excuses):
            self.excuses.append(Job(child, number, False, b""))

    def begin_anew(self) -> None:
        """The parent counts its questions from 1 again: what it has asked, and what is in progress, is void."""
        for job in [j for j in self.jobs if j.sender == self.parent]:
            self.jobs.remove(job)
            if job.id is not None:
                self.store.drop_job(job.id)
            if job.file is not None:
                self.done_files.append(job.file)
        self.void, self.latest = self.busy, 0

    # -- the next call

    def next_verb(self, record: Record) -> Verb | None:
        """The next call to be made, if one may be made now."""
        if self.busy or self.unusable:
            return None
        if self.excuses and record.started:
            return "excuse"
        if self.jobs and record.started:
            return "arrive"
        if time.time() < max(self.pause, record.below.deadline if record.started else 0.0):
            return None
        return "tick" if record.started else "start"

    def next_task(self, node: Node, here: tuple[str, ...]) -> Task | None:
        """The same, with all that it needs. `here`: children that count now."""
        verb = self.next_verb(node.record)
        if verb is None:
            return None
        if node.here != here or node.env.me != self.name:
            node = changed(node, here=here, env=replace(node.env, me=self.name, here=here))
        waiting = {"arrive": self.jobs, "excuse": self.excuses}.get(verb)
        return Task(verb, node, time.time(), waiting[0] if waiting else None)

    def until_tick(self, record: Record) -> float:
        """Seconds until the clock alone makes a call."""
        if self.busy:
            return inf
        deadline = record.below.deadline if record.started else 0.0
        return max(deadline, self.pause) - time.time()

    # -- calls in progress

    def give(self, worker: Worker, task: Task) -> None:
        """Let the worker make this call, and those for the messages behind it."""
        jobs = list(self.jobs)[:BATCH] if task.verb == "arrive" else [task.job]
        tasks = [changed(task, job=job) for job in jobs]
        self.busy = len(tasks)
        worker.tasks.put(tasks)

    def finished(self) -> list[Outcome]:
        """What the worker has come to."""
        found: list[Outcome] = []
        while self.worker is not None:
            try:
                found.append(self.worker.done.get_nowait())
            except Empty:
                break
        return found

    @property
    def cancelled(self) -> bool:
        """The call in progress should be given up: its question is not the parent's latest, or the node stops."""
        task = self.worker.running if self.worker else None
        job = task.job if task else None
        return self.stopping or (job is not None and job.sender == self.parent and job.number < self.latest)

    def stop(self, grace: float) -> None:
        """A call that does not end within `grace` seconds is made again after the restart."""
        self.stopping = True
        if self.worker is not None:
            self.worker.close(grace)

    # -- their outcomes

    def ended(self, outcome: Outcome) -> bool:
        """A call has ended; whether it counts. If so, what it was for is done with, and what went wrong is noted."""
        self.busy -= 1
        job = outcome.task.job
        if self.void:
            self.void -= 1
            return False  # of a parent's question that is void; a child's answer is worked on again
        if outcome.cancelled and self.stopping:
            return False  # it is done again after the restart
        if outcome.unusable:
            self.unusable, self.stopping = outcome.unusable, True
            return False  # the message is kept: after a restart with what was wrong put right it is worked on
        if outcome.task.verb == "excuse":
            self.excuses.popleft()
        elif job is not None:
            self.jobs.popleft()
            if job.id is not None:
                self.store.drop_job(job.id)
            if job.file is not None:
                self.done_files.append(job.file)
        if outcome.failed:
            self.set_aside(outcome)
        self.note(outcome)
        return True

    def note(self, outcome: Outcome) -> None:
        sender = outcome.task.job.sender if outcome.task.job else self.name
        if outcome.refused:
            self.counters.count(f"refused.late.{sender}")
            self.log.debug("%s: refused: %s", self.name, outcome.refused)
        if outcome.broken:
            self.counters.count(f"refused.broken.{sender}")
            self.log.warning("%s: dropped a message of %s: %s", self.name, sender, outcome.broken)
        if outcome.cancelled:
            self.counters.count("cancelled")

    def set_aside(self, outcome: Outcome) -> None:
        """What a role cannot work on is kept for a person to look at, and not tried again at once."""
        task = outcome.task
        job = task.job or Job(self.name, task.node.record.below.number, False, task.verb.encode())
        if task.job is None:
            self.pause = time.time() + PAUSE
        self.store.quarantine(job, outcome.failed)
        self.counters.count(f"quarantined.{job.sender}")
        self.log.error("%s: %s of %s failed and is set aside:\n%s", self.name, task.verb, job.sender, outcome.failed)
