"""Ranks as threads of one process, and small runs on them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.simulation.clients.behaviour import Behaviour, ClientHabits
from edge_sdk.simulation.clients.crowd import Crowd
from edge_sdk.simulation.network.build import NetworkPlan, make_network
from edge_sdk.simulation.processes.ranks import OneRank
from tests.methods.contract import fingerprint
from tests.methods.problems import LAYOUT, PATIENT, SEED, TREE, envs_of


class Meeting:
    """The place where threads that are ranks give and take."""

    def __init__(self, count: int) -> None:
        self.barrier, self.given = threading.Barrier(count), [None] * count

    def swap(self, number: int, value):
        self.given[number] = value
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found


class ThreadRank:
    def __init__(self, number: int, count: int, meeting: Meeting) -> None:
        self.number, self.count, self.meeting = number, count, meeting

    def gather(self, data: bytes) -> list[bytes]:
        return self.meeting.swap(self.number, data)

    def tell(self, data: bytes) -> bytes:
        return self.meeting.swap(self.number, data)[0]

    def close(self) -> None:
        return

    def add(self, values):
        return np.sum(self.meeting.swap(self.number, values), axis=0, dtype=np.int64)


def thread_ranks(count: int):
    meeting = Meeting(count)
    return [OneRank()] if count == 1 else [ThreadRank(i, count, meeting) for i in range(count)]


def on_all(ranks, play):
    """What `play(rank)` returns on each rank; the first error, if there is one."""

    def guarded(rank):
        try:
            return play(rank)
        except BaseException:
            if rank.count > 1:
                rank.meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [pool.submit(guarded, rank) for rank in ranks]
    errors = [f.exception() for f in futures if f.exception() is not None]
    real = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
    for error in [*real, *errors]:
        raise error
    return [f.result() for f in futures]


def network_of(method, settings, rounds, rank, directory, told=lambda *_: None, behaviour=None, **more):
    """A network over the small problems of tests/methods."""
    envs = envs_of(method, settings, rounds, np.float32)
    habits = ClientHabits(behaviour or Behaviour(), SEED)
    plan = NetworkPlan(
        method=method,
        env_of=envs.__getitem__,
        policies=more.pop("policies", PATIENT),
        layout=LAYOUT,
        crowd=Crowd(TREE, habits, SEED, **more),
        ranks=rank,
        directory=directory / f"rank-{rank.number}",
    )
    return make_network(plan, told)


def outcome_of(method, settings, rounds, rank, directory, **more):
    """(last state of the aggregator, what it told, each client's state) of a run, as fingerprints."""
    told = []
    network = network_of(
        evaluated(method, every=3),
        settings,
        rounds,
        rank,
        directory,
        told=lambda who, m, at: told.append((who, m)),
        **more,
    )
    network.start()
    while network.step():
        pass
    states = {name: fingerprint(network.clients.load(name, "h").record.state) for name in network.clients.states.places}
    root = fingerprint(network.nodes["aggregator"].record.state)
    return root, [fingerprint(m) for who, m in told if who == "aggregator"], states
