"""What a node forgets when a peer has come with another disk, which knows nothing of what was said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.contract import node as nodes

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session


def forget_disk_of(session: Session, name: str) -> None:
    """Void what the old disk has asked, and ask the new one what the old one still owed. Within a transaction."""
    session.counters.count(f"replaced.{name}")
    session.log.warning("%s: %s has lost its memory of this run", session.name, name)
    if name == session.parent:
        void_questions(session, name)
    if name in session.node.record.below.owed:
        session.outgoing.ask_again(name)


def void_questions(session: Session, parent: str) -> None:
    """The parent has a new disk and counts its questions from 1 again: what it asked before is void.

    So are our answers to that, which it would refuse as answers to nothing. The number of its latest question goes
    back to 0, or we should refuse its new questions as old ones.
    """
    session.calls.void_questions()
    for out in session.outbox.waiting(parent):
        session.outgoing.give_up(out, parent)
    session.node = nodes.with_record(session.node, above=0)
    session.save_record()
