"""Calls of the role: which messages wait for one, which call is next, and what is done about one that went wrong.

    jobs, excuses, the clock -> Task -> engine.perform -> Outcome

Calls are made one by one, in the loop or on the worker's thread. The session saves what a call has brought. Functions
that change the disk are called within the session's transaction.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from logging import Logger
from math import inf
from queue import Empty

from edge_sdk.contract.node import Node, Record
from edge_sdk.contract.records import changed
from edge_sdk.contract.round import LEAP, patience
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Assembly, Outcome, Task, Verb, Worker
from edge_sdk.delivery.roles.members import Members
from edge_sdk.delivery.roles.releases import Releases
from edge_sdk.delivery.roles.round_log import RoundLog
from edge_sdk.delivery.storage.store import NEW_DISK, Job, Store

JOBS, JOB_BYTES = 64, 2**28  # messages of one peer that may wait for the role; their bytes together
BATCH = 64  # messages that the worker is given at once: their outcomes can share a commit
PAUSE = 60.0  # seconds until a start or a close that failed is tried again


class Calls:
    """Calls of one session's role.

    Args:
        wake: called from the worker's thread after each call; None: there is no worker.

    Attributes:
        jobs: messages that wait for the role.
        count, bytes: sender -> how many of these there are, and how large together.
        excuses: children that have refused the run, and the questions that they owe an answer to.
        own_jobs: messages of this node to itself, which wait until its other messages have left.
        latest: number of the parent's latest question, whether worked on or not.
        closed: number of the latest question to which the parent wants no answer any more.
        gave_up: why the latest question was not answered; "": it was, or is being worked on.
        busy: calls that were begun and whose outcome has not been seen.
        void: calls among these whose outcome is to change nothing.
        pause: no start and no close is tried before, by time.monotonic().
        stopping: calls in progress are to be given up.
        unusable: why this node cannot go on in this run; "" if it can.
        late_counts: children's work for a round that the parent has closed counts in a later one.
        releases: children that a round is over without.
        done_files: files of messages that were worked on; the caller removes them after the commit.
    """

    def __init__(
        self,
        name: str,
        parent: str | None,
        assembly: Assembly,
        store: Store,
        members: Members,
        counters: Counters,
        wake: Callable[[], None] | None,
        log: Logger,
    ):
        self.name, self.parent, self.store, self.counters, self.log = name, parent, store, counters, log
        self.members, self.late_counts = members, assembly.late_counts
        self.jobs = deque(store.load_jobs())
        self.count, self.bytes = Counter[str](), Counter[str]()
        for job in self.jobs:
            self.count_job(job, 1)
        self.latest = max((j.number for j in self.jobs if j.sender == parent and j.asks), default=0)
        self.closed, self.gave_up = 0, ""
        self.excuses = deque[Job]()
        self.own_jobs: list[Job] = []
        self.busy = self.void = 0
        self.pause = 0.0
        self.stopping, self.unusable = False, ""
        self.done_files: list[str] = []
        self.worker = Worker(assembly, wake) if wake is not None else None
        self.round_log, self.releases = RoundLog(name, counters, log), Releases(name, parent)

    # -- what is to be done

    def add_job(self, job: Job, lasting: bool) -> None:
        """Add a message that has been taken in. `lasting`: save it, as it may wait for longer than this transaction."""
        self.jobs.append(self.store.save_job(job) if lasting else job)
        self.count_job(job, 1)
        if job.sender == self.parent and job.asks:
            self.latest = max(self.latest, job.number)

    def note_new_disk(self, child: str) -> None:
        """The role is to hear that a child knows nothing yet, or no more. It waits behind the child's answers, once: a
        child may say so without end."""
        latest = next((job for job in reversed(self.jobs) if job.sender == child), None)
        if latest is None or latest.number != NEW_DISK:
            self.add_job(Job(child, NEW_DISK, False, b""), lasting=True)

    def count_job(self, job: Job, change: int) -> None:
        """A job has come (1) or gone (-1)."""
        self.count[job.sender] += change
        self.bytes[job.sender] += change * len(job.body)

    def has_room(self, sender: str, count: int, size: int) -> bool:
        """So many more messages of a peer, of so many bytes together, may wait for the role. One always may."""
        waiting = self.count[sender] + count
        return waiting <= 1 or (waiting <= JOBS and self.bytes[sender] + size <= JOB_BYTES)

    def add_own_jobs(self, jobs: Sequence[Job]) -> None:
        """Save messages of this node to itself."""
        self.own_jobs += [self.store.save_job(job) for job in jobs]

    def save_jobs(self) -> None:
        """Save the messages that are left at the end of a transaction."""
        self.jobs = deque(job if job.id is not None else self.store.save_job(job) for job in self.jobs)

    def after_commit(self) -> None:
        """Let this node's messages to itself wait for the role like others: all else that it sent may leave now."""
        self.jobs += self.own_jobs
        for job in self.own_jobs:
            self.count_job(job, 1)
        self.own_jobs = []

    def excuse_child(self, child: str, number: int) -> None:
        """A child will not answer this question."""
        if not any(excuse.sender == child for excuse in self.excuses):
            self.excuses.append(Job(child, number, False, b""))

    def void_questions(self) -> None:
        """Drop what the parent has asked, and make what is in progress void: it counts from 1 again."""
        for job in [j for j in self.jobs if j.sender == self.parent]:
            self.jobs.remove(job)
            self.drop_job(job)
        self.void, self.latest, self.closed = self.busy, 0, 0

    def drop_job(self, job: Job) -> None:
        """A message that has left the jobs is done with."""
        self.count_job(job, -1)
        if job.id is not None:
            self.store.drop_job(job.id)
        if job.file is not None:
            self.done_files.append(job.file)

    # -- questions whose rounds are over

    def note_closed(self, number: int, record: Record) -> None:
        """The parent wants no answers up to this question: what children work on for them is for nothing, too."""
        if number > self.closed:
            self.closed = number
            if self.is_open_for_nothing(record):
                self.log.info("%s: %s has closed its round without this node", self.name, self.parent)
                self.releases.note_void(record.below)

    def note_arrival(self, child: str, record: Record) -> None:
        """A child has come, and is perhaps to hear that what it was asked is over."""
        self.releases.note_arrival(child, record.below, self.is_open_for_nothing(record))

    def find_latest_asked(self, record: Record) -> int:
        """Number of the latest question that the node has taken, whether it has worked on it or not."""
        return max(record.above, self.latest)

    def is_open_for_nothing(self, record: Record) -> bool:
        """The open round is for an answer that the parent does not want. Where late work counts in a later round,
        above or here, no work of children is for nothing."""
        counts = self.late_counts or record.below.policy.keep_late
        return record.below.open and not counts and 0 < record.above <= self.closed

    @property
    def has_closed(self) -> bool:
        """The next message is a question that was not begun, and whose round is over."""
        job = self.jobs[0] if self.jobs and not self.busy else None
        return job is not None and self.is_question(job) and job.number <= self.closed

    def drop_closed(self) -> None:
        """Drop such questions, as if they had been begun and given up."""
        while self.has_closed:
            job = self.jobs.popleft()
            self.drop_job(job)
            self.note_given_up(job, "had not been begun")

    # -- the next call

    def next_verb(self, record: Record) -> Verb | None:
        """Kind of the next call, if one may be made now."""
        if self.busy or self.unusable:
            return None
        if self.excuses and record.started:
            return "excuse"
        if self.jobs and record.started and not (self.is_question(self.jobs[0]) and self.holds(record)):
            return "arrive"
        if time.monotonic() < max(self.pause, record.below.deadline if record.started else 0.0):
            return None
        return "tick" if record.started else "start"

    def is_question(self, job: Job) -> bool:
        """The parent wants an answer to it."""
        return job.asks and job.sender == self.parent

    def holds(self, record: Record) -> bool:
        """Nobody here wants to train: the parent's questions wait. A round of nobody would only use up the run."""
        below, members = record.below, self.members
        counting = members.list_counting(patience(below), below.policy.quorum) if members.unwilling else ()
        return bool(counting) and members.unwilling.keys() >= set(counting)

    def next_task(self, node: Node, here: tuple[str, ...]) -> Task | None:
        """The next call with all that it needs, if one may be made now. `here`: children that belong to a
        round which is opened now."""
        verb = self.next_verb(node.record)
        if verb is None:
            return None
        unwilling = tuple(sorted(self.members.unwilling))
        if (node.here, node.env.unwilling, node.env.me) != (here, unwilling, self.name):
            node = changed(node, here=here, env=replace(node.env, me=self.name, here=here, unwilling=unwilling))
        waiting = {"arrive": self.jobs, "excuse": self.excuses}.get(verb)
        return Task(verb, node, time.monotonic(), waiting[0] if waiting else None)

    def until_tick(self, record: Record) -> float:
        """Seconds until a call is due although no message has come."""
        if self.busy:
            return inf
        deadline = record.below.deadline if record.started else 0.0
        return max(deadline, self.pause) - time.monotonic()

    # -- calls in progress

    def give_to_worker(self, worker: Worker, task: Task) -> None:
        """Let the worker make this call, and the calls for the messages behind it."""
        jobs = list(self.jobs)[:BATCH] if task.verb == "arrive" else [task.job]
        tasks = [changed(task, job=job) for job in jobs]
        self.busy = len(tasks)
        worker.tasks.put(tasks)

    def take_outcomes(self) -> list[Outcome]:
        """Take the outcomes that the worker has ready."""
        found: list[Outcome] = []
        while self.worker is not None:
            try:
                found.append(self.worker.done.get_nowait())
            except Empty:
                break
        return found

    @property
    def is_cancelled(self) -> bool:
        """The call in progress should be given up: its question is void, or the node stops."""
        task = self.worker.running if self.worker else None
        return self.stopping or (task is not None and self.is_void(task.job))

    def is_void(self, job: Job | None) -> bool:
        """The parent has asked a newer question than this one, or its round is over."""
        if job is None or job.sender != self.parent:
            return False
        return job.number < self.latest or (job.asks and job.number <= self.closed)

    def stop(self, grace: float) -> None:
        """End the worker. A call that does not end within `grace` seconds is made again after the restart."""
        self.stopping = True
        if self.worker is not None:
            self.worker.close(grace)

    # -- their outcomes

    def end_call(self, outcome: Outcome) -> bool:
        """Note that a call has ended; True if its outcome counts, and then the message that it was for is dropped.

        Raises:
            OSError: the disk did not take what it wrote; like a commit that failed, this ends the session.
        """
        self.busy -= 1
        job = outcome.task.job
        if self.void:
            self.void -= 1
            return False  # a void question is gone from the jobs; a child's answer is still there and comes again
        if outcome.cancelled and not self.is_void(job):
            return False  # the node stops, which the role may have heard before us: the call is made again
        if outcome.unsaved is not None:
            raise outcome.unsaved
        if outcome.unusable:
            self.unusable, self.stopping = outcome.unusable, True
            return False  # the message is kept, for a restart with what was wrong put right
        if outcome.task.verb == "excuse":
            self.excuses.popleft()
        elif job is not None:
            self.jobs.popleft()
            self.drop_job(job)
        if outcome.failed:
            self.set_aside(outcome)
        self.count_outcome(outcome)
        if outcome.node is not None:
            self.round_log.note(outcome.task, outcome.node.record.below, self.members.unwilling)
            self.releases.note_call(outcome.task, outcome.node.record.below)
        return True

    def count_outcome(self, outcome: Outcome) -> None:
        """Count and log what was refused, broken or cancelled."""
        sender = outcome.task.job.sender if outcome.task.job else self.name
        if outcome.refused:
            self.counters.count(f"refused.late.{sender}")
            self.log.debug("%s: refused: %s", self.name, outcome.refused)
        if outcome.broken:
            self.counters.count(f"refused.broken.{sender}")
            self.log.warning("%s: dropped a message of %s: %s", self.name, sender, outcome.broken)
        if outcome.cancelled:
            self.counters.count("cancelled")
        if (job := outcome.task.job) is not None and self.is_question(job):
            self.gave_up = ""
            if outcome.cancelled and job.number <= self.closed:
                self.note_given_up(job, "was being worked on")

    def note_given_up(self, job: Job, how_far: str) -> None:
        """Remember that a question of the parent was given up, because its round was over."""
        self.gave_up = f"{job.sender} has closed the round of question {job.number % LEAP}, which {how_far}"
        self.log.info("%s: gave up: %s", self.name, self.gave_up)

    def set_aside(self, outcome: Outcome) -> None:
        """Keep what a role could not work on for a person to look at. It is not tried again by itself."""
        task = outcome.task
        job = task.job or Job(self.name, task.node.record.below.number, False, task.verb.encode())
        if task.job is None:
            self.pause = time.monotonic() + PAUSE
        self.store.quarantine(job, outcome.failed)
        self.counters.count(f"quarantined.{job.sender}")
        self.log.error("%s: %s of %s failed and is set aside:\n%s", self.name, task.verb, job.sender, outcome.failed)
