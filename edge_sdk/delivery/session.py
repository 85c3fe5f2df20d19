"""One run on one node: what a message changes is saved in one commit, before anything leaves.

    message read -> inbox, job                    commit -> acknowledgement
    role called  -> record, outbox, told          commit -> published

Each message must count exactly once, although the process may be killed between any two instructions. An
acknowledgement that left before the commit could be of a message that a kill then loses; an answer that left before it
could be given a second time, and differently. So everything that a message changes is one transaction, and nothing is
published before it is committed. A kill before the commit leaves the store as it was: the peer repeats its message,
and the role is called again with the same state. A kill after it leaves at worst a message that is sent a second time,
which the receiver's inbox drops.

With a worker there are two such transactions for each message, as above; without one they are one, and all messages
that were read together share it. Memory is a copy of the disk: if a commit fails, the session is thrown away and opened
again. There is no network here; the runtime publishes. Messages read are in `incoming.py`, calls of the role in
`calls.py`, messages to be sent in `outgoing.py`, events for the application in `events.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import Logger
from math import inf
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract import round as rounds
from edge_sdk.contract.records import changed
from edge_sdk.contract.run import Run
from edge_sdk.delivery.messages.incoming import Incoming
from edge_sdk.delivery.messages.outgoing import Outgoing
from edge_sdk.delivery.roles.beginning import Beginning
from edge_sdk.delivery.roles.calls import Calls
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Assembly, Outcome, Task, Verb, perform
from edge_sdk.delivery.roles.events import Events
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.roles.loading import load_node
from edge_sdk.delivery.roles.members import Members
from edge_sdk.delivery.roles.renumbering import go_on_from_backup
from edge_sdk.delivery.storage.store import Store
from edge_sdk.wire.frames import Ack, Chunk, ChunkReport, Message, Offer

CHUNK = 64 * 1024  # bytes that travel together, as long as nothing is known of the link
TIDY_DELAY = 0.5  # seconds after which rows of messages that are done with are deleted, if no other commit comes
COUNTERS_DELAY = 1.0  # seconds between two savings of the counters
STAY_OPEN = 0.01  # seconds for which a transaction stays open for more answers, to save them together


@dataclass
class Session:
    """A node's part in one run.

    Attributes:
        children: who may take part below this node.
        members: children that belong to the rounds, and which of them are here; the caller keeps it up to date.
        node: as saved, or as it will be saved within STAY_OPEN seconds.
        chunk: bytes that travel together in messages from now on.
        settled: the role may be called: enough children have been here, or been waited for.
        saved: the node's record as it was last written.
        sent: number of the first message that is not committed yet.
        open_since: when the open transaction was left open, by time.monotonic(); inf: none is open.
        tidy_at, count_at: when done messages are to be deleted and counters to be saved, by time.monotonic().
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
    children: frozenset[str] = frozenset()
    chunk: int = CHUNK
    settled: bool = False

    def __post_init__(self) -> None:
        self.outgoing = Outgoing(self.store, self.counters, self.habits.rto, self.habits.outbox_bytes)
        self.outbox, self.transfers_out = self.outgoing.outbox, self.outgoing.transfers_out
        self.store.files.sweep(self.store.list_used_files(), parts=False)
        self.incoming = Incoming(self.store)
        self.inbox, self.transfers_in, self.acks = self.incoming.inbox, self.incoming.transfers_in, self.incoming.acks
        loaded = load_node(self.name, self.parent, self.assembly, self.store, self.outgoing.load())
        self.node = go_on_from_backup(loaded, self.store, self.assembly.records, self.log)
        self.members = Members(self.store, self.children, self.assembly.env.sizes, self.assembly.may_decline)
        self.restarted = self.node.record.started
        waits = self.assembly.patient, self.assembly.joins_later, self.assembly.policy.deadline
        self.beginning = Beginning(self.habits, self.members, self.restarted, *waits)
        self.outgoing.recover_commits(self.node.record.below.owed)
        self.saved, self.sent = self.node.record, self.outbox.seq
        self.open_since = inf
        self.events = Events(self.name, self.store, self.assembly.records, self.tell, self.counters, self.log)
        self.tidy_at, self.count_at = inf, time.monotonic() + COUNTERS_DELAY
        wake = self.wake if self.habits.worker else None
        parts = (self.assembly, self.store, self.members, self.counters)
        self.calls = Calls(self.name, self.parent, *parts, wake, self.log)

    # -- what the network brings

    @property
    def counting(self) -> tuple[str, ...]:
        """Names of the children that belong to a round which is opened now, and may be asked."""
        below = self.node.record.below
        return self.members.list_asked(rounds.patience(below), below.policy.quorum)

    def take_message(self, m: Message) -> str:
        """Take a message that has been read; returns the inbox's verdict."""
        if not self.has_room(m.src, len(m.body)):
            return "crowded"
        return self.incoming.take_message(m)

    def take_piece(self, f: Chunk | Offer) -> str:
        """Take a chunk or an offer that has been read; returns what it was."""
        if not self.has_room(f.src, f.size):
            return "crowded"
        return self.incoming.take_piece(f)

    def has_room(self, src: str, size: int) -> bool:
        """Another message of this peer may wait for the role. Else it is not taken in, and its sender repeats it."""
        count, waiting = self.incoming.load.get(src, (0, 0))
        return self.calls.has_room(src, count + 1, waiting + size)

    def take_reports(self, src: str, reports: Iterable[ChunkReport]) -> None:
        """Take what `src` says it has of bodies that are sent in chunks."""
        now = time.monotonic()
        for report in reports:
            if report.to == self.name and report.epoch == self.store.epoch:
                self.outgoing.note_report(src, report, now)

    def take_acks(self, src: str, acks: Iterable[Ack]) -> None:
        """Take acknowledgements by `src`. In a frame to all children there may be some for other nodes."""
        now = time.monotonic()
        for to, epoch, seq in acks:
            if to == self.name and epoch == self.store.epoch and self.outgoing.note_ack(src, seq, now):
                self.tidy_at = min(self.tidy_at, now + TIDY_DELAY)

    def meet_peer(self, name: str, epoch: int) -> None:
        """A peer has said which disk it has. If that is a new one, it knows nothing of what was said before."""
        if not self.inbox.is_new(name, epoch):
            return
        known, restored = name in self.inbox.peers, self.inbox.is_unknown(name)
        moved = not known and name == self.parent and self.node.record.above > 0  # here from below another parent
        self.commit_open()
        with self.store.transaction():
            self.inbox.renew_peer(name, epoch)
            if known or moved:
                self.forget_disk_of(name, restored or moved)
            elif self.node.record.started and name in self.children and not self.outbox.pending.get(name):
                self.calls.note_new_disk(name)  # nothing waits for it: it has come late, perhaps after the end
        self.incoming.forget_disk(name, epoch)

    def forget_disk_of(self, name: str, restored: bool) -> None:
        """A peer has a new disk, or this node has (`restored`): ask again what is owed; what a parent asked is void."""
        if not restored:
            self.counters.count(f"replaced.{name}")
            self.log.warning("%s: %s has lost its memory of this run", self.name, name)
        if name == self.parent:
            self.calls.void_questions()
            self.outgoing.give_up_all(name)
            self.node = nodes.with_record(self.node, above=0)  # the parent counts from 1 again
            self.save_record()
        elif self.assembly.role.renew is not None:
            self.outgoing.give_up_notices(name)  # it sends them anew
            self.calls.note_new_disk(name)
        if name in self.node.record.below.owed:
            self.outgoing.ask_again(name)

    def excuse_child(self, child: str) -> None:
        """Wait no longer for what a child owes that cannot take part in the run."""
        number = self.node.record.below.owed.get(child)
        if number is not None:
            self.calls.excuse_child(child, number)

    # -- the transaction

    def commit(self, now: float) -> None:
        """Take in what was read, call the role as far as may be, save all of it. `now`: time.monotonic().

        The order within the transaction matters. Rows of messages that are done with are deleted first, so that the new
        ones can take their place. A message is noted in the inbox and becomes a job before the role sees it. Answers to
        one question often come within a few milliseconds of each other; while nothing of what they change may leave
        anyway, the transaction stays open for the next ones, and one commit serves them all. Whatever is unsaved then
        is unacknowledged too, so a kill costs a repetition and no more.
        """
        self.apply_settings()
        if not self.settled and self.beginning.is_over(now):
            self.settled = True
            if missing := self.beginning.describe_missing(self.children):
                self.log.info("%s: goes on without %s", self.name, missing)
        outcomes = self.calls.take_outcomes()
        work = (not self.calls.worker and self.next_verb() is not None) or self.calls.has_closed
        idle = not (self.incoming.waiting or outcomes or work or self.events.is_due() or self.members.unsaved)
        if idle and not self.is_untidy(now) and now < self.open_since + STAY_OPEN:
            self.feed_worker()
            return
        self.incoming.begin_commit()
        with self.store.transaction(lambda: self.open_since < inf):
            self.delete_done(now)
            self.members.save()
            for job in self.incoming.take_in():
                self.calls.add_job(job, lasting=self.calls.worker is not None or not self.settled)
            for outcome in outcomes:
                self.save_outcome(outcome)
            self.calls.drop_closed()
            if not self.calls.worker:
                self.make_calls()
            self.outgoing.drop_notices()
            self.open_since = min(self.open_since, now) if self.may_stay_open(now) else inf  # the `with` asks for it
            if self.open_since == inf and self.node.record is not self.saved:
                self.save_record()
        if self.open_since == inf:
            self.after_commit()
        self.feed_worker()
        if idle and self.open_since == inf:
            self.store.checkpoint()

    def may_stay_open(self, now: float) -> bool:
        """More answers to the open question are to come, and nothing that would have to leave has been made."""
        below, calls = self.node.record.below, self.calls
        waits = (
            below.open and below.owed and not calls.worker and not calls.stopping and now < self.open_since + STAY_OPEN
        )
        files = calls.done_files or self.outgoing.done_files
        news = self.outbox.seq != self.sent or self.events.is_due() or calls.own_jobs or calls.jobs or files
        return bool(waits) and not news

    def commit_open(self) -> None:
        """Commit the transaction that was left open, if there is one."""
        if self.open_since < inf:
            self.open_since = inf
            with self.store.transaction():
                self.save_record()
            self.after_commit()

    def after_commit(self) -> None:
        """Let go what had to wait for the commit: acknowledgements, files, this node's own messages, events."""
        self.counters["commits"] += 1  # not worth a commit of its own
        self.incoming.after_commit()
        self.sent = self.outbox.seq
        self.remove_files()
        self.calls.after_commit()
        self.tidy_at = min(self.tidy_at, self.events.tell_application() + TIDY_DELAY)

    def remove_files(self) -> None:
        """Delete the files of messages that are done with. Only now: before the commit a row still named them."""
        if done := self.calls.done_files + self.outgoing.done_files:
            self.store.retire_files(done)
            self.calls.done_files, self.outgoing.done_files = [], []

    def save_record(self) -> None:
        self.saved = self.node.record
        self.store.save_record(self.assembly.records.encode(changed(self.node.record, last={})))

    def is_untidy(self, now: float) -> bool:
        due = now >= self.tidy_at or (self.counters.dirty and now >= self.count_at)
        return due or now >= self.outbox.next_expiry()

    def delete_done(self, now: float, all: bool = False) -> None:
        """Delete what is acknowledged or told. A crash before this costs a duplicate, which its receiver drops. `all`:
        save the counters too, even if that is not due."""
        self.outgoing.delete_done()
        self.events.delete_told()
        self.tidy_at = inf
        if self.counters.dirty and (all or now >= self.count_at):
            self.store.save_counters(self.counters)
            self.counters.dirty, self.count_at = False, now + COUNTERS_DELAY

    # -- calls of the role

    def next_verb(self) -> Verb | None:
        return self.calls.next_verb(self.node.record) if self.settled else None

    def apply_settings(self) -> None:
        """Let the open round go by policy and limits as they are now, if they have been changed since it was opened."""
        if self.calls.busy:
            return
        below, policy = self.node.record.below, self.assembly.policy
        if self.members.sizes.told:
            self.members.sizes.apply(below.owed, below.number, self.node.record.started)
        self.node = nodes.with_settings(self.node, self.assembly.env.limits, self.members.sizes.now)
        if below.policy is not policy:
            self.node = nodes.with_record(self.node, below=rounds.with_policy(below, policy, time.monotonic()))

    def next_task(self) -> Task | None:
        self.apply_settings()
        task = self.calls.next_task(self.node, self.counting) if self.settled else None
        if task is not None:
            self.node = task.node
        return task

    def make_calls(self) -> None:
        """Make all calls that there are to be made, here and now, in the open transaction: there is no worker."""
        while task := self.next_task():
            self.calls.busy = 1
            self.save_outcome(perform(self.assembly, task))
        self.calls.save_jobs()

    def feed_worker(self) -> None:
        """Give the worker its next calls, if there is one and it is idle."""
        worker = self.calls.worker
        if worker and not self.calls.stopping and (task := self.next_task()):
            self.calls.give_to_worker(worker, task)

    def save_outcome(self, outcome: Outcome) -> None:
        """Save what a call came to, within the transaction."""
        if not self.calls.end_call(outcome):
            return
        if outcome.node is not None:
            self.node = outcome.node
        for message in outcome.messages:
            self.outgoing.send_message(message, self.chunk, () if self.habits.addresses_each else self.members.here)
        if outcome.jobs:
            self.calls.add_own_jobs(outcome.jobs)
        if outcome.told:
            self.events.add_events(outcome.told)

    # -- time

    @property
    def ready(self) -> bool:
        """The role has been started, so that a parent may count on this node."""
        return self.settled and self.node.record.started and not self.assembly.looks_on

    def get_timer(self, now: float) -> float:
        """Seconds until `commit` or the outbox has something to do."""
        if not self.calls.worker and self.next_verb():
            return 0.0
        begins = inf if self.settled else self.beginning.ends_at
        count = self.count_at if self.counters.dirty else inf
        own = min(self.tidy_at, begins, count, self.open_since + STAY_OPEN)
        end = min(own, self.outbox.get_timer(), self.outbox.next_expiry(), self.incoming.ack_at)
        tick = self.calls.until_tick(self.node.record) if self.settled else inf
        return min(end - now, tick, self.events.until_due())

    def close(self, grace: float) -> None:
        """Save what is done. A call that does not end within `grace` seconds is made again after the restart."""
        self.calls.stop(grace)
        self.commit_open()
        with self.store.transaction():
            for outcome in self.calls.take_outcomes():
                self.save_outcome(outcome)
            self.save_record()
            self.delete_done(time.monotonic(), all=True)
        self.remove_files()
        self.store.close()
