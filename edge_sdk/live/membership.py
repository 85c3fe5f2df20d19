"""The run that a node works in: taken up or refused, saved, left, and opened again after its disk has failed.

Memory is a copy of the disk. So what a failed commit has left in memory is thrown away, and until the run is open again
nothing is taken in and nothing leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from logging import Logger
from math import inf

from edge_sdk.contract.run import Run
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.engine import Assembly
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.store import DiskError, Store
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.announcer import Herald, Standing
from edge_sdk.live.directory import Desk, decode_run, encode_run
from edge_sdk.live.presence import Presence
from edge_sdk.wire.frames import Hello

GRACE = 5.0  # seconds that a call may take to notice that the node is stopping
DISK = 1.0  # seconds to wait after a commit that failed


class Membership:
    """A node's part in one run at a time, and who else is here for it.

    Args:
        assemble: what to play in a run. UsageError: the run cannot be used here.
        enter: makes the session of a run.
        herald: tells parent and children how things stand, whenever that changes.

    Attributes:
        desk: the node's directory, while the loop runs.
        session: None outside a run.
        presence: begun anew with each session: who is here comes again.
        refusal: why the node cannot take part in the run that it was offered, or empty.
        refused: that run, encoded, so that it is not tried each time that it is offered.
        next_run: has come from the parent, and waits for the call in progress to end.
        announced: whether parent and children have been told that the role plays.
        reopen_at: when to look at the disk again, by time.monotonic(); inf: it has not failed.
    """

    desk: Desk

    def __init__(
        self,
        name: str,
        children: Sequence[str],
        assemble: Callable[[Run], Assembly],
        enter: Callable[[Run, Assembly, Store], Session],
        herald: Herald,
        counters: Counters,
        log: Logger,
    ):
        self.name, self.children, self.assemble, self.enter = name, children, assemble, enter
        self.herald, self.counters, self.log = herald, counters, log
        self.session: Session | None = None
        self.presence = Presence(children)
        self.refusal, self.refused = "", b""
        self.next_run: Run | None = None
        self.announced = False
        self.reopen_at = inf

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.store.epoch

    @property
    def run(self) -> Run | None:
        return None if self.session is None else self.session.run

    @property
    def broken(self) -> bool:
        """A commit has failed: what is in memory is not what is on the disk, and must not be written there."""
        return self.reopen_at < inf

    @property
    def standing(self) -> Standing:
        return Standing(self.epoch, self.run, self.session is not None and self.session.ready, self.refusal)

    # -- taking a run up

    def begin(self, given: Run | None) -> None:
        """The run that this node is given, or else the one that it worked in last.

        Raises:
            UsageError: the given one cannot be used here.
        """
        if given is not None:
            self.open(given, self.assemble(given))
        elif (run := self.desk.current()) is not None:
            self.use(run)

    def offered(self, hello: Hello) -> None:
        """The parent's hello has brought a run that this node is not in.

        Raises:
            PeerError: it is none.
        """
        body = bytes(hello.body)
        if body != self.refused:
            run = decode_run(body)
            if run.id != hello.run:
                raise PeerError(f"hello names run {hello.run!r} and brings {run.id!r}")
            self.refused, self.next_run = body, run  # once only, unless it can be used

    def renew(self, now: float) -> None:
        """Take up a run that has come from the parent, or open the present one again after its disk failed."""
        if self.broken and now < self.reopen_at:
            return
        if self.next_run is not None and (self.session is None or not self.session.calls.busy):
            run, self.next_run = self.next_run, None
            self.use(run)
        elif self.next_run is not None and self.session is not None:
            self.session.calls.stopping = True  # the call in progress is for nothing
        if self.broken and now >= self.reopen_at and self.session is not None:
            self.reopen_at = inf
            self.reopen()

    def use(self, run: Run) -> None:
        """Begin or resume a run; one that cannot be used leaves the node idle, and the parent hears why."""
        self.leave()
        try:
            self.open(run, self.assemble(run))
        except UsageError as e:
            self.refusal = f"run {run.id}: {e}"
            self.log.error("%s: %s", self.name, self.refusal)
        except (DiskError, OSError) as e:
            self.next_run = run
            self.disk_failed(e)
        self.herald.announce()

    def open(self, run: Run, assembly: Assembly) -> None:
        store = self.desk.open(run)
        try:
            saved = store.counters()
            if not self.counters.get("commits"):
                self.counters.restore(saved)
            self.session = self.enter(run, assembly, store)
        except BaseException:
            store.close()
            raise
        self.refusal, self.refused, self.announced = "", b"", self.session.ready
        self.presence = Presence(self.children)
        self.log.info("%s: run %s %s", self.name, run.id, "resumed" if self.session.restarted else "opened")

    # -- saving

    def save(self, session: Session, now: float) -> None:
        """Commit what the session has to save, and say so where that changes how things stand."""
        try:
            session.commit(now)
        except (DiskError, OSError) as e:
            self.disk_failed(e)
        if session.calls.unusable:
            return self.give_up(session)
        if session.ready != self.announced:
            self.announced = session.ready
            self.herald.announce()

    def give_up(self, session: Session) -> None:
        """The role has found that the run cannot be used here: as if that had been seen when it came."""
        run = session.run
        self.refusal, refused = f"run {run.id}: {session.calls.unusable}", encode_run(run)
        self.log.error("%s: %s", self.name, self.refusal)
        self.leave()
        self.refused = refused
        self.herald.announce()

    def disk_failed(self, why: Exception) -> None:
        """What was not saved was not acknowledged either, so it comes again."""
        self.counters.count("disk_failed")
        self.log.error("%s: cannot save (%s); nothing is taken in until that is over", self.name, why)
        self.reopen_at = time.monotonic() + DISK

    def reopen(self) -> None:
        """Memory is a copy of the disk: after a commit that failed it is made again."""
        assert self.session is not None
        session, self.session = self.session, None
        session.calls.stop(GRACE)
        session.store.close()
        try:
            self.open(session.run, session.assembly)
        except (UsageError, DiskError, OSError) as e:
            self.log.error("%s: %s", self.name, e)
            self.session, self.reopen_at = session, time.monotonic() + DISK
        self.herald.announce()

    # -- leaving

    def leave(self) -> None:
        """With all saved that can be: after a commit that failed, nothing."""
        session, self.session = self.session, None
        broken, self.reopen_at = self.broken, inf
        if session is None:
            return
        if broken:
            session.calls.stop(GRACE)
            return session.store.close()
        try:
            session.close(GRACE)
        except (DiskError, OSError) as e:
            self.log.error("%s: the last changes are not saved: %s", self.name, e)
            session.store.close()

    def drop(self) -> None:
        """As a kill would: nothing more is saved."""
        if self.session is not None:
            self.session.store.close()
            self.session = None
