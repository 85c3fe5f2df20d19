"""One run on one node: what a message changes is saved in one commit, before anything leaves.

    message read -> inbox, job                    commit -> acknowledgement
    role called  -> record, outbox, told          commit -> published

Without a worker both are one commit, and all messages that were read together share it. Memory is a copy of the disk:
if a commit fails, the session is thrown away and opened again. No network here; `runtime.py` publishes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import Logger
from math import inf
from queue import Empty
from typing import Any

from edge_sdk import node as nodes
from edge_sdk.changes import changed
from edge_sdk.counters import Counters
from edge_sdk.engine import Assembly, Outcome, Task, Verb, Worker, perform
from edge_sdk.failpoints import reach
from edge_sdk.frames import ACKS_PER_FRAME, Ack, Chunk, Held, Message, Offer
from edge_sdk.inbox import Inbox
from edge_sdk.outgoing import Outgoing
from edge_sdk.run import Run
from edge_sdk.store import Job, Store
from edge_sdk.transfer import Receiver

CHUNK = 64 * 1024  # bytes that travel together, as long as nothing is known of the link
ACK_DELAY = 0.02  # seconds in which an acknowledgement may find a message to travel with
TIDY_DELAY = 0.5  # seconds after which deliveries that are done are deleted, if no other commit comes
COUNTERS_DELAY = 1.0  # seconds between two savings of the counters
KEPT = 0.004  # seconds for which answers wait for others, to be saved together
BATCH = 64  # messages given to the worker at once: their outcomes can share a commit
PAUSE = 60.0  # seconds until a start or a close that failed is tried again


@dataclass(frozen=True)
class Habits:
    """How a node works.

    Attributes:
        worker: calls are made on a thread of their own.
        wait_for: children that must be here before the role starts.
        settle: seconds that a restarted node waits for them, before it goes on without.
        rto: seconds until the first repetition of a message.
        outbox_bytes: of bodies in the outbox; above that the oldest notices go. Questions and answers never do: of
            these there is at most one for each peer.
    """

    worker: bool = True
    wait_for: int = 0
    settle: float = 10.0
    rto: float = 2.0
    outbox_bytes: float = inf


@dataclass
class Session:
    """A node's part in one run.

    Attributes:
        here: children that count now; kept up to date by the caller.
        node: as saved, or as it will be within KEPT seconds.
        waiting: messages read, to be taken in by the next commit.
        jobs: messages that wait for the role.
        acks: peer -> acknowledgements that it has not been sent.
        stopping: calls in progress are to be given up.
        chunk: bytes that travel together in messages from now on.
        latest: number of the parent's latest question, whether worked on or not.
        unusable: why this node cannot go on in this run; "" if it can.
        busy: calls given to the worker whose outcome has not been seen; `void`: those of them that change nothing.
    """

    name: str
    parent: str | None
    run: Run
    assembly: Assembly
    store: Store
    habits: Habits
    counters: Counters
    tell: Callable[[int, Any], None]
    wake: Callable[[], None]
    log: Logger
    here: tuple[str, ...] = ()
    waiting: dict[tuple[str, int], Message] = field(default_factory=dict)
    acks: dict[str, list[Ack]] = field(default_factory=dict)
    ack_at: float = inf
    stopping: bool = False
    chunk: int = CHUNK
    latest: int = 0
    unusable: str = ""
    busy: int = 0
    void: int = 0
    settled: bool = False
    pause: float = 0.0

    def __post_init__(self) -> None:
        self.opened = time.monotonic()
        self.inbox = Inbox(self.store)
        self.outgoing = Outgoing(self.store, self.counters, self.habits.rto, self.habits.outbox_bytes)
        self.outbox, self.sender = self.outgoing.outbox, self.outgoing.sender
        self.store.files.sweep(self.store.used_files(), parts=False)
        self.receiver = Receiver(self.store.files)
        last: dict[str, nodes.Envelope] = {}
        for sent in self.outgoing.load():
            last |= {d: nodes.Envelope(self.name, d, sent.number, None, sent.asks) for d in sent.receivers}
        self.node = self.saved_node(last)
        self.restarted = self.node.record.started
        self.saved = self.node.record
        self.took: dict[tuple[str, int], Message] = {}  # in the transaction that is open: acknowledged when it is saved
        self.sent = self.outbox.seq  # below it everything is saved
        self.kept = inf  # when that was left open, by time.monotonic()
        self.jobs = deque(self.store.jobs())
        self.latest = max((j.number for j in self.jobs if j.sender == self.parent and j.asks), default=0)
        self.mine: list[Job] = []  # for this node itself, after what it has sent has left
        self.excuses = deque[Job]()  # children that have refused the run, and the questions that they owe an answer to
        self.told = [(id, self.assembly.records.decode(body)) for id, body in self.store.told()]
        self.done_told: list[int] = []
        self.done_files: list[str] = []
        self.arrived: dict[tuple[str, int], str] = {}  # files of messages that came in pieces
        self.tidy_at, self.count_at = inf, time.monotonic() + COUNTERS_DELAY
        self.worker = Worker(self.assembly, self.wake) if self.habits.worker else None

    def saved_node(self, last: Mapping[str, nodes.Envelope]) -> nodes.Node:
        fresh = nodes.new(
            self.name, self.assembly.role, self.assembly.env, self.parent, self.assembly.policy, time.time()
        )
        saved = self.store.record()
        if saved is None:
            return fresh
        record = changed(self.assembly.records.decode(saved), last=last)
        policy = changed(record.below, policy=self.assembly.policy)  # may have been changed since
        return changed(fresh, record=changed(record, below=policy))

    # -- what the network brings

    def take(self, m: Message) -> str:
        """A message that has been read; the inbox's verdict."""
        verdict = self.inbox.verdict(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict == "new":
            self.waiting[m.src, m.seq] = m
        elif verdict == "duplicate":
            self.owe_ack(m)
        return verdict

    def take_piece(self, f: Chunk | Offer) -> str:
        """A piece of a message that has been read; what it was."""
        m = Message(f.run, f.src, f.epoch, f.seq, f.lo, (), f.number, f.asks)
        verdict = self.inbox.verdict(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict != "new":
            if verdict == "duplicate" and (isinstance(f, Offer) or f.report):
                self.owe_ack(m)
            return verdict
        verdict, file = self.receiver.take(f)
        reach("chunk")
        if file is not None:
            reach("assembled")
            self.waiting[m.src, m.seq] = changed(m, body=self.store.files.read(file))
            self.arrived[m.src, m.seq] = file
        return verdict

    def take_reports(self, src: str, parts: Iterable[Held]) -> None:
        now = time.monotonic()
        for held in parts:
            if held.to == self.name and held.epoch == self.store.epoch:
                self.outgoing.reported(src, held, now)

    def take_acks(self, src: str, acks: Iterable[Ack]) -> None:
        """Acknowledgements by `src`, perhaps among others' for other nodes."""
        now = time.monotonic()
        for to, epoch, seq in acks:
            if to == self.name and epoch == self.store.epoch and self.outgoing.acked(src, seq, now):
                self.tidy_at = min(self.tidy_at, now + TIDY_DELAY)

    def meet(self, name: str, epoch: int) -> None:
        """A peer has said which disk it has. If it is another one, it knows nothing of what was said before."""
        if not self.inbox.is_new(name, epoch):
            return
        known = name in self.inbox.peers
        self.end_kept()
        with self.store.transaction():
            self.inbox.renew(name, epoch)
            if known:
                self.forget_disk_of(name)
        self.waiting = {key: m for key, m in self.waiting.items() if m.src != name or m.epoch == epoch}
        self.receiver.forget(name, epoch)

    def forget_disk_of(self, name: str) -> None:
        self.counters.count(f"replaced.{name}")
        self.log.warning("%s: %s has lost its memory of this run", self.name, name)
        if name == self.parent:
            self.begin_anew()
        if name in self.node.record.below.owed:
            self.outgoing.again(name)

    def begin_anew(self) -> None:
        """The parent counts its questions from 1 again: what it asked before, and what it was answered, is void."""
        assert self.parent is not None
        for job in [j for j in self.jobs if j.sender == self.parent]:
            self.jobs.remove(job)
            if job.id is not None:
                self.store.drop_job(job.id)
        for out in self.outbox.waiting(self.parent):
            self.outgoing.give_up(out, self.parent)
        self.void, self.latest = self.busy, 0
        self.node = nodes.with_record(self.node, above=0)
        self.save_record()

    def excuse(self, child: str) -> None:
        """It cannot take part in the run: what it owes is not waited for."""
        number = self.node.record.below.owed.get(child)
        if number is not None and not any(excuse.sender == child for excuse in self.excuses):
            self.excuses.append(Job(child, number, False, b""))

    # -- the transaction

    def commit(self, now: float) -> None:
        """Take in what was read, work as far as may be, save all of it. `now`: time.monotonic()."""
        self.settled = self.settled or self.may_settle(now)
        outcomes = self.finished()
        work = not self.worker and self.next_verb() is not None
        idle = not (self.waiting or outcomes or work or self.told)
        if idle and not self.is_untidy(now) and now < self.kept + KEPT:
            self.dispatch()
            return
        if self.waiting:
            reach("read")
        self.took |= self.waiting
        with self.store.transaction(lambda: self.kept < inf):
            self.tidy(now)
            self.take_in()
            for outcome in outcomes:
                self.apply(outcome)
            if not self.worker:
                self.work()
            self.outgoing.bound()
            self.kept = min(self.kept, now) if self.may_be_kept(now) else inf
            if self.kept == inf and self.node.record is not self.saved:
                self.save_record()
        if self.kept == inf:
            self.committed()
        self.dispatch()
        if idle and self.kept == inf:
            self.store.rest()

    def may_be_kept(self, now: float) -> bool:
        """Nothing new may leave, and answers to the same question are to come: they can be saved together."""
        below = self.node.record.below
        waits = below.open and below.owed and not self.worker and not self.stopping and now < self.kept + KEPT
        files = self.done_files or self.outgoing.done_files
        news = self.outbox.seq != self.sent or self.told or self.mine or self.jobs or files
        return bool(waits) and not news

    def end_kept(self) -> None:
        """Commit what was kept open."""
        if self.kept < inf:
            self.kept = inf
            with self.store.transaction():
                self.save_record()
            self.committed()

    def committed(self) -> None:
        """What follows from a commit."""
        self.counters["commits"] += 1  # not worth a commit of its own
        for m in self.took.values():
            self.owe_ack(m)
        self.took, self.sent = {}, self.outbox.seq
        self.remove_files()
        self.jobs += self.mine
        self.mine = []
        self.tell_all()

    def remove_files(self) -> None:
        """Those of messages that are done with, here and at their receivers."""
        done = self.done_files + self.outgoing.done_files
        if done:
            self.store.files.remove(done)
            self.done_files, self.outgoing.done_files = [], []

    def save_record(self) -> None:
        self.saved = self.node.record
        self.store.save_record(self.assembly.records.encode(changed(self.node.record, last={})))

    def take_in(self) -> None:
        took, self.waiting = list(self.waiting.values()), {}
        for m in took:
            self.inbox.note(m)
            job = Job(m.src, m.number, m.asks, m.body, file=self.arrived.pop((m.src, m.seq), None))
            self.jobs.append(self.store.save_job(job) if self.worker or not self.settled else job)
            if m.src == self.parent and m.asks:
                self.latest = max(self.latest, m.number)

    def work(self) -> None:
        """Without a worker: everything there is to do, in the transaction that is open."""
        while task := self.next_task():
            self.busy = 1
            self.apply(perform(self.assembly, task))
        self.jobs = deque(j if j.id is not None else self.store.save_job(j) for j in self.jobs)

    def dispatch(self) -> None:
        if self.worker and not self.stopping and (task := self.next_task()):
            jobs = list(self.jobs)[:BATCH] if task.verb == "arrive" else [task.job]
            tasks = [changed(task, job=job) for job in jobs]
            self.busy = len(tasks)
            self.worker.tasks.put(tasks)

    def finished(self) -> list[Outcome]:
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

    def next_verb(self) -> Verb | None:
        """The next call to be made, if one may be made now."""
        if self.busy or not self.settled or self.unusable:
            return None
        record = self.node.record
        if self.excuses and record.started:
            return "excuse"
        if self.jobs and record.started:
            return "arrive"
        if time.time() < max(self.pause, record.below.deadline if record.started else 0.0):
            return None
        return "tick" if record.started else "start"

    def next_task(self) -> Task | None:
        verb = self.next_verb()
        if verb is None:
            return None
        if self.node.here != self.here or self.node.env.me != self.name:
            env = replace(self.node.env, me=self.name, here=self.here)
            self.node = changed(self.node, here=self.here, env=env)
        waiting = {"arrive": self.jobs, "excuse": self.excuses}.get(verb)
        return Task(verb, self.node, time.time(), waiting[0] if waiting else None)

    def apply(self, outcome: Outcome) -> None:
        """Write what a call came to."""
        self.busy -= 1
        job = outcome.task.job
        if self.void:
            self.void -= 1
            return  # of a parent's question that is void; a child's answer is worked on again
        if outcome.cancelled and self.stopping:
            return  # it is done again after the restart
        if outcome.unusable:
            self.unusable, self.stopping = outcome.unusable, True
            return  # the message is kept: after a restart with what was wrong put right it is worked on
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
        if outcome.node is not None:
            self.node = outcome.node
        for parcel in outcome.parcels:
            self.outgoing.send(parcel, self.chunk, self.here)
        self.mine += [self.store.save_job(j) for j in outcome.jobs]
        self.told += [(self.store.save_told(encoded), message) for message, encoded in outcome.told]

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
        job = task.job or Job(self.name, self.node.record.below.number, False, task.verb.encode())
        if task.job is None:
            self.pause = time.time() + PAUSE
        self.store.quarantine(job, outcome.failed)
        self.counters.count(f"quarantined.{job.sender}")
        self.log.error("%s: %s of %s failed and is set aside:\n%s", self.name, task.verb, job.sender, outcome.failed)

    def is_untidy(self, now: float) -> bool:
        expired = time.time() >= self.outbox.expiry()
        return now >= self.tidy_at or (self.counters.dirty and now >= self.count_at) or expired

    def tidy(self, now: float, all: bool = False) -> None:
        """Delete what is done. A crash before costs a duplicate that is dropped."""
        self.outgoing.tidy()
        if self.done_told:
            self.store.drop_told(self.done_told)
        self.done_told, self.tidy_at = [], inf
        if self.counters.dirty and (all or now >= self.count_at):
            self.store.save_counters(self.counters)
            self.counters.dirty, self.count_at = False, now + COUNTERS_DELAY

    def tell_all(self) -> None:
        """Hand to the application what it has not had. An exception there is its own affair, and is logged."""
        told, self.told = self.told, []
        for id, message in told:
            try:
                self.tell(id, message)
                reach("told")
            except Exception:
                self.counters.count("told_failed")
                self.log.exception("%s: the application failed on %s", self.name, type(message).__name__)
            self.done_told.append(id)
            self.tidy_at = min(self.tidy_at, time.monotonic() + TIDY_DELAY)

    # -- acknowledgements

    def owe_ack(self, m: Message) -> None:
        self.acks.setdefault(m.src, []).append((m.src, m.epoch, m.seq))
        self.ack_at = min(self.ack_at, time.monotonic() + ACK_DELAY)

    def acks_for(self, peers: Sequence[str]) -> tuple[Ack, ...]:
        """Acknowledgements that may travel in a frame to these peers; they are owed no more."""
        found: list[Ack] = []
        for peer in peers:
            mine = self.acks.pop(peer, [])
            room = ACKS_PER_FRAME - len(found)
            found += mine[:room]
            if mine[room:]:
                self.acks[peer] = mine[room:]
        if not self.acks:
            self.ack_at = inf
        return tuple(found)

    # -- time

    def may_settle(self, now: float) -> bool:
        """Enough children are here, or a restarted node has waited for them long enough."""
        return len(self.here) >= self.habits.wait_for or (self.restarted and now >= self.opened + self.habits.settle)

    @property
    def ready(self) -> bool:
        return self.settled and self.node.record.started

    def timer(self, now: float) -> float:
        """Seconds until `commit` or the outbox has something to do."""
        if self.told or (not self.worker and self.next_verb()):
            return 0.0
        settle = self.opened + self.habits.settle if self.restarted and not self.settled else inf
        count = self.count_at if self.counters.dirty else inf
        end = min(self.tidy_at, self.outbox.timer(), self.ack_at, settle, count, self.kept + KEPT)
        return min(end - now, self.outbox.expiry() - time.time(), self.until_tick())

    def until_tick(self) -> float:
        if self.busy or not self.settled:
            return inf
        deadline = self.node.record.below.deadline if self.node.record.started else 0.0
        return max(deadline, self.pause) - time.time()

    # -- end

    def close(self, grace: float) -> None:
        """Save what is done; a call that does not end within `grace` seconds is made again after the restart."""
        self.stopping = True
        if self.worker is not None:
            self.worker.close(grace)
        self.end_kept()
        with self.store.transaction():
            for outcome in self.finished():
                self.apply(outcome)
            self.save_record()
            self.tidy(time.monotonic(), all=True)
        self.remove_files()
        self.receiver.close()
        self.store.close()
