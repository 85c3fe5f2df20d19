"""Numbers of questions after a backup was put back (see snapshot.py), or commits were lost (see log_check.py)."""

from __future__ import annotations

from logging import Logger

from edge_sdk.contract import node as nodes
from edge_sdk.contract.records import changed
from edge_sdk.contract.round import LEAP
from edge_sdk.delivery.roles.engine import MessageCodec
from edge_sdk.delivery.storage.store import Store


def go_on_from_backup(node: nodes.Node, store: Store, records: MessageCodec, log: Logger) -> nodes.Node:
    """The node as it goes on with this store; another one only where that is older than what peers have seen."""
    if not (store.is_restored or store.rolled_back):
        return node
    node, restored = renumber_questions(node, store.epoch), store.is_restored
    with store.transaction():
        store.save_record(records.encode(changed(node.record, last={})))
        store.forget_restored()
    if not restored:
        log.error("%s: %s: the last commits are missing; what is open is asked again", node.name, store.path)
        return node
    log.warning("%s: %s was put back from a backup; what is open is asked again", node.name, store.path)
    return node


def number_questions(node: nodes.Node, epoch: int) -> nodes.Node:
    """The new node, whose questions begin at a number that depends on its disk (`epoch`).

    A node that has lost its disk knows nothing of what it asked before. Somebody who plays an old answer of a child
    again (the child's disk is the same) must not find a question of that number.
    """
    return nodes.with_record(node, below=changed(node.record.below, number=epoch % 2**30 * LEAP))


def renumber_questions(node: nodes.Node, epoch: int) -> nodes.Node:
    """The node, which numbers its questions from now on far above those that it has asked since the backup was made.

    A child may still send an answer to one of those. Its number must be that of no question that is asked now, or it
    would count as the answer to that. How far above depends on the disk (`epoch`): the same backup may be put back
    twice, and a second power cut takes what was numbered after the first. Questions that were open in the backup keep
    their numbers: an answer to one is right, whenever it was given.
    """
    below = node.record.below
    return nodes.with_record(node, below=changed(below, number=below.number + (epoch % 2**16 + 1) * LEAP))
