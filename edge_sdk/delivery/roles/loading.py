"""The node of a session as its store has it: what was saved, with what only this process knows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from edge_sdk.contract import node as nodes
from edge_sdk.contract import round as rounds
from edge_sdk.contract.node import Envelope, Node, Record
from edge_sdk.contract.records import changed
from edge_sdk.delivery.roles.engine import Assembly, decode_saved
from edge_sdk.delivery.roles.renumbering import number_questions
from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.delivery.storage.store import Store


def load_node(name: str, parent: str | None, assembly: Assembly, store: Store, sent: Sequence[OutboxRow]) -> Node:
    """The node as it was saved, or a new one.

    Args:
        sent: messages that are in the outbox, of which the record has the latest to each peer.

    Raises:
        UsageError: another version has saved it, which writes it in another way.
    """
    fresh = nodes.new(name, assembly.role, assembly.env, parent, assembly.policy, time.monotonic())
    saved = store.load_record()
    if saved is None:
        return number_questions(fresh, store.epoch)
    last = {to: Envelope(name, to, row.number, None, row.asks) for row in sent for to in row.receivers}
    read = decode_saved(assembly.records, saved, f"{store.path}: the record")
    record: Record = changed(read, last=last)
    below = rounds.resume(record.below, assembly.policy, time.monotonic())
    return changed(fresh, record=changed(record, below=below))
