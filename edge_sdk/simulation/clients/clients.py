"""Clients at work: a client is made when it is asked, answers, and leaves nothing but what it has to remember."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import NodeEnv, Role
from edge_sdk.contract.records import changed, record
from edge_sdk.contract.round import Policy
from edge_sdk.simulation.clients.population import MOST_KEPT
from edge_sdk.simulation.clients.states import ClientStates
from edge_sdk.wire.codec.codec import Codec


@record
class Worked:
    """What a question to a client has come to.

    Attributes:
        answers: messages for its hospital; none, if it was a notice or did not count.
        told: messages for the application.
        kept: the client has something to remember.
        refused: why the question did not count; "" if it did.
    """

    answers: tuple[Any, ...] = ()
    told: tuple[Any, ...] = ()
    kept: bool = False
    refused: str = ""


RunAll = Callable[[Sequence[Callable[[], Worked]]], Iterator[Worked]]
"""Calls -> what they return, in their order."""


class Clients:
    """The clients of one rank.

    Args:
        role: of the method's devices.
        policy: of its devices.
        env_of: client -> what it is given; asked again for a client that was not here for a while.
        states: where its clients' records are kept.
        records: layout of a client's model -> codec of its `node.Record` with the role's state; asked once for each.
        kept: clients whose envs, with their data, stay in memory for the next time.
        run: how the work on several clients goes on; None: on one after the other.
    """

    def __init__(
        self,
        role: Role,
        policy: Policy,
        env_of: Callable[[str], NodeEnv],
        states: ClientStates,
        records: Callable[[Layout], Codec],
        kept: int = MOST_KEPT,
        run: RunAll | None = None,
    ) -> None:
        self.role, self.policy, self.env_of, self.kept, self.run = role, policy, env_of, kept, run
        self.states, self.records = states, records
        self.envs: OrderedDict[str, NodeEnv] = OrderedDict()
        self.fresh: dict[str, nodes.Node] = {}
        self.begins_with_arrays: bool | None = None
        self.codecs: dict[int, tuple[Layout, Codec]] = {}

    def env(self, name: str) -> NodeEnv:
        """What a client is given; made anew when it was not needed for a while."""
        found = self.envs.pop(name, None)
        if found is None:
            found = changed(self.env_of(name), me=name)
            if len(self.envs) >= self.kept:
                self.fresh.pop(self.envs.popitem(last=False)[0], None)
        self.envs[name] = found
        return found

    def work_all(self, questions: Sequence[nodes.Envelope], now: float) -> Iterator[Worked]:
        """The clients' calls for several messages, each for another client, in their order."""
        if self.run is None:
            return (self.work(e, now) for e in questions)
        return self.run([partial(self.work, e, now) for e in questions])

    def work(self, e: nodes.Envelope, now: float) -> Worked:
        """A client's call for one message, and its new record on disk."""
        node = self.load(e.to, e.sender)
        done = nodes.arrive(node, e, now)
        out, told = list(done.out), list(done.told)
        while own := [m for m in out if m.to == e.to]:
            out = [m for m in out if m.to != e.to]
            for message in own:
                done = nodes.arrive(done.node, message, now)
                out += done.out
                told += done.told
        if done.refused:
            return Worked(refused=done.refused, kept=e.to in self.states)
        first = None if e.to in self.states else node.record.state
        return Worked(tuple(m.message for m in out), tuple(told), self.save(done.node, first))

    def load(self, name: str, hospital: str) -> nodes.Node:
        """A client as it was left, or as on its first day."""
        env = self.env(name)
        if name in self.states:
            record = self.codec(env).decode(self.states.read(name), nodes.Record)
            return nodes.Node(name, self.role, env, hospital, record)
        found = self.fresh.get(name)
        if found is None or found.env is not env:
            found = nodes.start(nodes.new(name, self.role, env, hospital, self.policy, 0.0), 0.0).node
            self.keep_fresh(found)
        return found

    def keep_fresh(self, node: nodes.Node) -> None:
        """Keeps a client's first day beside its env, where that is small: it is the same whenever it is asked."""
        if self.begins_with_arrays is None:
            self.begins_with_arrays = holds_arrays(node.record.state)
        if not self.begins_with_arrays:
            self.fresh[node.name] = node

    def save(self, node: nodes.Node, first: Any = None) -> bool:
        """Keeps what a client has to remember; False: it is as on its first day. `first`: its state then, if known."""
        if self.is_fresh(node, first):
            self.states.forget(node.name)
            return False
        self.states.write(node.name, self.codec(node.env).encode(changed(node.record, last={})))
        return True

    def codec(self, env: NodeEnv) -> Codec:
        """Codec of a client's record. Clients may have models of different layouts, each shared by all its clients,
        so it is known by its identity: comparing all its slots for each answer would cost."""
        key = id(env.layout)
        if key not in self.codecs:
            self.codecs[key] = env.layout, self.records(env.layout)  # held, so that no other gets its identity
        return self.codecs[key][1]

    def is_fresh(self, node: nodes.Node, first: Any = None) -> bool:
        """True if a client's state is that of its first day. One that begins with arrays is taken to change them."""
        if self.begins_with_arrays is None:
            self.begins_with_arrays = holds_arrays(self.role.start(node.env)[0])
        if self.begins_with_arrays or holds_arrays(getattr(node.record.state, "inner", None)):
            return False
        return bool(node.record.state == (first if first is not None else self.role.start(node.env)[0]))


def holds_arrays(value: Any) -> bool:
    """True if there is an array anywhere in plain data."""
    if isinstance(value, np.ndarray):
        return True
    if is_dataclass(value):
        return any(holds_arrays(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, dict):
        return any(map(holds_arrays, value.values()))
    return isinstance(value, (tuple, list)) and any(map(holds_arrays, value))
