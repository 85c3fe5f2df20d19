"""The inbox: which messages of each peer have been received, so that none counts twice.

A message is named by its sender, the epoch of the sender's disk, and a number that grows. Each frame says below which
number the sender is done with everything (`lo`), so what has to be remembered stays small.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_sdk.delivery.storage.database import UNKNOWN
from edge_sdk.delivery.storage.store import Store
from edge_sdk.wire.frames import Message

SEEN = 4096  # messages of one peer above its floor; one that keeps to the protocol never has so many
SLACK = 32  # numbers by which `lo` may run ahead before the floor is moved: moving it costs a write


@dataclass
class Peer:
    """Messages received of one peer's present disk: all numbers below `floor`, and those in `seen`."""

    epoch: int
    floor: int = 0
    seen: set[int] = field(default_factory=set)

    def has(self, seq: int) -> bool:
        return seq < self.floor or seq in self.seen


class Inbox:
    """Messages received of all peers. `note_message` and `renew_peer` are called within a transaction."""

    def __init__(self, store: Store):
        self.store = store
        self.peers = {name: Peer(*saved) for name, saved in store.load_peers().items()}

    def judge(self, m: Message) -> str:
        """Judge a message: "new", "duplicate", "crowded" or "epoch".

        Crowded: its sender has sent too many and never says what it is done with. Epoch: its sender's disk is not the
        one that was announced: it is either a late message of a disk that is gone, or the first of a new disk that has
        overtaken its birth. It is dropped in both cases; in the second it comes again.
        """
        peer = self.peers.get(m.src)
        if peer is None:
            return "new"
        if peer.epoch != m.epoch:
            return "epoch"
        if peer.has(m.seq):
            return "duplicate"
        return "new" if len(peer.seen) < SEEN or m.lo > peer.floor + SLACK else "crowded"

    def is_awaited(self, src: str, epoch: int, seq: int) -> bool:
        """A message of this name may still come: it is of the peer's present disk, and was not received."""
        peer = self.peers.get(src)
        return peer is None or (peer.epoch == epoch and not peer.has(seq))

    def note_message(self, m: Message) -> None:
        """Remember that this message was received."""
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

    def is_of(self, name: str, epoch: int) -> bool:
        """The peer is known, and this is its present disk."""
        return name in self.peers and self.peers[name].epoch == epoch

    def find_latest(self, name: str) -> int:
        """Number of the latest message that was received of a peer; 0: none."""
        peer = self.peers[name]
        return max(peer.floor - 1, *peer.seen, 0)

    def is_new(self, name: str, epoch: int) -> bool:
        """The peer has another disk than it had, or was never heard of."""
        peer = self.peers.get(name)
        return peer is None or peer.epoch != epoch

    def is_unknown(self, name: str) -> bool:
        """The peer is known by name only: it was removed, or this node's store was put back from a backup."""
        return name in self.peers and self.peers[name].epoch == UNKNOWN

    def renew_peer(self, name: str, epoch: int) -> None:
        """Forget what was received of the peer's old disk."""
        self.peers[name] = Peer(epoch)
        self.store.renew_peer(name, epoch)

    def list_known(self) -> set[str]:
        """Names of the peers of which more is known than that."""
        return {name for name in self.peers if not self.is_unknown(name)}

    def forget(self, name: str) -> None:
        """Know a peer by name only from now on, if it is known at all."""
        if name in self.peers:
            self.renew_peer(name, UNKNOWN)
