"""Disks that are replaced, or put back from a backup, in a run whose aggregator mirrors what devices hold."""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.contract.method import UP
from edge_sdk.contract.round import LEAP
from tests.methods.problems import devices_counted


def replacing_a_disk(method, node, at):
    """The method, in which the disk of a node is replaced before its question of round `at`."""

    def once(role):
        lost = []

        def receive(env, s, sender, m):
            if env.me == node and sender == UP and getattr(m, "round", -1) == at and not lost:
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


def putting_back(method, hospital, at):
    """The method, in which a hospital is put back at its question of round `at` from a backup of the round before, made
    when it had heard one device. Its questions have other numbers from then on (delivery/roles/renumbering.py)."""
    backup = []

    def receive(env, s, sender, m):
        if env.me != hospital:
            return method.hospital.receive(env, s, sender, m)
        if sender == UP and getattr(m, "round", -1) == at and len(backup) == 1:
            s = backup[0]
            backup.append("put back")
        done = method.hospital.receive(in_life(env), s, sender, m)
        if sender != UP and not backup and account_of(s).round == at - 1:
            backup.append(done[0])
        return done

    def in_life(env):
        return replace(env, asked=env.asked + LEAP) if len(backup) == 2 else env

    return replace(method, hospital=replace(method.hospital, receive=receive))


def account_of(state):
    state = getattr(state, "rounds", state)
    return state.account
