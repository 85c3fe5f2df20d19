"""FedAvg of a part of theta: the hospital and the aggregator of FedPer, FedRep, FedBABU and FedBN, and what their
devices have in common. Messages carry the shared slots only; the others never leave a device (parts.py).

A method of this kind says which slots are personal by default, and what a device does with the model that it receives:
a `Phase`, (env, round, theta) -> (theta after training, mean loss of its batches).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import UP, Method, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation import draw, gather, uploads
from edge_sdk.methods.shared.aggregation.gather import Nobody, Tally
from edge_sdk.methods.shared.aggregation.traffics import summed
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.reports import progress, training_scores
from edge_sdk.methods.shared.training import parts
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, Training, batches, descend, gradient, one_of
from edge_sdk.methods.shared.training.parts import Parts, Spans


@dataclass(frozen=True, kw_only=True)
class PartTraining(Training):
    """Settings of a method that shares a part of theta.

    Attributes:
        personal_slots: which slots stay on each device, as parts.py reads it.
        weighting: of the mean: "samples" or "uniform".
    """

    eta_l: float = 0.05
    personal_slots: str = parts.LAST
    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, ("samples", "uniform"), "weighting")


@dataclass(frozen=True, kw_only=True)
class PartEnv(NodeEnv):
    """What a node is given. `settings`: those of the method."""

    settings: PartTraining = field(default_factory=PartTraining)

    @property
    def parts(self) -> Parts:
        """Which slots are shared, and which stay.

        Raises:
            UsageError: this model has no such slots.
        """
        return parts.parts(self.layout, self.settings.personal_slots)


Phase = Callable[..., tuple[Vector, float | None]]
"""(env, round, theta) -> theta after training, and the mean loss of its batches."""


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SharedPart:
    """Down: the shared slots of a round.

    Attributes:
        values: float (k,), the shared slots in the order of theta.
        round: t, global.
        pick: how many devices of the receiving hospital take part.
    """

    values: Values
    round: int
    pick: int

    def check(self, layout: Layout) -> None:
        if self.round < 0 or self.pick < 0:
            raise ValueError(f"round {self.round}, {self.pick} devices: both are 0 or more")
        if self.values.size > layout.size:
            raise ValueError(f"{self.values.size} shared numbers, the model has {layout.size}")


# Training of a part ---------------------------------------------------------------------------------------------
def descended(
    env: PartEnv, round: int, theta: Vector, where: Spans | None, epochs: int, purpose: int
) -> tuple[Vector, float | None]:
    """theta after epochs of mini-batch SGD on f_i + weight_decay/2 ||.||^2 in one part of it, the rest being frozen.

    Args:
        where: the part; None: all of theta.

    Returns:
        theta (n,), and the mean loss of the batches (None where there was no batch).
    """
    s, after, grad_fn = env.settings, theta.copy(), gradient(env, round, purpose)
    v = after if where is None else parts.taken(theta, where)
    at = grad_fn if where is None else parts.along(grad_fn, theta, where)
    steps = batches(env.random(round, purpose), env.samples, s.batch, epochs, env.least)
    loss = descend(at, v, steps, s.eta(round), damp=s.weight_decay)
    if where is not None:
        parts.put(after, where, v)
    return after, loss


TRAINING = 1  # purpose of randomness


def joint_phase(env: PartEnv, round: int, theta: Vector) -> tuple[Vector, float | None]:
    """The `Phase` of FedPer and FedBN: mini-batch SGD on f_i + weight_decay/2 ||theta||^2 in all slots together."""
    return descended(env, round, theta, None, env.settings.local_epochs, TRAINING)


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PartDevice:
    """What a device remembers. `own`: float (n - k,), its personal slots."""

    own: Values


def device(phase: Phase) -> Role:
    """A device that trains with the shared slots that it receives and its own, and sends the shared ones."""

    def start(env: PartEnv) -> Step:
        return PartDevice(parts.taken(env.earlier.get("personal", env.theta0), env.parts.personal)), []

    def receive(env: PartEnv, s: PartDevice, sender: str, message: object) -> Step:
        m: SharedPart = gather.expected(sender, message, SharedPart)
        theta = whole(env, m, s.own)
        if env.samples == 0:
            return s, [Send(UP, Nobody())]
        after, loss = phase(env, m.round, theta)
        scores = training_scores(env, loss, {"global": whole(env, m, initial(env)), "personal": theta})
        return PartDevice(parts.taken(after, env.parts.personal)), [Send(UP, upload(env, after, scores))]

    return Role(start, receive, unchanged, PartDevice)


def initial(env: PartEnv) -> Vector:
    """The personal slots (n - k,) of the model that the run begins with."""
    return parts.taken(env.theta0, env.parts.personal)


def whole(env: PartEnv, m: SharedPart, own: Vector) -> Vector:
    """theta (n,) of what was received and what stayed here.

    Raises:
        PeerError: what was received is not the shared part.
    """
    p = env.parts
    return parts.joined(p, uploads.checked(UP, m.values, parts.size(p.shared)), own)


def upload(env: PartEnv, theta: Vector, scores: Mapping[str, float]) -> VectorSum:
    """The shared slots of a trained model, weighted for the mean."""
    weight = float(env.labelled) if env.settings.weighting == "samples" else 1.0
    return VectorSum(weight * parts.taken(theta, env.parts.shared), weight, 1, scores)


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PartHospital:
    """What a hospital remembers. `tally`: the uploads of the latest question."""

    tally: Tally | None = None


def hospital_start(env: PartEnv) -> Step:
    return PartHospital(), []


def hospital_receive(env: PartEnv, s: PartHospital, sender: str, message: object) -> Step:
    if sender != UP:
        return replace(s, tally=gathered(env, s.tally, sender, message)), []
    m: SharedPart = gather.expected(sender, message, SharedPart)
    return PartHospital(), [Send(draw.chosen(env, m.round, m.pick), m)]


def gathered(env: PartEnv, tally: Tally | None, sender: str, message: object) -> Tally | None:
    return uploads.gathered(env, tally, sender, message, parts.size(env.parts.shared))


def hospital_close(env: PartEnv, s: PartHospital) -> Step:
    return PartHospital(), [Send(UP, uploads.answer(s.tally, env.theta0))]


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PartAggregator:
    """What the aggregator remembers.

    Attributes:
        values: float (k,), the shared slots.
        round: t.
        tally: the uploads of this round.
    """

    values: Values
    round: int = 0
    tally: Tally | None = None


def aggregator_start(env: PartEnv) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    s = PartAggregator(parts.taken(env.theta0, env.parts.shared))
    return s, questions(env, s)


def questions(env: PartEnv, s: PartAggregator) -> list[Send]:
    quotas = draw.quotas(env, s.round, env.settings.participation, env.settings.selection)
    return [Send(h, SharedPart(s.values, s.round, k)) for h, k in quotas.items()] or [ask_nobody(show(env, s))]


def aggregator_receive(env: PartEnv, s: PartAggregator, sender: str, message: object) -> Step:
    return replace(s, tally=gathered(env, s.tally, sender, message)), []


def aggregator_close(env: PartEnv, s: PartAggregator) -> Step:
    done = progress(s.round + 1, s.tally)
    s = step(env, s)
    return s, [done] if s.round >= env.rounds else [done, *questions(env, s)]


def step(env: PartEnv, s: PartAggregator) -> PartAggregator:
    """The mean of what was counted. Nobody answered: the same again, with a new draw."""
    if s.tally is None:
        return replace(s, round=s.round + 1)
    sums = uploads.total(s.tally, env.theta0)
    return PartAggregator(sums.total / sums.weight, s.round + 1)


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: PartEnv, s: PartAggregator) -> SharedPart:
    return SharedPart(s.values, s.round, 0)


def models(env: PartEnv, s: PartDevice | None, m: SharedPart) -> dict[str, Vector]:
    """The shared slots with the personal slots of this device, and with those that the run began with ("global")."""
    start = {"global": whole(env, m, initial(env))}
    return start if s is None else start | {"personal": whole(env, m, s.own)}


HOSPITAL = Role(hospital_start, hospital_receive, hospital_close, PartHospital)
AGGREGATOR = Role(aggregator_start, aggregator_receive, aggregator_close, PartAggregator)
MESSAGES = (SharedPart, VectorSum, Nobody)
TRAFFIC = summed(SharedPart, "values", upload=VectorSum, first=lambda env: parts.taken(env.theta0, env.parts.shared))


def method(
    name: str, phase: Phase, settings: type[PartTraining] = PartTraining, env: type[PartEnv] = PartEnv
) -> Method:
    """A method whose devices keep their personal slots from round to round."""
    roles = device(phase), HOSPITAL, AGGREGATOR
    return Method(
        name,
        *roles,
        MESSAGES,
        settings,
        env,
        show,
        models,
        traffic=TRAFFIC,
        search=TRAINING_SEARCH,
        adds_up=True,
        warms_up=True,
    )
