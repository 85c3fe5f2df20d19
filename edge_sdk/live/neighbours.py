"""What a node does when its parent or a child comes, goes, or says how it is.

    child                            parent
      birth (disk, run, ready)  ──>    greeted with a hello; sent what waits for it if it is in this run
           <──  hello (disk, run)      the child can be sent messages from now on; a new run is taken up

Who is here is kept in `presence.py`, and what a node itself says in `herald.py`.
"""

from __future__ import annotations

from logging import Logger

from edge_sdk.delivery.session import Session
from edge_sdk.live.announcer import Herald
from edge_sdk.live.membership import Membership
from edge_sdk.wire.frames import Birth, Hello
from edge_sdk.wire.link import Link


class Neighbours:
    """Those of one node, over the links of its mail.

    Args:
        membership: the run in which they are met.
        herald: answers them.
    """

    def __init__(self, membership: Membership, herald: Herald, log: Logger):
        self.membership, self.herald, self.log = membership, herald, log
        self.name, self.parent = herald.mail.name, herald.mail.parent
        self.below, self.above = herald.mail.below, herald.mail.above

    def child_born(self, birth: Birth) -> None:
        membership, presence, session = self.membership, self.membership.presence, self.membership.session
        if birth.gone:
            if presence.died(birth):
                self.log.info("%s: %s is gone", self.name, birth.src)
                self.unreachable(birth.src)
                self.children_changed()
            return
        run = session.run.id if session else ""
        child, before = presence.born(birth, run)
        if child.refusal and (before is None or before.refusal != child.refusal):
            self.log.warning("%s: %s cannot take part: %s", self.name, birth.src, child.refusal)
        self.herald.greet(birth, child.ready, membership.standing)
        if session is not None and child.joined:
            first = before is None or not before.joined or before.session != child.session
            self.meet(session, birth.src, child.epoch, first)
        elif before is not None and before.joined:
            self.unreachable(birth.src)
        self.children_changed()

    def children_changed(self) -> None:
        if self.membership.session is not None:
            self.membership.session.here = self.membership.presence.here

    def parent_born(self, birth: Birth) -> None:
        """The parent is there (again), or has gone."""
        assert self.parent and self.above
        if birth.gone:
            self.membership.presence.lost_parent()
            self.unreachable(self.parent)
        else:
            self.herald.announce_over(self.above)

    def greeted(self, hello: Hello) -> None:
        """The parent's answer to our birth: perhaps with a run, and from now on it can be sent messages."""
        assert self.parent and self.above
        session = self.membership.session
        first = self.membership.presence.hello(hello)
        self.herald.answered()
        if hello.body and hello.run != (session.run.id if session else ""):
            self.membership.offered(hello)
        elif session is not None and hello.run == session.run.id:
            self.meet(session, hello.src, hello.epoch, first or self.parent not in session.outbox.present)

    def meet(self, session: Session, peer: str, epoch: int, first: bool) -> None:
        """A peer is there, and in our run. `first`: since it was last gone."""
        if self.membership.broken:
            return  # all are met when the run is open again
        session.meet(peer, epoch)
        if first:
            session.outbox.came(peer)

    def lost(self, link: Link) -> None:
        """Our own connection to those on the other end is gone."""
        self.herald.lost(link)
        presence = self.membership.presence
        if link is self.below:
            for child in presence.joined:
                self.unreachable(child)
            presence.lost_children()
        if link is self.above and self.parent:
            self.unreachable(self.parent)
            presence.lost_parent()
        self.children_changed()

    def unreachable(self, peer: str) -> None:
        if self.membership.session is not None:
            self.membership.session.outbox.went(peer)
            self.membership.session.sender.went(peer)
