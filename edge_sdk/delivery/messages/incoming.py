"""Messages on their way in: read whole or in chunks, taken in by a transaction, acknowledged after its commit.

    read -> waiting -> took (in the open transaction) -> committed -> acks

An acknowledgement makes the sender forget the message, so it may leave only after the commit. Until then a message that
comes again is dropped without a word: to acknowledge it would be a promise that a kill could break, and to take it
twice would count it twice. After the commit a repetition is acknowledged each time, because the first acknowledgement
may have been lost. Functions that change the disk are called within the session's transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf

from edge_sdk.contract.records import changed
from edge_sdk.delivery.messages.inbox import Inbox
from edge_sdk.delivery.messages.incoming_transfers import IncomingTransfers
from edge_sdk.delivery.storage.failpoints import reach
from edge_sdk.delivery.storage.store import Job, Store
from edge_sdk.wire.frames import ACKS_PER_FRAME, Ack, Chunk, Message, Offer

ACK_DELAY = 0.02  # seconds for which an acknowledgement waits for a message to travel with


class Incoming:
    """What peers have sent, from the first byte to the acknowledgement.

    Attributes:
        waiting: messages read, to be taken in by the next transaction.
        load: peer -> number and bytes of its messages among these; thousands of peers are not looked through for one.
        took: messages of the open transaction; they are acknowledged when it is committed.
        arrived: message -> the file with its body, where it came in chunks.
        acks: peer -> acknowledgements that it has not been sent.
        ack_at: when these leave even if no message takes them along, by time.monotonic().
        acks_per_frame: how many of them travel together at most.
    """

    def __init__(self, store: Store):
        self.store = store
        self.inbox, self.transfers_in = Inbox(store), IncomingTransfers(store.files)
        self.transfers_in.sweep(self.inbox.is_awaited)
        self.waiting: dict[tuple[str, int], Message] = {}
        self.load: dict[str, tuple[int, int]] = {}
        self.took: dict[tuple[str, int], Message] = {}
        self.arrived: dict[tuple[str, int], str] = {}
        self.acks: dict[str, list[Ack]] = {}
        self.ack_at, self.acks_per_frame = inf, ACKS_PER_FRAME

    # -- reading

    def take_message(self, m: Message) -> str:
        """Take a message that has been read; returns "new", "duplicate" or "epoch" (see inbox.py)."""
        verdict = self.inbox.judge(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict == "new":
            self.keep(m)
        elif verdict == "duplicate":
            self.owe_ack(m)
        return verdict

    def take_piece(self, f: Chunk | Offer) -> str:
        """Take a chunk or an offer that has been read; returns what it was (see `IncomingTransfers.take_piece`)."""
        m = Message(f.run, f.src, f.epoch, f.seq, f.lo, (), f.number, f.asks)
        verdict = self.inbox.judge(m)
        if (m.src, m.seq) in self.waiting or (m.src, m.seq) in self.took:
            return "duplicate"
        if verdict != "new":
            if verdict == "duplicate" and (isinstance(f, Offer) or f.report):
                self.owe_ack(m)
            return verdict
        verdict, file = self.transfers_in.take_piece(f)
        reach("chunk")
        if file is not None:
            reach("assembled")
            self.keep(changed(m, body=self.store.files.read(file)))
            self.arrived[m.src, m.seq] = file
        return verdict

    def keep(self, m: Message) -> None:
        """Let a whole message wait for the next transaction."""
        self.waiting[m.src, m.seq] = m
        count, size = self.load.get(m.src, (0, 0))
        self.load[m.src] = count + 1, size + len(m.body)

    def forget_disk(self, src: str, epoch: int) -> None:
        """Drop what has been read of a peer's old disk. `epoch`: of the disk that it has now."""
        gone = [key for key, m in self.waiting.items() if m.src == src and m.epoch != epoch]
        for key in gone:
            count, size = self.load[src]
            self.load[src] = count - 1, size - len(self.waiting.pop(key).body)
        self.store.files.remove([self.arrived.pop(key) for key in gone if key in self.arrived])
        self.transfers_in.forget_disk(src, epoch)

    # -- the transaction

    def begin_commit(self) -> None:
        """A transaction follows that takes in all that waits."""
        if self.waiting:
            reach("read")
        self.took |= self.waiting

    def take_in(self) -> Iterator[Job]:
        """Note each waiting message in the inbox and hand it out as a job, which the caller saves."""
        took, self.waiting, self.load = list(self.waiting.values()), {}, {}
        for m in took:
            self.inbox.note_message(m)
            yield Job(m.src, m.number, m.asks, m.body, file=self.arrived.pop((m.src, m.seq), None))

    def after_commit(self) -> None:
        """What was taken in is committed: acknowledge it."""
        for m in self.took.values():
            self.owe_ack(m)
        self.took = {}

    # -- acknowledgements

    def owe_ack(self, m: Message) -> None:
        """Acknowledge a message with the next frame to its sender, or on its own soon."""
        self.acks.setdefault(m.src, []).append((m.src, m.epoch, m.seq))
        self.ack_at = min(self.ack_at, time.monotonic() + ACK_DELAY)

    def take_acks_for(self, peers: Sequence[str]) -> tuple[Ack, ...]:
        """Take out acknowledgements that may travel in a frame to these peers: as many as fit."""
        found: list[Ack] = []
        for peer in peers:
            mine = self.acks.pop(peer, [])
            room = self.acks_per_frame - len(found)
            found += mine[:room]
            if mine[room:]:
                self.acks[peer] = mine[room:]
        if not self.acks:
            self.ack_at = inf
        return tuple(found)

    def acknowledge_now(self) -> None:
        """Let acknowledgements leave with the next frames, whether a message takes them along or not."""
        self.ack_at = min(self.ack_at, 0.0) if self.acks else inf
