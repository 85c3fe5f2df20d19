"""The nodes of a simulation, from a method and what each node is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract import node as nodes
from edge_sdk.contract.loopback import ROOT
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.contract.records import changed
from edge_sdk.contract.round import Policy
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.assembly import TOLD
from edge_sdk.simulation.clients.clients import Clients, RunAll
from edge_sdk.simulation.clients.crowd import Crowd
from edge_sdk.simulation.clients.population import MOST_KEPT
from edge_sdk.simulation.clients.states import ClientStates, Place
from edge_sdk.simulation.network.exchange import ClientOutcome, Exchange, RankOutcomes
from edge_sdk.simulation.network.network import SimulatedNetwork, Told
from edge_sdk.simulation.processes.ranks import Ranks
from edge_sdk.simulation.sums.tallies import closing_together
from edge_sdk.simulation.sums.traffic import Traffic
from edge_sdk.wire.codec.codec import Codec

BATCH = 2**40
"""Bytes of what ranks exchange at once, at most: memory sets the limit."""


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """What a network is made of.

    Attributes:
        method: with evaluation around it.
        env_of: name of a node -> what it is given. Of a client it is asked when the client is.
        policies: tier -> when its rounds are over.
        layout: of theta.
        crowd: hospitals and their clients.
        ranks: the processes.
        directory: of the clients' records; of this rank alone.
        dtype: the run's float type.
        root: name of the aggregator.
        kept: clients whose data stay in memory for the next time.
        run_clients: how the work on several clients goes on; None: on one after the other.
    """

    method: Method
    env_of: Callable[[str], NodeEnv]
    policies: Mapping[str, Policy]
    layout: Layout
    crowd: Crowd
    ranks: Ranks
    directory: Path
    dtype: npt.DTypeLike = np.float32
    root: str = ROOT
    kept: int = MOST_KEPT
    run_clients: RunAll | None = None

    def records(self, tier: str, layout: Layout | None = None) -> Codec:
        """Codec of the record of a node of this tier. A diverged run is saved, too.

        Args:
            layout: of the node's own model; None: the run's.
        """
        state = getattr(self.method, tier).state
        roots = dict.fromkeys([nodes.Record, nodes.Envelope, state, *self.method.messages, *TOLD])
        return Codec(roots, layout=layout or self.layout, dtype=self.dtype, finite=False, limit=BATCH)

    def messages(self) -> Codec:
        """Codec of what crosses a wire, and of what ranks exchange."""
        roots = dict.fromkeys([*self.method.messages, ClientOutcome, RankOutcomes])
        return Codec(roots, layout=self.layout, dtype=self.dtype, limit=BATCH)


def make_network(plan: NetworkPlan, told: Told, places: Mapping[str, Place] | None = None) -> SimulatedNetwork:
    """The network of a run that has not begun. `places`: of records of clients, where it is to go on.

    Raises:
        UsageError: the method's devices have a clock of their own, which is not simulated.
    """
    policy = plan.policies.get("device", Policy())
    if policy != Policy():
        raise UsageError(f"method {plan.method.name}: its devices work on clocks of their own, which no simulation has")
    messages, ranks = plan.messages(), plan.ranks
    states = ClientStates(plan.directory, places)
    records = partial(plan.records, "device")
    clients = Clients(plan.method.device, policy, plan.env_of, states, records, plan.kept, plan.run_clients)
    exchange = Exchange(plan.method, ranks, messages)
    return SimulatedNetwork(plan.root, make_nodes(plan), clients, plan.crowd, exchange, Traffic(messages), told)


def make_nodes(plan: NetworkPlan) -> dict[str, nodes.Node]:
    """Aggregator and hospitals, as they are before the run."""
    found = {plan.root: make_node(plan, plan.root, "aggregator", None, tuple(plan.crowd.tree))}
    for hospital, names in plan.crowd.tree.items():
        node = make_node(plan, hospital, "hospital", plan.root, names)
        adds = plan.method.adds_up
        found[hospital] = changed(node, role=closing_together(node.role, plan.ranks)) if adds else node
    return found


def make_node(plan: NetworkPlan, name: str, tier: str, parent: str | None, children: Sequence[str]) -> nodes.Node:
    role: Any = getattr(plan.method, tier)
    env = replace(plan.env_of(name), me="")  # filled in at each call, without comparing all names of clients
    return nodes.new(name, role, env, parent, plan.policies.get(tier, Policy()), 0.0, children)
