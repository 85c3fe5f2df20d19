"""A device's part in a run for which it has too few samples as yet: it looks on, and predicts with the fleet's model
when the run is over. Loaded when there is such a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import OUT, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.methods.shared.training import partial
from edge_sdk.nodes.configuration.around import base_of
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env, method_of, record_codec

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly


@dataclass(frozen=True)
class OnlookerState:
    """Nothing: an onlooker remembers nothing but what it has told."""


def assemble_onlooker(run: Run, layout: Layout, theta0: Vector) -> Assembly | None:
    """An onlooker's part in a run; None: its devices share no model that each of them has whole."""
    method = method_of(run)
    if method.kernels != "plain" or base_of(run).models is partial.models:  # then part of it is nobody's
        return None

    def receive(env: NodeEnv, s: OnlookerState, sender: str, m: Any) -> Step:
        if not isinstance(m, Finished) or m.shown is None:
            return s, []
        model = method.models(env, None, m.shown)["global"]
        return s, [Send(OUT, Models(m.round, {"global": model})), Send(OUT, Finished(m.round))]

    role = Role(lambda env: (OnlookerState(), []), receive, unchanged, OnlookerState)
    found = make_assembly(run, "device", make_env(run, layout, theta0))
    return replace(found, role=role, records=record_codec(role, method.messages, layout), looks_on=True)
