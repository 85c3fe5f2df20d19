"""An older copy of a node's folder that was put back as it is: a machine's image, say, and no backup that was restored.

Such a store goes on as the disk that it was. It uses numbers of messages again that its peers have seen, which drop
what is new, and it waits for what they have sent its later self: a run would stand still. What peers say of it at each
connection tells that it is one, unless nothing has come to them since the copy was made. It then becomes another disk,
as a restored backup does.

    birth    the latest question that the child has taken              above the parent's latest: the parent is a copy
    hello    the question that the child owes an answer to, and has    the child does not know it: the child is one
             acknowledged
             the latest message of the child that has been received    the child has sent none of that number: the same
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.contract.round import life_of
from edge_sdk.wire.frames import Birth, Hello

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session


def marks_of(session: Session, birth: Birth) -> tuple[int, int]:
    """What a parent's hello says of a child's disk: `acknowledged` and `heard`."""
    if birth.run != session.run.id or not session.inbox.is_of(birth.src, birth.epoch):
        return 0, 0
    owes = birth.src in session.node.record.below.owed  # then it is asked again, and acknowledges anew, on another disk
    return session.outbox.find_acknowledged(birth.src) if owes else 0, session.inbox.find_latest(birth.src)


def is_behind_child(session: Session, birth: Birth) -> bool:
    """This node has asked less than a child has taken. Questions of another life of this node are not compared."""
    asked = session.node.record.below.number
    return birth.run == session.run.id and life_of(birth.asked) == life_of(asked) and birth.asked > asked


def is_behind_parent(session: Session, hello: Hello) -> bool:
    """This node does not know what it has acknowledged to its parent, or sent there."""
    if not session.inbox.is_of(hello.src, hello.epoch):
        return False
    forgotten = hello.acknowledged and not session.inbox.peers[hello.src].has(hello.acknowledged)
    return bool(forgotten) or hello.heard >= session.outbox.seq
