"""Changes of a node's settings while it runs: asked for by any thread, carried out by its loop between two commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.membership.offers import assemble_offered

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly
    from edge_sdk.delivery.session import Session


@dataclass
class RequestedChanges:
    """What the application wants to be otherwise. Its attributes are set by any thread, which then wakes the loop.

    Attributes:
        run: the root's run as its application describes it now.
        limits: what the settings file says of the children now.
        children: names of those that may take part now.
        left: those who might before. A call that was under way when they left may ask them still.
    """

    run: Run | None = None
    limits: Limits | None = None
    children: tuple[str, ...] | None = None
    left: frozenset[str] = frozenset()

    def carry_out(self, membership: Membership, met: Callable[[], None]) -> None:
        """Do what can be done now; what cannot stays for the next turn. `met`: tells the session who is here."""
        session = membership.session
        if self.children is not None and not membership.is_broken:
            children = self.children
            self.left = (self.left | {*membership.children}) - {*children}
            change_children(membership, children)
            met()
            if self.children is children:  # and no thread has named others meanwhile
                self.children = None
        session = membership.session
        if session is None or membership.is_broken:
            return
        if asked := self.left & session.node.record.below.owed.keys():
            let_go(session, asked)
        if self.run is not None:
            run, self.run = self.run, None
            membership.change_waiting(session, run)
        if self.limits is not None:
            limits, self.limits = self.limits, None
            session.assembly = replace(session.assembly, env=replace(session.assembly.env, limits=limits))
            membership.log.info("%s: limits of children are as the settings file has them now", membership.name)


def change_children(membership: Membership, children: Sequence[str]) -> None:
    """Let others take part below a node, in the run that goes on too.

    Who has left is asked no more and owes nothing; what it has sent in time counts. Who has come is greeted as soon as
    it says something, and belongs to the next question.
    """
    gone = {*membership.children} - {*children}
    membership.children = tuple(children)
    membership.presence.expect(children)
    session = membership.session
    if session is not None:
        try:
            seams = (take_as_offered, membership.assemble, membership.name, membership.log)
            replace_children(session, frozenset(children), gone, assemble_offered(session.run, *seams))
        except UsageError as e:  # its owner does not let it go on, which is said with a new offer
            membership.hold_run(session.run, str(e))
    membership.log.info("%s: %d children may take part from now on", membership.name, len(children))
    membership.announcer.listen()
    membership.announcer.announce()


def take_as_offered(run: Run) -> None:
    """No second judgement: whether a run is to be trusted was decided when it was offered."""


def replace_children(session: Session, children: frozenset[str], gone: Iterable[str], fresh: Assembly) -> None:
    """Let others take part in a session. `gone`: who may no longer; `fresh`: the parts of this node as they are now."""
    session.children = children
    let_go(session, gone)
    session.members.remove(gone)
    session.members.sizes.keep(fresh.env.sizes)
    env = replace(session.assembly.env, sizes=session.members.sizes.now)
    session.assembly = replace(session.assembly, env=env, policy=fresh.policy)


def let_go(session: Session, names: Iterable[str]) -> None:
    """Send these nothing more, and wait for nothing of theirs. If they come again, they are told all anew."""
    session.commit_open()
    with session.store.transaction():
        for name in names:
            session.outgoing.give_up_all(name)
            session.inbox.forget(name)
            session.excuse_child(name)


def let_removed_go(session: Session) -> None:
    """Let those go who are no children any more since the session was last open."""
    known = session.node.record.below.owed.keys() | session.inbox.list_known()
    if removed := sorted(known - session.children - {session.name, session.parent}):
        let_go(session, removed)
