"""A device that looks on at a run, as it has too few samples as yet: when the run is over it predicts with the fleet's
model. Loaded when there is such a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edge_sdk.contract.method import OUT, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env, method_of, record_codec
from edge_sdk.nodes.models import kept_models

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly
    from edge_sdk.nodes.device.participant import Participant


@dataclass(frozen=True)
class OnlookerState:
    """Nothing: an onlooker remembers nothing but what it has told."""


def assemble_onlooker(device: Participant, run: Run) -> Assembly | None:
    """An onlooker's part in a run; None: it has the run's models, or there will be no model that devices have whole."""
    kept = kept_models.load(device.kept_path(run))
    if kept.finished or method_of(run).kernels != "plain":
        return None
    device.current, device.kept = run, kept
    env = make_env(run, device.model.layout, device.model.theta0)
    role = Role(lambda env: (OnlookerState(), []), onlooker_receive(run), unchanged, OnlookerState)
    found = make_assembly(run, "device", env)
    records = record_codec(role, method_of(run).messages, env.layout)
    return replace(found, role=role, records=records, looks_on=True)


def onlooker_receive(run: Run) -> Any:
    method = method_of(run)

    def receive(env: NodeEnv, s: OnlookerState, sender: str, m: Any) -> Step:
        if not isinstance(m, Finished) or m.shown is None:
            return s, []
        model = method.models(env, None, m.shown)["global"]
        return s, [Send(OUT, Models(m.round, {"global": model})), Send(OUT, Finished(m.round))]

    return receive
