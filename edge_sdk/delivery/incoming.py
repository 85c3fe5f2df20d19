"""Messages on their way here: read whole or in pieces, taken in by a commit, and acknowledged after it.

    read -> waiting -> took (in the transaction that is open) -> saved -> acks

Until it is saved, a message that comes again is dropped without a word: an acknowledgement would be a promise that a
kill could break. What changes the disk is called within a transaction of the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf

from edge_sdk.contract.records import changed
from edge_sdk.delivery.failpoints import reach
from edge_sdk.delivery.inbox import Inbox
from edge_sdk.delivery.store import Job, Store
from edge_sdk.delivery.transfer import Receiver
from edge_sdk.wire.frames import ACKS_PER_FRAME, Ack, Chunk, Message, Offer

ACK_DELAY = 0.02  # seconds in which an acknowledgement may find a message to travel with


class Incoming:
    """What peers have sent, from its first byte to its acknowledgement.

    Attributes:
        waiting: messages read, to be taken in by the next commit.
        took: those of the transaction that is open: acknowledged when it is saved.
        arrived: files of messages that came in pieces.
        acks: peer -> acknowledgements that it has not been sent.
        ack_at: when these go even if no message takes them along, by time.monotonic().
    """

    def __init__(self, store: Store):
        self.store = store
        self.inbox, self.receiver = Inbox(store), Receiver(store.files)
        self.waiting: dict[tuple[str, int], Message] = {}
        self.took: dict[tuple[str, int], Message] = {}
        self.arrived: dict[tuple[str, int], str] = {}
        self.acks: dict[str, list[Ack]] = {}
        self.ack_at = inf

    # -- reading

    def take(self, m: Message) -> str:
        """A message that has been read; the inbox's verdict."""
        verdict = self.inbox.verdict(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict == "new":
            self.waiting[m.src, m.seq] = m
        elif verdict == "duplicate":
            self.owe_ack(m)
        return verdict

    def take_piece(self, f: Chunk | Offer) -> str:
        """A piece of a message that has been read; what it was."""
        m = Message(f.run, f.src, f.epoch, f.seq, f.lo, (), f.number, f.asks)
        verdict = self.inbox.verdict(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict != "new":
            if verdict == "duplicate" and (isinstance(f, Offer) or f.report):
                self.owe_ack(m)
            return verdict
        verdict, file = self.receiver.take(f)
        reach("chunk")
        if file is not None:
            reach("assembled")
            self.waiting[m.src, m.seq] = changed(m, body=self.store.files.read(file))
            self.arrived[m.src, m.seq] = file
        return verdict

    def forget(self, src: str, epoch: int) -> None:
        """What has been read of a disk that the peer no longer has. `epoch`: of the one that it has now."""
        gone = [key for key, m in self.waiting.items() if m.src == src and m.epoch != epoch]
        for key in gone:
            del self.waiting[key]
        self.store.files.remove([self.arrived.pop(key) for key in gone if key in self.arrived])
        self.receiver.forget(src, epoch)

    # -- the transaction

    def begin(self) -> None:
        """What waits will be taken in by the transaction that follows."""
        if self.waiting:
            reach("read")
        self.took |= self.waiting

    def take_in(self) -> Iterator[Job]:
        """Note each message in the inbox; the caller keeps the work that it makes, before it asks for the next."""
        took, self.waiting = list(self.waiting.values()), {}
        for m in took:
            self.inbox.note(m)
            yield Job(m.src, m.number, m.asks, m.body, file=self.arrived.pop((m.src, m.seq), None))

    def committed(self) -> None:
        """What was taken in is saved."""
        for m in self.took.values():
            self.owe_ack(m)
        self.took = {}

    # -- acknowledgements

    def owe_ack(self, m: Message) -> None:
        self.acks.setdefault(m.src, []).append((m.src, m.epoch, m.seq))
        self.ack_at = min(self.ack_at, time.monotonic() + ACK_DELAY)

    def acks_for(self, peers: Sequence[str]) -> tuple[Ack, ...]:
        """Acknowledgements that may travel in a frame to these peers; they are owed no more."""
        found: list[Ack] = []
        for peer in peers:
            mine = self.acks.pop(peer, [])
            room = ACKS_PER_FRAME - len(found)
            found += mine[:room]
            if mine[room:]:
                self.acks[peer] = mine[room:]
        if not self.acks:
            self.ack_at = inf
        return tuple(found)

    def acknowledge_now(self) -> None:
        """Wait for no message to travel with."""
        self.ack_at = min(self.ack_at, 0.0) if self.acks else inf
