"""Disks that are replaced in the middle of a run, for methods whose aggregator mirrors what devices hold."""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.contract.method import UP
from tests.methods.problems import devices_counted


def replacing_a_disk(method, node, at):
    """The method, in which the disk of a node is replaced before its question of round `at`."""

    def once(role):
        lost = []

        def receive(env, s, sender, m):
            if env.me == node and sender == UP and m.round == at and not lost:
                lost.append(s)
                s = role.start(env)[0]
            return role.receive(env, s, sender, m)

        return replace(role, receive=receive)

    return replace(method, device=once(method.device), hospital=once(method.hospital))


def counted_by_era(transcript):
    """Aggregator round -> the devices that were counted; None: the round in which a new era began."""
    S, before = devices_counted(transcript), 0
    for t, closed in enumerate(transcript.closed["aggregator"]):
        if closed.state.ledger.era > before:
            S[t], before = None, closed.state.ledger.era
    return S
