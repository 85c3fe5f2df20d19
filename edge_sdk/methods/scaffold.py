"""SCAFFOLD. S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", ICML 2020 (arXiv:1910.06378v4).

Each device holds a control variate c_i, the aggregator their mean c; local steps follow grad f_i - c_i + c, so that
devices with different data do not drift apart.

    Algorithm 1                                                 here
    3        a part S of the devices                            draw.quotas, draw.chosen
    4        send x and c                                       ModelAndControl
    7-11     y_i <- y_i - eta_l (g_i(y_i) - c_i + c)            local_update
    12       c_i+: (i) g_i(x), or (ii) c_i - c + (x - y_i) / (K eta_l)   control_variate
    13       send y_i - x and c_i+ - c_i                        train, with y_i for y_i - x
    16-17    x <- x + eta_g mean, c <- c + |S|/N mean           aggregate

y_i is sent for y_i - x: the aggregator has x, and a node that looks at the lengths of uploads can compare models, while
differences may well be of any length. Means are not weighted, as printed. K is the same for all devices, as printed,
however many samples they have: where it follows from the samples (local_steps = 0), a device with hundreds of steps
in a round is carried far away by the c of those that make few, and on recorded traces that does not converge.
Where the paper is silent: in (i), g_i(x) is over all samples of the device; c_i includes the gradient of
weight_decay/2 ||y||^2, which is part of f_i here. The paper tunes eta_l and has eta_g = 1, option (ii) and c_i = 0 at
the start; its K is that of its epochs on equal shares of the data.

Leaves the device: y_i and c_i+ - c_i, summed by its hospital, and scores as sums. With option (ii) the second
follows from the first, c and K; with (i) it is a gradient at x. Both hops carry two vectors each way, twice what FedAvg
sends. c_i is not sent, but a hospital that keeps its devices' uploads can add it up. Kind of upload: mirrored. c stays
the mean of all c_i only if c_i moves exactly when its upload was counted: shared/membership/mirror.py keeps it so.
When few answer: S is those that were counted; c_i of the others stay. Nobody: the same x and c, with a new draw.
A lost disk: its c_i cannot be had again, so a new era begins, in which c and all c_i are zero; x stays.
Devices that come during a run have c_i = 0, and c, the mean over N, shrinks to N / N' of itself; one that leaves for
good after it was counted begins a new era. A hospital is all its devices at once: N grows by them; when it leaves
after its sum was counted, also in the round that is on, nobody else knows its c_i, and a new era begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.running_statistics import averaged_statistics, without_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.traffics import summed
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.reports import training_scores
from edge_sdk.methods.shared.membership import mirror
from edge_sdk.methods.shared.membership.changing import mean_over
from edge_sdk.methods.shared.membership.mirror import Account, CountedQuestion, Ledger, Unremembered
from edge_sdk.methods.shared.training.local import (
    TRAINING_SEARCH,
    Indices,
    Training,
    above_zero,
    batches,
    descend,
    gradient,
    one_of,
    zero_or_more,
)

TRAINING = 1  # purpose of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters.

    Attributes:
        eta_g: global step size.
        local_steps: K, mini-batches of each device per round, over as many passes as that takes; 0: as many as
            local_epochs passes have, which differs from device to device.
        control: how c_i is made anew: "steps" is the paper's option (ii), "gradient" its option (i), which costs a
            device one more pass over its samples.
    """

    eta_l: float = 0.05
    eta_g: float = 1.0
    local_steps: int = 50
    control: str = "steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "eta_g")
        one_of(self, ("steps", "gradient"), "control")
        zero_or_more(self, "local_steps")
        if not self.local_steps and not self.local_epochs:
            raise UsageError("local_steps = local_epochs = 0: without a step there is no control variate; 1 or more")


SEARCH: SearchSpace = {
    **TRAINING_SEARCH,
    "eta_g": Range(0.3, 2.0),
    "local_steps": OneOf((0, 25, 50, 100)),
}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ModelAndControl(CountedQuestion):
    """Down: a round.

    Attributes:
        model: x.
        control: c.
    """

    model: Theta
    control: Theta


# Equations ------------------------------------------------------------------------------------------------------
def local_update(env: Env, round: int, x: Vector, c: Vector, c_i: Vector) -> tuple[Vector, int, float | None]:
    """Lines 7 to 11: mini-batch SGD on f_i(y) + weight_decay/2 ||y||^2 - <c_i - c, y>, from y = x.

    Returns:
        y_i, the number K of its steps, and the mean loss of the batches.
    """
    s, y = env.settings, x.copy()
    steps = mini_batches(env, round)
    loss = descend(gradient(env, round, TRAINING), y, iter(steps), s.eta(round), damp=s.weight_decay, pull=c_i - c)
    return y, len(steps), loss


