"""A lane: a node's part in one run at a time, over connections that it may share with the node's other lanes.

A node works in one run at a time in its main lane. A lane beside it has a session, a record and a store of its own, in
a folder of its own, so a run there can neither see nor hold up the one in the main lane, and what is promised of one
run (each message counts once, whoever is killed) holds in each lane by itself. All lanes are of one loop and one
thread; only calls of roles have threads of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import LaneCounters
from edge_sdk.delivery.storage.store import Store
from edge_sdk.live.membership.changes import RequestedChanges, let_removed_go
from edge_sdk.live.membership.dispatcher import Dispatcher
from edge_sdk.live.membership.membership import GRACE, Membership
from edge_sdk.live.membership.neighbours import Neighbours
from edge_sdk.live.membership.permission import Permission, Willingness
from edge_sdk.live.membership.surroundings import RunWork, Surroundings
from edge_sdk.live.membership.waiting_log import ParentSilence, WaitingLog
from edge_sdk.live.presence.announcer import Announcer
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.live.presence.presence import Presence
from edge_sdk.live.presence.publisher import Publisher
from edge_sdk.wire.known_broker import fit_acks

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly
    from edge_sdk.delivery.session import Session


def nothing_told(number: int, message: Any) -> None:
    """Takes what a role tells where no application wants to hear it."""


@dataclass(frozen=True, kw_only=True)
class LaneWork(RunWork):
    """What a node does in one lane.

    Attributes:
        directory: holds all that it remembers of that.
        told: called with (increasing number, event) after the commit, at least once for each event of the role.
        willingness: does this node want to train?
        permission: does its owner let the run go on?
        run: the training job; only the root has it from the start.
    """

    directory: Path
    told: Callable[[int, Any], None] = nothing_told
    willingness: Willingness = field(default_factory=Willingness)
    permission: Permission = field(default_factory=Permission)
    run: Run | None = None


class RunLane:
    """One lane of a node.

    Args:
        number: 0: the main one.
        beside: it shares its links with the main lane, which answers for the connections.
        below: number of the lane in which its children speak; None: the same one.
    """

    def __init__(
        self, number: int, work: LaneWork, around: Surroundings, beside: bool = False, below: int | None = None
    ):
        self.number, self.work, self.around, self.log = number, work, around, around.log
        self.counters = LaneCounters(around.counters) if beside else around.counters
        self.willingness, self.permission, self.changes = work.willingness, work.permission, RequestedChanges()
        self.habits = around.habits
        a, name = around, around.name
        self.publisher = Publisher(name, a.parent, a.below, a.above, self.counters, a.log, number, below)
        self.announcer = Announcer(self.publisher)
        self.membership = Membership(work, a, self.new_session, self.announcer, self.counters)
        self.neighbours = Neighbours(self.membership, self.announcer, a.sizes, self.habits, a.flexible, a.log)
        parts = (self.membership, self.neighbours, self.counters, a.log, number, below)
        self.dispatcher = Dispatcher(name, a.parent, *parts)
        self.waiting_log = WaitingLog(name, a.parent, a.log)
        is_leaf = not (a.children or a.flexible or beside)  # above others there may be nobody between two runs
        self.silence = ParentSilence(name, a.parent if is_leaf else None, a.log)

    def new_session(self, run: Run, assembly: Assembly, store: Store) -> Session:
        from edge_sdk.delivery.session import Session  # with the first run, as all that hands messages over

        a, membership = self.around, self.membership
        made = Session(
            name=a.name,
            parent=a.parent,
            run=run,
            assembly=assembly,
            store=store,
            habits=self.habits,
            counters=self.counters,
            tell=self.work.told,
            wake=a.wake,
            log=a.log,
            children=frozenset(membership.children),
        )
        let_removed_go(made)
        return made

    @property
    def session(self) -> Session | None:
        return self.membership.session

    @property
    def delivered(self) -> bool:
        """No message is waiting to be worked on, or to be acknowledged by a peer. A device's own clock may tick on."""
        return (s := self.session) is None or not (s.calls.jobs or any(s.outbox.pending.values()))

    def open(self, stack: ExitStack, given: Run | None = None) -> None:
        """Lock the lane's folder, and take up the run that it worked in last. Raises UsageError as `Runtime.run`."""
        directory = NodeDirectory(self.work.directory, self.around.durability)
        self.membership.directory = stack.enter_context(closing(directory))
        stack.callback(self.membership.drop_session)
        self.membership.begin_run(given)

    def get_timer(self, now: float) -> float:
        """Seconds until something is to be done if nothing comes."""
        session = self.session
        wait = session.get_timer(now) if session and not self.membership.is_broken else inf
        at = min(self.membership.reopen_at, self.willingness.at, self.permission.at, self.silence.due)
        return min(wait, self.announcer.get_timer(now), at - now)

    def take_turn(self, now: float) -> None:
        """Do what is due, make one commit for all that has come, and publish."""
        self.willingness.look(self.membership, self.announcer, now)
        self.permission.look(self.membership, now)
        self.changes.carry_out(self.membership, self.neighbours.update_here)
        self.membership.take_up_pending(now)
        self.save_session(now)
        self.publish_due(now)
        self.silence.look(self.publisher.above, self.membership.presence.parent is not None, now)
        self.publisher.silence = self.silence.why
        self.waiting_log.look(self.session, self.membership.presence, now, self.publisher.trouble)

    def save_session(self, now: float) -> None:
        if (session := self.session) is None or self.membership.is_broken:
            return
        connections = [link.connection for link in self.publisher.links if link.connection is not None]
        if connections:
            session.chunk = min(self.around.largest_chunk, *(c.chunk for c in connections))
            session.incoming.acks_per_frame = fit_acks(min(c.packet for c in connections))
        for child in tuple(self.membership.presence.refusals) if session.members.present else ():
            session.excuse_child(child)  # but not where nobody is left: rounds without anybody would use up the run
        self.membership.save_session(session, now)

    def publish_due(self, now: float) -> None:
        if self.announcer.births:
            self.announcer.publish_births(self.membership.standing, self.membership.presence, now)
        if (session := self.session) is not None and not self.membership.is_broken:
            self.publisher.publish_due(session, now)

    def finish(self) -> None:
        """Save, and say goodbye."""
        if self.session is not None:
            self.session.calls.stop(GRACE)
            self.save_session(time.monotonic())
        if self.session is not None:  # the last call may have found that the run cannot be used here
            self.session.incoming.acknowledge_now()
        self.announcer.births.clear()
        self.publish_due(time.monotonic())
        self.announcer.publish_goodbye(self.membership.standing)

    def leave(self) -> None:
        """Leave the run, after the links have been closed."""
        self.membership.presence = Presence(self.membership.children)
        self.membership.leave_run()
