"""Handles parent and children that come, go, or say how they are.

    child                            parent
      birth (disk, run, ready)  ──>    the first of a connection: it may be one that somebody has recorded once
           <──  hello (nonce)          say it again
      birth (nonce)             ──>    greeted with a hello; sent what waits for it if it is in this run
           <──  hello (disk, run)      the child can be sent messages from now on; a new run is taken up

`presence/presence.py` keeps who is here, and `presence/announcer.py` publishes what this node says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from typing import TYPE_CHECKING

from edge_sdk.contract.children.device_facts import Reason
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.presence.announcer import Announcer
from edge_sdk.live.presence.directory import decode_run
from edge_sdk.live.presence.labels import LabelSum
from edge_sdk.live.presence.presence import REASON, Child, Presence, describe_refusals
from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.frames import Birth, Hello
from edge_sdk.wire.link import Link

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session


class Neighbours:
    """Parent and children of one node, as they come and go.

    Args:
        membership: the run in which they are met.
        announcer: answers births.
        sizes: child -> how many devices this node's settings say there are behind it; others are not compared.
        habits: say how many children this node waits for before it begins; further ones may be newcomers.
        flexible: children say themselves how many devices there are behind them.
    """

    def __init__(
        self,
        membership: Membership,
        announcer: Announcer,
        sizes: Mapping[str, int],
        habits: Habits,
        flexible: bool,
        log: Logger,
    ):
        self.membership, self.announcer, self.log = membership, announcer, log
        self.sizes, self.habits, self.flexible = sizes, habits, flexible
        self.told: tuple[Session, Presence] | None = None
        self.labels: LabelSum | None = None  # given by a hospital that reports
        self.name, self.parent = announcer.publisher.name, announcer.publisher.parent
        self.below, self.above = announcer.publisher.below, announcer.publisher.above

    def handle_childs_birth(self, birth: Birth) -> None:
        """A child has come, has changed or has gone: answer it, and send it what waits for it."""
        membership, presence, session = self.membership, self.membership.presence, self.membership.session
        if birth.gone:
            if child := presence.note_death(birth):
                if (refusal := clip(birth.refusal, REASON)) and refusal != child.refusal:
                    self.log.warning("%s: %s cannot take part: %s", self.name, birth.src, refusal)
                self.log.info("%s: %s is gone", self.name, birth.src)
                self.mark_unreachable(birth.src)
                self.update_child(birth.src, child.unwilling)
            return
        verdict = presence.judge_birth(birth)
        if verdict != "new":
            return self.turn_away(birth, verdict)
        if presence.comes_by_turns(birth):
            membership.counters.count(f"name_twice.{birth.src}")
            self.log.warning("%s: %s comes by turns from two disks: two nodes use this name", self.name, birth.src)
        run = session.run.id if session else ""
        child, before = presence.note_birth(birth, run)
        if child.refusal and (before is None or before.refusal != child.refusal):
            self.log.warning("%s: %s cannot take part: %s", self.name, birth.src, child.refusal)
        if child.ready and (before is None or not before.ready):
            self.log.info("%s: %s has joined run %s", self.name, birth.src, run)
        self.note_willingness(birth.src, child, before)
        if self.labels is not None and birth.labelled:
            self.labels.note(birth.src, birth.labelled)
        if self.flexible and birth.devices and session is not None:
            session.members.sizes.note(birth.src, birth.devices, session.node.record.below.number)
        acknowledged, heard = 0, 0
        if session is not None:
            from edge_sdk.live.membership import older_copies  # a device without a run has no need of it

            is_behind = child.joined and older_copies.is_behind_child(session, birth)
            if is_behind and self.go_on_as_another_disk(session, birth.src):
                return  # all come anew
            acknowledged, heard = older_copies.marks_of(session, birth)
        believed = self.flexible and birth.devices
        nonce, devices = presence.nonce_for(birth.src), 0 if believed else self.sizes.get(birth.src, 0)
        about = {"here": child.ready, "devices": devices, "acknowledged": acknowledged, "heard": heard}
        self.announcer.publish_hello(birth, membership.standing, nonce, **about)
        if session is not None and child.joined:
            first = before is None or not before.joined or before.session != child.session
            first = first or session.inbox.is_new(birth.src, child.epoch)  # a store may be renewed within a connection
            self.meet_peer(session, birth.src, child.epoch, first)
        elif before is not None and before.joined:
            self.mark_unreachable(birth.src)
        self.update_child(birth.src, child.unwilling)

    def note_willingness(self, name: str, child: Child, before: Child | None) -> None:
        """Log that a child wants no training any more, or wants it again."""
        was = None if before is None else before.unwilling
        if child.unwilling is None and was is not None:
            self.log.info("%s: %s is willing to train", self.name, name)
        elif child.unwilling is not None and (was is None or was.kind != child.unwilling.kind):
            self.log.info("%s: %s is not willing to train now: %s", self.name, name, child.unwilling)

    def turn_away(self, birth: Birth, verdict: str) -> None:
        """A birth does not count. Unless it is an old one, its node is told what to do about it."""
        membership, presence = self.membership, self.membership.presence
        membership.counters.count(f"refused.birth_{verdict}.{birth.src}")
        if verdict == "old":
            return
        nonce, refusal = presence.nonce_for(birth.src), ""
        if verdict == "second":
            refusal = f"another node has the name {birth.src} already; give this one a name of its own"
        self.announcer.publish_hello(birth, membership.standing, nonce, taken=False, refusal=refusal)

    def update_here(self) -> None:
        """Tell the session which children count now."""
        presence = self.membership.presence
        if self.membership.session is not None:
            self.membership.session.members.note_presence(presence.here, presence.refusals, presence.willingness)
            self.told = self.membership.session, presence
        self.note_refusals()

    def update_child(self, name: str, reason: Reason | None) -> None:
        """Tell the session whether one child counts now, and why it wants no training; who is gone keeps its reason."""
        presence, session = self.membership.presence, self.membership.session
        if session is None or self.told is None or self.told[0] is not session or self.told[1] is not presence:
            return self.update_here()
        child = presence.children.get(name)
        session.members.note_child(name, child is not None and child.ready, name in presence.refusals, reason)
        self.note_refusals()

    def note_refusals(self) -> None:
        """Tell the parent if so many children cannot take part that the role will not start: it would wait in vain."""
        membership, refusals, children = self.membership, self.membership.presence.refusals, self.membership.children
        session, said = membership.session, membership.refusal_below
        starts = (
            session is None
            or session.settled
            or not session.assembly.patient
            or len(children) - len(refusals) >= session.beginning.needed
        )
        membership.refusal_below = "" if starts or not refusals else describe_refusals(refusals, len(children))
        if membership.refusal_below != said:
            self.announcer.announce()

    def handle_parents_birth(self, birth: Birth) -> None:
        """The parent has come, or has gone."""
        assert self.parent and self.above
        presence = self.membership.presence
        if birth.gone:
            known = presence.parent is not None and presence.parent.session == birth.session
            if birth.count and (known or presence.parent is None):
                self.membership.turns.end()  # a goodbye and no will: another one of its name may come at once
            if known:
                presence.forget_parent()
                self.mark_unreachable(self.parent)
        else:
            self.announcer.announce_over(self.above)

    def handle_hello(self, hello: Hello) -> None:
        """The parent has answered our birth: perhaps with a run, and from now on it can be sent messages."""
        assert self.parent and self.above
        membership, session = self.membership, self.membership.session
        if not self.announcer.is_answer(hello):
            membership.counters.count(f"refused.hello_old.{hello.src}")
            return
        if hello.refusal:
            raise UsageError(f"{self.name}: {hello.src} says: {hello.refusal}")
        known, self.announcer.nonce = hello.nonce == self.announcer.nonce, hello.nonce
        self.announcer.answered = hello.count
        if not hello.taken:
            return None if known else self.announcer.announce_over(self.above)
        first = membership.presence.note_hello(hello)
        self.announcer.parent_answered()
        membership.counted_above = hello.devices > 0
        if why := self.find_mismatch(hello):
            return membership.refuse_run(decode_run(hello.body), why)
        if hello.body and (session is None or hello.run != session.run.id or decode_run(hello.body) != session.run):
            membership.take_offer(hello)
        if session is not None and hello.run == session.run.id:
            membership.turns.heard()
            from edge_sdk.live.membership import older_copies  # as above

            if older_copies.is_behind_parent(session, hello) and self.go_on_as_another_disk(session, hello.src):
                return None
            self.meet_peer(session, hello.src, hello.epoch, first or self.parent not in session.outbox.present)

    def find_mismatch(self, hello: Hello) -> str:
        """Why this node's settings do not go with its parent's: they say another number of devices; or empty."""
        children = len(self.membership.children)
        if not (hello.body and hello.devices and children) or hello.devices in (children, self.habits.wait_for):
            return ""
        return (
            f"the settings of {self.name} name {children} devices, those of {hello.src} say that it has "
            f"{hello.devices}; correct the wrong ones and start that node again"
        )

    def meet_peer(self, session: Session, peer: str, epoch: int, first: bool) -> None:
        """A peer is here and in our run. `first`: we hear it for the first time since it was gone."""
        if self.membership.is_broken:
            return  # all peers are met anew when the run is open again
        session.meet_peer(peer, epoch)
        if first:
            session.outbox.peer_came(peer)
            session.calls.note_arrival(peer, session.node.record)

    def go_on_as_another_disk(self, session: Session, peer: str) -> bool:
        """Go on as after a restore, since this peer has shown that the store is an older copy of itself; False: not
        now, or not again: no peer can have that without end."""
        if self.membership.is_copy or self.membership.is_broken:
            return False
        from edge_sdk.delivery.storage.snapshot import renew_epoch  # few nodes have to

        why = "a copy of the folder was put back, and not by `auscult restore`"
        self.log.error("%s: %s is older than what %s has of it: %s", self.name, session.store.path, peer, why)
        session.commit_open()
        with session.store.transaction():
            renew_epoch(session.store.db)
        self.membership.is_copy = True
        self.membership.reopen_session()
        return True

    def handle_lost_link(self, link: Link) -> None:
        """Our own connection to those on the other end is gone."""
        self.announcer.link_lost(link)
        presence = self.membership.presence
        if link is self.below:
            for child in presence.joined:
                self.mark_unreachable(child)
            presence.forget_children()
        if link is self.above and self.parent:
            self.mark_unreachable(self.parent)
            presence.forget_parent()
        self.update_here()

    def mark_unreachable(self, peer: str) -> None:
        """Send a peer nothing until it comes again."""
        if self.membership.session is not None:
            self.membership.session.outbox.peer_went(peer)
            self.membership.session.transfers_out.peer_went(peer)