def mini_batches(env: Env, round: int) -> list[Indices]:
    """The K mini-batches of a device in a round, shuffled anew in each pass; at least one sample is needed."""
    s, k = env.settings, env.settings.local_steps
    passes = batches(env.random(round, TRAINING), env.samples, s.batch, k or s.local_epochs, env.least)
    return list(islice(passes, k or None))


def control_variate(env: Env, round: int, x: Vector, y: Vector, steps: int, c: Vector, c_i: Vector) -> Vector:
    """Line 12: c_i+."""
    s = env.settings
    if s.control == "gradient":
        return gradient(env, round, TRAINING)(x, None)[1] + s.weight_decay * x
    return c_i - c + (x - y) / (steps * s.eta(round))


def aggregate(
    x: Vector, c: Vector, mean: Vector, control_moved: Vector, eta_g: float, share: float
) -> tuple[Vector, Vector]:
    """Lines 16 and 17. `mean`, `control_moved`: means over S of y_i and of c_i+ - c_i; `share`: |S| / N."""
    return x + eta_g * (mean - x), c + share * control_moved


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers.

    Attributes:
        control: c_i, if the last upload was not counted.
        tried: c_i, if it was.
        account: the global round in which this device last took part, and what became of it.
    """

    control: Theta
    tried: Theta
    account: Account = field(default_factory=Account)


def train(env: Env, m: ModelAndControl, c_i: Vector) -> tuple[Vector, VectorSum]:
    y, steps, loss = local_update(env, m.round, m.model, m.control, c_i)
    tried = without_statistics(env.layout, control_variate(env, m.round, m.model, y, steps, m.control, c_i))
    both = np.concatenate([y, tried - c_i])
    return tried, VectorSum(both, 1.0, 1, training_scores(env, loss, {"global": m.model}))


def movement(env: Env, m: ModelAndControl, upload: VectorSum) -> tuple[Vector, Vector]:
    """A `Movement`: by which c_i (n,) moves, and y_i from x with it (2 n,)."""
    y, control_moved = np.split(upload.total, 2)
    return control_moved, np.concatenate([y - upload.count * m.model, control_moved])


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What the aggregator remembers.

    Attributes:
        model: x.
        control: c, the mean of c_i over all devices.
        round: t.
        ledger: the uploads of this round, and what was counted before.
    """

    model: Theta
    control: Theta
    round: int = 0
    ledger: Ledger = field(default_factory=Ledger)


def question(s: AggregatorState, hospital: str, devices: int) -> ModelAndControl:
    return ModelAndControl(s.round, devices, s.ledger.told(hospital), s.ledger.era, s.model, s.control)


def upload_size(env: NodeEnv) -> int:
    return 2 * env.layout.size


def step(env: Env, s: AggregatorState, sums: VectorSum) -> tuple[Vector, Vector]:
    """x and c after a round."""
    mean, control_moved = np.split(sums.total / sums.count, 2)
    control = mean_over(s.control, s.ledger.devices, env.devices)
    x, c = aggregate(s.model, control, mean, control_moved, env.settings.eta_g, sums.count / env.devices)
    return averaged_statistics(env.layout, x, mean), c


# As integers ----------------------------------------------------------------------------------------------------
def first_reference(env: NodeEnv) -> Vector:
    """c = 0 and the first x, one behind the other, by name."""
    return np.concatenate([np.zeros_like(env.theta0), env.theta0])


def near_model(env: NodeEnv, who: str, upload: VectorSum, path: str, reference: Vector) -> Vector:
    """What lies near an upload: x for y_i, nothing for the change of c_i. `reference`: c, then x, by name."""
    x = np.split(reference, 2)[1]
    return upload.weight * np.concatenate([x, np.zeros_like(x)])


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: AggregatorState) -> ModelAndControl:
    return ModelAndControl(s.round, 0, {}, s.ledger.era, s.model, s.control)


def models(env: Env, s: DeviceState | None, m: ModelAndControl) -> dict[str, Vector]:
    return {"global": m.model}


SCAFFOLD = Method(
    name="scaffold",
    summary="averaging, with the drift of devices taken out",
    personal="",
    device=mirror.device(ModelAndControl, DeviceState, "control", train),
    hospital=mirror.hospital(ModelAndControl, upload_size),
    aggregator=mirror.aggregator(AggregatorState, question, step, upload_size, show),
    messages=(ModelAndControl, VectorSum, Nobody, Unremembered),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    mirrored={"hospital": movement, "aggregator": movement},
    shortened=mirror.shortened("control"),
    traffic=summed(ModelAndControl, "model", "control", upload=VectorSum, anchor=near_model, first=first_reference),
    search=SEARCH,
    adds_up=True,
)
