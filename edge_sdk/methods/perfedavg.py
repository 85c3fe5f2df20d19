"""Per-FedAvg. A. Fallah, A. Mokhtari, A. Ozdaglar: "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020.

FedAvg (fedavg.py) in which each local step follows the gradient of the loss after an adaptation step (meta.py):

    Algorithm 1                                                 here
    A_k, a random part of the users                             draw.quotas, draw.chosen
    line 6: w~ = w - alpha grad f(w; D)                         meta.meta_gradient
    line 7: w = w - beta (I - alpha Hess f(w; D'')) grad f(w~; D')   the same, in fedavg.client_update
    line 10: their mean                                         fedavg.average

Settings.hvp: "central" is the paper's HF-MAML, "none" its FO-MAML. beta is eta_l. With batch = 0 a step is on all of
the support and the query set; else one half of each mini-batch adapts and the other judges. D'' = D, as in AugFL.

Leaves the device, kind of upload, and what happens when few answer: as in FedAvg.
Devices that come or leave during a run: as in FedAvg; with unseen > 0 they wait for the next run, since who is kept out
of training is drawn once. Hospitals: the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Role, Send, Step, unchanged
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import AggregatorState, FedavgModel, HospitalState
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.membership.changing import fixed_while_unseen
from edge_sdk.methods.shared.training import meta
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, Gradient, steady_gradient
from edge_sdk.methods.shared.training.meta import HessianProduct, Meta


@dataclass(frozen=True, kw_only=True)
class Settings(fedavg.Settings, Meta):
    """Hyper-parameters: those of FedAvg, and of adaptation, which takes the place of fine-tuning.

    `weighting` is "uniform" here: line 10 of the paper is a plain mean over the users that take part.
    """

    weighting: str = "uniform"
    batch: int = 0
    local_epochs: int = 1
    weight_decay: float = 0.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_meta()
        if self.batch == 1:
            raise UsageError("batch = 1: one half of a batch adapts and the other judges; 2 or more, or 0 for all")
        if self.fine_tune_epochs:
            raise UsageError(f"fine_tune_epochs = {self.fine_tune_epochs}: here it is adapt_steps")


RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.05, "batch": 20, "local_epochs": 5}
SEARCH: SearchSpace = {
    **TRAINING_SEARCH,
    "weight_decay": OneOf((0.0, 1e-4, 1e-3)),
    "alpha": Range(3e-3, 0.3),
    "adapt_steps": OneOf((1, 5, 20)),
}


@dataclass(frozen=True, kw_only=True)
class Env(fedavg.Env):
    """What a node is given. `hessian`: device: the exact product, where settings ask for it."""

    settings: Settings = field(default_factory=Settings)
    hessian: HessianProduct | None = None


@dataclass(frozen=True)
class DeviceState:
    """`round`: in which it last took part; -1: it never did."""

    written_as: ClassVar[str] = "Device"

    round: int = -1


def meta_fn(env: Env, round: int) -> Gradient:
    """(theta, indices or None) -> (F_i, G_i)."""
    grad_fn, s = steady_gradient(env, round), env.settings
    support, query = meta.support_and_query(env, s.support)

    def at(theta: Vector, indices: Any = None) -> tuple[float, Vector]:
        cut = 0 if indices is None else max(1, len(indices) // 2)
        first, second = (support, query) if indices is None else (indices[:cut], indices[cut:])
        # the last batch of an epoch may be a single sample: then it does both
        return meta.meta_gradient(grad_fn, s, theta, first, second if len(second) else first, round, env.hessian)

    return at


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    if env.samples < 2:
        return s, [Send(UP, Nobody())]
    inner = replace(env, grad_fn=meta_fn(env, m.round), augmented=None)  # which is in meta_fn already
    _, sends = fedavg.device_receive(inner, fedavg.DeviceState(), sender, m)
    return DeviceState(m.round), sends


# Only those that train are asked, so only they count ------------------------------------------------------------
def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    trains = set(meta.training_devices(env, env.settings.unseen))
    return fedavg.hospital_receive(replace(env, here=tuple(d for d in env.here if d in trains)), s, sender, message)


def among_training(of: Callable[..., Step]) -> Callable[..., Step]:
    return lambda env, *rest: of(replace(env, sizes=meta.training_sizes(env, env.settings.unseen)), *rest)


def models(env: Env, s: DeviceState | None, m: FedavgModel) -> dict[str, Vector]:
    w = lowrank.unpack(env.layout, m.model)
    return {"global": w} if s is None else meta.evaluated_models(env, env.settings, w, seen=s.round >= 0)


PERFEDAVG = replace(
    fedavg.FEDAVG,
    name="perfedavg",
    summary="a model from which one step leads to one's own",
    personal=meta.ADAPTED,
    device=Role(lambda env: (DeviceState(), []), device_receive, unchanged, DeviceState),
    hospital=Role(fedavg.hospital_start, hospital_receive, fedavg.hospital_close, HospitalState),
    aggregator=Role(
        among_training(fedavg.aggregator_start),
        fedavg.aggregator_receive,
        among_training(fedavg.aggregator_close),
        AggregatorState,
    ),
    settings=Settings,
    env=Env,
    models=models,
    recommended=RECOMMENDED,
    search=SEARCH,
    fixed=fixed_while_unseen,
)
