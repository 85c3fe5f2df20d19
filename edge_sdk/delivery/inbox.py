"""What has been received from each peer, so that nothing counts twice. Bounded: a sender says below what it is done."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_sdk.delivery.store import Store
from edge_sdk.wire.frames import Message

SLACK = 32  # how far a sender's `lo` may run ahead before the floor is moved: a write is saved each time


@dataclass
class Peer:
    """Messages of one peer's present disk."""

    epoch: int
    floor: int = 0
    seen: set[int] = field(default_factory=set)

    def has(self, seq: int) -> bool:
        return seq < self.floor or seq in self.seen


class Inbox:
    """All peers. `note` and `renew` are called inside a transaction."""

    def __init__(self, store: Store):
        self.store = store
        self.peers = {name: Peer(*saved) for name, saved in store.peers().items()}

    def verdict(self, m: Message) -> str:
        """One of "new", "duplicate" and "epoch": from a disk that the peer no longer has, or has not announced yet."""
        peer = self.peers.get(m.src)
        if peer is None:
            return "new"
        if peer.epoch != m.epoch:
            return "epoch"
        return "duplicate" if peer.has(m.seq) else "new"

    def note(self, m: Message) -> None:
        peer = self.peers.get(m.src)
        if peer is None:
            peer = self.peers[m.src] = Peer(m.epoch)
            self.store.save_peer(m.src, m.epoch, 0)
        self.store.save_received(m.src, m.seq)
        peer.seen.add(m.seq)
        if m.lo > peer.floor + SLACK:
            peer.floor = m.lo
            peer.seen = {seq for seq in peer.seen if seq >= m.lo}
            self.store.save_peer(m.src, m.epoch, m.lo)

    def is_new(self, name: str, epoch: int) -> bool:
        """The peer has another disk than it had."""
        peer = self.peers.get(name)
        return peer is None or peer.epoch != epoch

    def renew(self, name: str, epoch: int) -> None:
        self.peers[name] = Peer(epoch)
        self.store.renew_peer(name, epoch)
