"""Membership in a run: taken up or refused, saved, left, and opened again after the disk has failed.

Memory is a copy of the disk. After a commit that failed it is thrown away, and read again from the store as soon as
that can be opened. Until then nothing is taken in and nothing leaves; peers repeat what they do not see acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from logging import ERROR, WARNING
from math import inf
from typing import TYPE_CHECKING

from edge_sdk.contract.children.device_facts import DeviceFacts, Reason
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.database import DiskError, finding_damage
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import PeerError, SamplesMissing, UsageError
from edge_sdk.live.membership.offers import Turns, assemble_offered
from edge_sdk.live.membership.surroundings import RunWork, Surroundings
from edge_sdk.live.presence.announcer import Announcer, Standing
from edge_sdk.live.presence.directory import NodeDirectory, decode_run, encode_run, is_same_training
from edge_sdk.live.presence.presence import Presence
from edge_sdk.wire.frames import Hello

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly
    from edge_sdk.delivery.session import Session

GRACE = 5.0  # seconds that a call may take to notice that the node is stopping
DISK = 1.0  # seconds to wait after a commit that failed


class Membership:
    """A node's part in one run at a time, and who else is here for it.

    Args:
        work: what the node does in runs, and which runs it takes.
        around: what its lanes have in common; where it is flexible, the parent is told how many children there are.
        make_session: makes the session of a run.
        announcer: tells parent and children what has changed with this node.
        counters: of this lane.

    Attributes:
        directory: the node's directory, while the loop runs.
        session: None outside a run.
        given: the run that this node was started with; None: its parent brings one.
        presence: peers that are here; begun anew with each session, since all of them come again.
        refusal: why the node cannot take part in the run that it was offered, or empty.
        refusal_below: why too few children can take part for this node's role to start, or empty.
        refused: encoding of that run, so that it is not tried each time that it is offered.
        counted_above: the parent's settings say how many children there are; another number needs another run.
        next_run: a run of the parent's that waits until the call in progress has ended.
        turns: notices two parents of one name.
        announced: parent and children have been told that the role has been started.
        unwilling: why this node wants no training now; None: it does.
        labelled: windows that were given a label here, as the parent is told.
        facts: of this machine, as the parent is told them.
        reconsider: what stood against the refused run may be gone: it is to be tried again. Set by any thread.
        reopen_at: when to look at the disk again, by time.monotonic(); inf: it has not failed.
        is_copy: the folder was an older copy of itself.
    """

    directory: NodeDirectory

    def __init__(
        self,
        work: RunWork,
        around: Surroundings,
        make_session: Callable[[Run, Assembly, Store], Session],
        announcer: Announcer,
        counters: Counters,
    ):
        self.assemble, self.check_run, self.told_refusal = work.assemble, work.check_run, work.told_refusal
        self.name, self.children, self.flexible, self.log = around.name, around.children, around.flexible, around.log
        self.make_session, self.announcer, self.counters, self.reconsider = make_session, announcer, counters, False
        self.session: Session | None = None
        self.given: Run | None = None
        self.presence, self.turns, self.look_on = Presence(self.children), Turns(), work.look_on
        self.refusal, self.refusal_told, self.refusal_below, self.refused = "", "", "", b""  # told: to the parent
        self.next_run: Run | None = None
        self.counted_above = self.announced = False
        self.unwilling: Reason | None = None
        self.facts: DeviceFacts | None = None
        self.labelled, self.reopen_at, self.is_copy = 0, inf, False

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.store.epoch

    @property
    def run(self) -> Run | None:
        return None if self.session is None else self.session.run

    @property
    def is_broken(self) -> bool:
        """A commit has failed: what is in memory is not what is on the disk, and must not be written there."""
        return self.reopen_at < inf

    @property
    def looks_on(self) -> bool:
        """It has too few samples for its run, and hears what that comes to (see onlooking.py)."""
        return self.session is not None and self.session.assembly.looks_on

    @property
    def standing(self) -> Standing:
        ready = self.session is not None and self.session.ready
        devices = len(self.children) if self.flexible else 0
        told = self.refusal_told or self.refusal_below, self.unwilling, devices, self.labelled, self.facts
        asked = 0 if self.session is None else self.session.calls.find_latest_asked(self.session.node.record)
        return Standing(self.epoch, self.run, ready, *told, asked)

    # -- taking a run up

    def begin_run(self, given: Run | None) -> None:
        """Take up the run that this node is given, or else the one that it worked in last; later, if the disk fails.

        Raises:
            UsageError: the given one cannot be used here.
        """
        self.given = given
        try:
            if given is not None:
                self.open_session(given, self.assemble(given))
            elif (run := self.current_run()) is not None:
                self.take_up(run)
        except (DiskError, OSError) as e:
            self.disk_failed(e)

    def current_run(self) -> Run | None:
        """The run that this node worked in last; None where there is none, or none that can be read."""
        try:
            return self.directory.current_run()
        except StoreDamaged as e:
            from edge_sdk.live.membership.damaged_stores import put_aside  # few nodes have to, as below

            put_aside(self, self.directory.current_id() or "", e)
            return None

    def take_offer(self, hello: Hello) -> None:
        """Take a run that the parent's hello has brought: another one than this node's, or described in another way.

        Raises:
            PeerError: it is none.
        """
        body = bytes(hello.body)
        if body != self.refused:
            run = decode_run(body)
            if run.id != hello.run:
                raise PeerError(f"hello names run {hello.run!r} and brings {run.id!r}")
            if self.session is not None and is_same_training(run, self.session.run):
                return self.take_changed(self.session, run)
            if self.session is not None and self.turns.are_taken(run.id):
                self.counters.count("two_parents")
                words = "%s: run %s is offered again, which was left a moment ago: two nodes are called %s; stays in %s"
                self.log.warning(words, self.name, run.id, self.announcer.parent, self.session.run.id)
                return
            self.refused, self.next_run = body, run  # tried once; `open_session` forgets the refusal

    def take_changed(self, session: Session, run: Run) -> None:
        """Take the parent's new description of the present run, which may say otherwise how long is waited, unless it
        is not to be trusted."""
        try:
            self.check_run(run)
        except UsageError as e:
            return self.refuse_run(run, str(e))
        self.change_waiting(session, run)

    def change_waiting(self, session: Session, run: Run) -> None:
        """Go on in the present run, with what its description now says about waiting. Calls in progress go on too.

        Raises:
            UsageError: it says more than that.
        """
        if run == session.run or self.is_broken or self.looks_on:
            return  # what is broken is opened again soon, and hears of it then
        session.commit_open()
        self.directory.remember_run(run, session.store)
        session.run = run
        before = session.assembly.policy
        if self.children:
            session.assembly = replace(session.assembly, policy=self.assemble(run).policy)
        if (policy := session.assembly.policy) != before:
            words = "%s: waits by deadline %g s, quorum %d from now on"
            self.log.info(words, self.name, policy.deadline, policy.quorum)
        self.announcer.announce()

    def take_up_pending(self, now: float) -> None:
        """Take up a run that has come from the parent, or open the present one again after its disk has failed."""
        if self.is_broken and now < self.reopen_at:
            return
        if self.reconsider:
            self.reconsider = False
            if self.refused and (self.session is None or self.looks_on):
                self.next_run = decode_run(self.refused)
        if self.next_run is not None and (self.session is None or not self.session.calls.busy):
            run, self.next_run = self.next_run, None
            self.take_up(run)
        elif self.next_run is not None and self.session is not None:
            self.session.calls.stopping = True  # the call in progress is for nothing
        if self.is_broken and now >= self.reopen_at:
            self.reopen_at = inf
            if self.session is not None:
                self.reopen_session()
            else:
                self.begin_run(self.given)

    def take_up(self, run: Run) -> None:
        """Begin or resume a run; one that cannot be used leaves the node idle, and the parent hears why."""
        before, looks_on = self.run, self.looks_on and self.run is not None and self.run.id == run.id
        if not looks_on:
            self.leave_run()
        try:
            assembly = assemble_offered(run, self.check_run, self.assemble, self.name, self.log)
            self.leave_run()
            self.open_session(run, assembly)
            self.turns.note_change("" if before is None else before.id, run.id)
        except UsageError as e:
            missing, told = (e.missing, e.told) if isinstance(e, SamplesMissing) else (0, str(e))
            self.tell_refusal(f"run {run.id}: {e}", missing, f"run {run.id}: {told}")
            if not missing:
                self.leave_run()
            elif not looks_on:
                from edge_sdk.live.membership.onlooking import look_on

                self.session = look_on(self.directory, run, self.look_on, self.make_session, self.log)
                self.refused, self.announced = encode_run(run), False
        except (DiskError, OSError) as e:
            self.next_run = run
            self.disk_failed(e)
        self.announcer.announce()

    def tell_refusal(self, why: str, missing: int = 0, told: str = "") -> None:
        """Say why a run is not taken up, unless it was said. `missing`: samples that may yet come; nothing is wrong."""
        if why != self.refusal:
            self.refusal, self.refusal_told = why, told or why
            self.log.log(WARNING if missing else ERROR, "%s: %s", self.name, why)
            self.told_refusal(why, missing)

    def open_session(self, run: Run, assembly: Assembly) -> None:
        """Open a run's store and the session on it. A damaged store is put aside, and the run begun on a new one."""
        try:
            self.open_saved_session(run, assembly)
        except StoreDamaged as e:
            from edge_sdk.live.membership.damaged_stores import put_aside

            put_aside(self, run.id, e)
            self.open_saved_session(run, assembly)

    def open_saved_session(self, run: Run, assembly: Assembly) -> None:
        store = self.directory.open_store(run)
        try:
            with finding_damage(store.path):
                store.check_pages()
                saved = store.load_counters()
                if not self.counters.get("commits"):
                    self.counters.restore(saved)
                self.session = self.make_session(run, assembly, store)
        except BaseException:
            store.drop()
            raise
        self.refusal, self.refusal_told, self.refused, self.announced = "", "", b"", self.session.ready
        self.presence, self.refusal_below = Presence(self.children), ""
        self.log.info("%s: run %s %s", self.name, run.id, "resumed" if self.session.restarted else "opened")

    # -- saving

    def save_session(self, session: Session, now: float) -> None:
        """Let the session commit, and announce it if the role has been started by that."""
        try:
            session.commit(now)
        except (DiskError, OSError) as e:
            self.disk_failed(e)
        if session.calls.unusable:
            return self.hold_run(session.run, session.calls.unusable)  # as if it had been seen when the run came
        if session.ready != self.announced:
            self.announced = session.ready
            self.announcer.announce()

    def refuse_run(self, run: Run, why: str) -> None:
        """Leave a run, or do not take it up; the parent hears why. It is looked at again when it is offered again."""
        refusal = f"run {run.id}: {why}"
        self.next_run, self.refused = None, b""
        if refusal == self.refusal:
            return
        self.tell_refusal(refusal)
        self.leave_run()
        self.announcer.announce()

    def hold_run(self, run: Run, why: str) -> None:
        """Leave a run that cannot go on here now; it is tried again when another is offered or `reconsider` is set."""
        self.refuse_run(run, why)
        self.refused = encode_run(run)

    def disk_failed(self, why: Exception) -> None:
        """Stop until the disk is looked at again. What was not saved was not acknowledged, so it comes again.

        A damaged store is found when it is opened again.
        """
        self.counters.count("disk_failed")
        self.log.error("%s: cannot save (%s); nothing is taken in until that is over", self.name, why)
        self.reopen_at = time.monotonic() + DISK

    def reopen_session(self) -> None:
        """Make the session anew from the disk, after a commit that failed.

        Raises:
            UsageError: this is the root, and its store turns out to be damaged.
        """
        assert self.session is not None
        session, self.session = self.session, None
        session.calls.stop(GRACE)
        session.store.drop()
        if session.assembly.looks_on:
            return self.take_up(session.run)
        try:
            self.open_session(session.run, session.assembly)
        except (UsageError, DiskError, OSError) as e:
            if isinstance(e, UsageError) and self.announcer.parent is None:
                raise
            self.log.error("%s: %s", self.name, e)
            self.session, self.reopen_at = session, time.monotonic() + DISK
        self.announcer.announce()

    # -- leaving

    def leave_run(self) -> None:
        """Leave the run with all saved that can be: after a commit that failed, nothing."""
        session, self.session = self.session, None
        broken, self.reopen_at = self.is_broken, inf
        if session is None:
            return
        if broken:
            session.calls.stop(GRACE)
            return session.store.drop()
        try:
            session.close(GRACE)
        except (DiskError, OSError) as e:
            self.log.error("%s: the last changes are not saved: %s", self.name, e)
            session.store.drop()

    def drop_session(self) -> None:
        """Close the store and save nothing more, as a kill would."""
        if self.session is not None:
            self.session.store.drop()
            self.session = None
