"""One run on one node: what a message changes is saved in one commit, before anything leaves.

    message read -> inbox, job                    commit -> acknowledgement
    role called  -> record, outbox, told          commit -> published

Without a worker both are one commit, and all messages that were read together share it. Memory is a copy of the disk:
if a commit fails, the session is thrown away and opened again. No network here; `runtime.py` publishes.

What a commit holds is kept in four places: `incoming.py` (messages read), `calls.py` (of the role), `outgoing.py`
(messages sent), `telling.py` (for the application). Here are the node's record, and the one transaction of them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from math import inf
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract.records import changed
from edge_sdk.contract.run import Run
from edge_sdk.delivery.calls import Calls
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Assembly, Outcome, Task, Verb, perform
from edge_sdk.delivery.events import Telling
from edge_sdk.delivery.incoming import Incoming
from edge_sdk.delivery.outgoing import Outgoing
from edge_sdk.delivery.store import Store
from edge_sdk.wire.frames import Ack, Chunk, Held, Message, Offer

CHUNK = 64 * 1024  # bytes that travel together, as long as nothing is known of the link
TIDY_DELAY = 0.5  # seconds after which deliveries that are done are deleted, if no other commit comes
COUNTERS_DELAY = 1.0  # seconds between two savings of the counters
KEPT = 0.004  # seconds for which answers wait for others, to be saved together


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
        chunk: bytes that travel together in messages from now on.
        settled: enough children have been here, or been waited for: the role may be called.
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
    chunk: int = CHUNK
    settled: bool = False

    def __post_init__(self) -> None:
        self.opened = time.monotonic()
        self.outgoing = Outgoing(self.store, self.counters, self.habits.rto, self.habits.outbox_bytes)
        self.outbox, self.sender = self.outgoing.outbox, self.outgoing.sender
        self.store.files.sweep(self.store.used_files(), parts=False)
        self.incoming = Incoming(self.store)
        self.inbox, self.receiver, self.acks = self.incoming.inbox, self.incoming.receiver, self.incoming.acks
        last: dict[str, nodes.Envelope] = {}
        for sent in self.outgoing.load():
            last |= {d: nodes.Envelope(self.name, d, sent.number, None, sent.asks) for d in sent.receivers}
        self.node = self.saved_node(last)
        self.restarted = self.node.record.started
        self.saved = self.node.record
        self.sent = self.outbox.seq  # below it everything is saved
        self.kept = inf  # when that was left open, by time.monotonic()
        self.telling = Telling(self.name, self.store, self.assembly.records, self.tell, self.counters, self.log)
        self.tidy_at, self.count_at = inf, time.monotonic() + COUNTERS_DELAY
        wake = self.wake if self.habits.worker else None
        self.calls = Calls(self.name, self.parent, self.assembly, self.store, self.counters, wake, self.log)

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
        return self.incoming.take(m)

    def take_piece(self, f: Chunk | Offer) -> str:
        """A piece of a message that has been read; what it was."""
        return self.incoming.take_piece(f)

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
        self.incoming.forget(name, epoch)

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
        self.calls.begin_anew()
        for out in self.outbox.waiting(self.parent):
            self.outgoing.give_up(out, self.parent)
        self.node = nodes.with_record(self.node, above=0)
        self.save_record()

    def excuse(self, child: str) -> None:
        """It cannot take part in the run: what it owes is not waited for."""
        number = self.node.record.below.owed.get(child)
        if number is not None:
            self.calls.excuse(child, number)

    # -- the transaction

    def commit(self, now: float) -> None:
        """Take in what was read, work as far as may be, save all of it. `now`: time.monotonic()."""
        self.settled = self.settled or self.may_settle(now)
        outcomes = self.calls.finished()
        work = not self.calls.worker and self.next_verb() is not None
        idle = not (self.incoming.waiting or outcomes or work or self.telling.told)
        if idle and not self.is_untidy(now) and now < self.kept + KEPT:
            self.dispatch()
            return
        self.incoming.begin()
        with self.store.transaction(lambda: self.kept < inf):
            self.tidy(now)
            for job in self.incoming.take_in():
                self.calls.add(job, lasting=self.calls.worker is not None or not self.settled)
            for outcome in outcomes:
                self.apply(outcome)
            if not self.calls.worker:
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
        below, calls = self.node.record.below, self.calls
        waits = below.open and below.owed and not calls.worker and not calls.stopping and now < self.kept + KEPT
        files = calls.done_files or self.outgoing.done_files
        news = self.outbox.seq != self.sent or self.telling.told or calls.mine or calls.jobs or files
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
        self.incoming.committed()
        self.sent = self.outbox.seq
        self.remove_files()
        self.calls.committed()
        self.tidy_at = min(self.tidy_at, self.telling.tell_all() + TIDY_DELAY)

    def remove_files(self) -> None:
        """Those of messages that are done with, here and at their receivers."""
        done = self.calls.done_files + self.outgoing.done_files
        if done:
            self.store.files.remove(done)
            self.calls.done_files, self.outgoing.done_files = [], []

    def save_record(self) -> None:
        self.saved = self.node.record
        self.store.save_record(self.assembly.records.encode(changed(self.node.record, last={})))

    def is_untidy(self, now: float) -> bool:
        expired = time.time() >= self.outbox.expiry()
        return now >= self.tidy_at or (self.counters.dirty and now >= self.count_at) or expired

    def tidy(self, now: float, all: bool = False) -> None:
        """Delete what is done. A crash before costs a duplicate that is dropped."""
        self.outgoing.tidy()
        self.telling.tidy()
        self.tidy_at = inf
        if self.counters.dirty and (all or now >= self.count_at):
            self.store.save_counters(self.counters)
            self.counters.dirty, self.count_at = False, now + COUNTERS_DELAY

    # -- calls of the role

    def next_verb(self) -> Verb | None:
        return self.calls.next_verb(self.node.record) if self.settled else None

    def next_task(self) -> Task | None:
        task = self.calls.next_task(self.node, self.here) if self.settled else None
        if task is not None:
            self.node = task.node
        return task

    def work(self) -> None:
        """Without a worker: everything there is to do, in the transaction that is open."""
        while task := self.next_task():
            self.calls.busy = 1
            self.apply(perform(self.assembly, task))
        self.calls.save_jobs()

    def dispatch(self) -> None:
        worker = self.calls.worker
        if worker and not self.calls.stopping and (task := self.next_task()):
            self.calls.give(worker, task)

    def apply(self, outcome: Outcome) -> None:
        """Write what a call came to."""
        if not self.calls.ended(outcome):
            return
        if outcome.node is not None:
            self.node = outcome.node
        for parcel in outcome.parcels:
            self.outgoing.send(parcel, self.chunk, self.here)
        self.calls.add_mine(outcome.jobs)
        self.telling.add(outcome.told)

    @property
    def latest(self) -> int:
        """Number of the parent's latest question, whether worked on or not."""
        return self.calls.latest

    # -- acknowledgements

    @property
    def ack_at(self) -> float:
        """When acknowledgements leave even if no message takes them along, by time.monotonic()."""
        return self.incoming.ack_at

    def acks_for(self, peers: Sequence[str]) -> tuple[Ack, ...]:
        """Acknowledgements that may travel in a frame to these peers; they are owed no more."""
        return self.incoming.acks_for(peers)

    # -- time

    def may_settle(self, now: float) -> bool:
        """Enough children are here, or a restarted node has waited for them long enough."""
        return len(self.here) >= self.habits.wait_for or (self.restarted and now >= self.opened + self.habits.settle)

    @property
    def ready(self) -> bool:
        return self.settled and self.node.record.started

    def timer(self, now: float) -> float:
        """Seconds until `commit` or the outbox has something to do."""
        if self.telling.told or (not self.calls.worker and self.next_verb()):
            return 0.0
        settle = self.opened + self.habits.settle if self.restarted and not self.settled else inf
        count = self.count_at if self.counters.dirty else inf
        end = min(self.tidy_at, self.outbox.timer(), self.incoming.ack_at, settle, count, self.kept + KEPT)
        tick = self.calls.until_tick(self.node.record) if self.settled else inf
        return min(end - now, self.outbox.expiry() - time.time(), tick)

    # -- end

    def close(self, grace: float) -> None:
        """Save what is done; a call that does not end within `grace` seconds is made again after the restart."""
        self.calls.stop(grace)
        self.end_kept()
        with self.store.transaction():
            for outcome in self.calls.finished():
                self.apply(outcome)
            self.save_record()
            self.tidy(time.monotonic(), all=True)
        self.remove_files()
        self.receiver.close()
        self.store.close()
