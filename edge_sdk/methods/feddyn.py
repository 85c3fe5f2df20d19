"""FedDyn. D. A. E. Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama: "Federated Learning
Based on Dynamic Regularization", ICLR 2021 (arXiv:2111.04263).

Each device adds to its loss a linear term that is changed in every round, so that a point at which all devices stand
still is a stationary point of the mean loss.

    Algorithm 1                                                 here
    a random part P_t of the devices                            draw.quotas, draw.chosen
    theta_k = argmin f_k - <g_k, theta> + alpha/2 ||theta - theta_{t-1}||^2   local_update
    g_k <- g_k - alpha (theta_k - theta_{t-1})                  local_gradient
    h <- h - alpha/m times the sum of theta_k - theta_{t-1}     server_gradient
    theta_t = mean over P_t of theta_k - h / alpha              aggregate

g_k is what the paper writes grad L_k(theta_k): it is that gradient where the argmin is exact. Here as there the argmin
is some epochs of SGD, and g_k = h = 0 at the start. Means are not weighted, as printed. alpha is 0.1, the largest that
the paper tries (0.1, 0.01, 0.001), which is right for tens of rounds; step size 0.1 with five epochs there, 0.05 and
two here. FedSLR without its penalties and its second phase is this method with alpha = 1 / eta_g (that is a test).

Leaves the device: theta_k, summed by its hospital, and scores as sums. g_k is not sent, but a hospital that keeps its
devices' uploads can add it up. Kind of upload: mirrored. h stays the mean of all g_k only if g_k moves exactly when its
upload was counted: shared/membership/mirror.py keeps it so.
When few answer: P_t is those that were counted; g_k of the others stay. Nobody: the same theta, with a new draw.
A lost disk: its g_k cannot be had again, so a new era begins, in which h and all g_k are zero; theta stays.
Devices that come during a run have g_k = 0, and h, the mean over m, shrinks to m / m' of itself; one that leaves for
good after it was counted begins a new era. A hospital is all its devices at once: m grows by them; when it leaves
after its sum was counted, also in the round that is on, nobody else knows its g_k, and a new era begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.running_statistics import without_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.contract.search import Range, SearchSpace
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.traffics import summed
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.reports import training_scores
from edge_sdk.methods.shared.membership import mirror
from edge_sdk.methods.shared.membership.changing import mean_over
from edge_sdk.methods.shared.membership.mirror import Account, CountedQuestion, Ledger, Unremembered
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, Training, above_zero, batches, descend, gradient

TRAINING = 1  # purpose of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters. `alpha`: weight of the pull to the global model."""

    eta_l: float = 0.05
    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "alpha")


SEARCH: SearchSpace = {**TRAINING_SEARCH, "alpha": Range(1e-3, 1.0)}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CountedModel(CountedQuestion):
    """Down: a round. `model`: theta."""

    model: Theta


# Equations ------------------------------------------------------------------------------------------------------
def local_update(env: Env, round: int, theta: Vector, g: Vector) -> tuple[Vector, float | None]:
    """Mini-batch SGD on f_k(v) + weight_decay/2 ||v||^2 - <g_k, v> + alpha/2 ||v - theta||^2, from v = theta.

    Returns:
        theta_k, and the mean loss of the batches (None where there was no batch).
    """
    s, v = env.settings, theta.copy()
    steps = batches(env.random(round, TRAINING), env.samples, s.batch, s.local_epochs, env.least)
    damp, pull = s.weight_decay + s.alpha, g + s.alpha * theta
    return v, descend(gradient(env, round, TRAINING), v, steps, s.eta(round), damp=damp, pull=pull)


def local_gradient(g: Vector, theta: Vector, theta_k: Vector, alpha: float) -> Vector:
    """g_k after a round."""
    return g - alpha * (theta_k - theta)


def server_gradient(h: Vector, theta: Vector, mean: Vector, alpha: float, share: float) -> Vector:
    """h after a round. `mean`: of theta_k over P_t; `share`: |P_t| / m."""
    return h - alpha * share * (mean - theta)


def aggregate(mean: Vector, h: Vector, alpha: float) -> Vector:
    """theta_t."""
    return mean - h / alpha


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers.

    Attributes:
        gradient: g_k, if the last upload was not counted.
        tried: g_k, if it was.
        account: the global round in which this device last took part, and what became of it.
    """

    gradient: Theta
    tried: Theta
    account: Account = field(default_factory=Account)


def train(env: Env, m: CountedModel, g: Vector) -> tuple[Vector, VectorSum]:
    theta_k, loss = local_update(env, m.round, m.model, g)
    upload = VectorSum(theta_k, 1.0, 1, training_scores(env, loss, {"global": m.model}))
    return without_statistics(env.layout, local_gradient(g, m.model, theta_k, env.settings.alpha)), upload


def movement(env: Env, m: CountedModel, upload: VectorSum) -> tuple[Vector, Vector]:
    """A `Movement`: by which -g_k / alpha (n,) moves, and theta_k from theta."""
    moved: Vector = upload.total - upload.count * m.model
    return without_statistics(env.layout, moved.copy()), moved


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What the aggregator remembers.

    Attributes:
        model: theta.
        gradient: h, the mean of g_k over all devices.
        round: t.
        ledger: the uploads of this round, and what was counted before.
    """

    model: Theta
    gradient: Theta
    round: int = 0
    ledger: Ledger = field(default_factory=Ledger)


def question(s: AggregatorState, hospital: str, devices: int) -> CountedModel:
    return CountedModel(s.round, devices, s.ledger.told(hospital), s.ledger.era, s.model)


def upload_size(env: NodeEnv) -> int:
    return env.layout.size


def step(env: Env, s: AggregatorState, sums: VectorSum) -> tuple[Vector, Vector]:
    """theta and h after a round."""
    alpha, mean = env.settings.alpha, sums.total / sums.count
    before = mean_over(s.gradient, s.ledger.devices, env.devices)
    h = without_statistics(env.layout, server_gradient(before, s.model, mean, alpha, sums.count / env.devices))
    return aggregate(mean, h, alpha), h


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: AggregatorState) -> CountedModel:
    return CountedModel(s.round, 0, {}, s.ledger.era, s.model)


def models(env: Env, s: DeviceState | None, m: CountedModel) -> dict[str, Vector]:
    return {"global": m.model}


FEDDYN = Method(
    name="feddyn",
    summary="averaging with a term that makes it exact",
    personal="",
    device=mirror.device(CountedModel, DeviceState, "gradient", train),
    hospital=mirror.hospital(CountedModel, upload_size),
    aggregator=mirror.aggregator(AggregatorState, question, step, upload_size, show),
    messages=(CountedModel, VectorSum, Nobody, Unremembered),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    mirrored={"hospital": movement, "aggregator": movement},
    shortened=mirror.shortened("gradient"),
    traffic=summed(CountedModel, "model", upload=VectorSum),
    search=SEARCH,
    adds_up=True,
)
