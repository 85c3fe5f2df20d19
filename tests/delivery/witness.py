"""A witness of the disks in `world.py`: what each store had at its last commit, and so what its node may say and do.

It reads SQLite itself and trusts nothing that a node remembers:

* an acknowledgement leaves only for a message that the sender of the acknowledgement has on its disk;
* a message leaves only when it is on its sender's disk, and has the same bytes each time;
* no message is taken in again that is on the disk already, and none of a disk that its sender has no more;
* no message is taken for received that its receiver never had on its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from edge_sdk.delivery.messages.inbox import Inbox
from edge_sdk.delivery.messages.outgoing import Outgoing
from edge_sdk.delivery.storage.database import Transaction
from edge_sdk.wire.frames import Acks, Chunk, Frame, Message, Offer

Name = tuple[str, int, int]
"""Of a message: its sender, the epoch of the sender's disk, its number."""


@dataclass(frozen=True)
class Disk:
    """A store at its last commit: its epoch, peers with epoch and floor, messages received, messages to be sent."""

    epoch: int = 0
    peers: dict[str, tuple[int, int]] = field(default_factory=dict)
    received: frozenset[tuple[str, int]] = frozenset()
    outbox: frozenset[int] = frozenset()

    def has(self, name: Name) -> bool:
        """This message was received."""
        src, epoch, seq = name
        known, floor = self.peers.get(src, (0, 0))
        return known == epoch and (seq < floor or (src, seq) in self.received)


def read_disk(db: Any) -> Disk:
    """Read a store with no transaction open."""
    epoch = db.execute("select v from kv where k = 'epoch'").fetchone()[0]
    peers = {name: (known, floor) for name, known, floor in db.execute("select name, epoch, floor from peer")}
    received = frozenset(db.execute("select src, seq from inbox").fetchall())
    return Disk(epoch, peers, received, frozenset(seq for (seq,) in db.execute("select seq from outbox")))


def path_of(db: Any) -> Path:
    return Path(db.execute("pragma database_list").fetchone()[2])


class Witness:
    """Watches the stores of all nodes, from `begin` to `end`.

    Args:
        may_commit: asked with the node's name before each commit; raises what the disk does instead.

    Attributes:
        disks: node -> its disk; one that is lost is another one as soon as it is read.
        ever: (receiver, message) of all that was ever on a disk.
        bodies: message -> checksum of what was first sent under its name.
    """

    def __init__(self, may_commit: Callable[[str], None]):
        self.may_commit = may_commit
        self.disks: dict[str, Disk] = {}
        self.ever: set[tuple[str, str, int, int]] = set()
        self.bodies: dict[tuple[str, int, int, int], int] = {}

    def begin(self) -> None:
        self.plain = plain_commit, plain_note, plain_ack = (
            Transaction.commit,
            Inbox.note_message,
            Outgoing.note_ack,
        )
        witness = self

        def commit(transaction: Transaction) -> None:
            name = path_of(transaction.db).parent.name
            witness.may_commit(name)
            try:
                plain_commit(transaction)
            finally:
                if not transaction.db.in_transaction:
                    witness.look(name, transaction.db)

        def note_message(inbox: Inbox, m: Message) -> None:
            disk = witness.disks.get(path_of(inbox.store.db).parent.name, Disk())
            assert not disk.has((m.src, m.epoch, m.seq)), f"{m.src}'s message {m.seq} is taken in again"
            assert disk.peers.get(m.src, (m.epoch, 0))[0] == m.epoch, f"a message of a disk that {m.src} has no more"
            plain_note(inbox, m)

        def note_ack(outgoing: Outgoing, src: str, seq: int, now: float) -> bool:
            news = plain_ack(outgoing, src, seq, now)
            name = path_of(outgoing.store.db).parent.name
            had = (src, name, outgoing.store.epoch, seq) in witness.ever
            assert had or not news, f"{name} takes its message {seq} for received, and {src} never had it"
            return news

        Transaction.commit, Inbox.note_message = commit, note_message  # type: ignore[method-assign]
        Outgoing.note_ack = note_ack  # type: ignore[method-assign]

    def end(self) -> None:
        Transaction.commit, Inbox.note_message, Outgoing.note_ack = self.plain  # type: ignore[method-assign]

    def look(self, name: str, db: Any) -> None:
        """Read a store that has been opened."""
        disk = self.disks[name] = read_disk(db)
        self.ever |= {(name, src, disk.peers[src][0], seq) for src, seq in disk.received}

    def forget(self, name: str) -> None:
        """Something has happened to a store while it was closed."""
        self.disks.pop(name, None)

    def check_owed(self, name: str, acks: dict[str, list[Name]]) -> None:
        """Check what a node is going to acknowledge."""
        for each in acks.values():
            self.check_acks(name, each)

    def check_acks(self, name: str, acks: Iterable[Name]) -> None:
        disk = self.disks.get(name, Disk())
        for src, epoch, seq in acks:
            is_current = disk.peers.get(src, (0, 0))[0] == epoch
            assert not is_current or disk.has((src, epoch, seq)), f"{name} acknowledges {src}'s {seq}, and has it not"

    def hear(self, name: str, frame: Frame) -> None:
        """A node says this."""
        disk = self.disks.get(name, Disk())
        self.check_acks(name, getattr(frame, "acks", ()))
        if isinstance(frame, Acks) or not isinstance(frame, (Message, Chunk, Offer)):
            return
        if frame.epoch != disk.epoch:
            raise AssertionError(f"{name} speaks for a disk that it has not")
        assert frame.seq in disk.outbox, f"{name} sends message {frame.seq}, which it has not saved"
        at = frame.index if isinstance(frame, Chunk) else -1
        if not isinstance(frame, Offer):
            found = crc32(frame.body)
            key = (name, frame.epoch, frame.seq, at)
            assert self.bodies.setdefault(key, found) == found, f"{name}'s message {frame.seq} is another one now"
