"""A method of one's own from plain functions: what a device does in a round, and what is made of the mean of it.

    local(device, w)            -> upload             a device's step, from the model w (n,) of the round
    local(device, w, own)       -> upload, own        the same, with a vector (n,) that never leaves the device
    server(aggregator, w, mean) -> w                  the next model, from this one and the mean of uploads
    server(aggregator, w, mean, memory) -> w, memory  the same, with a vector (n,) that the aggregator remembers
    personal(device, w, own)    -> v                  the model that the device predicts with

`own` and `memory` are None before the first round. Vectors are float32; none is to be changed in place. What is left
out is FedAvg's: `local` is mini-batch SGD, the next model is the mean, weighted by samples. `own`, where there is
one, is the personal model.

Leaves the device: what `local` returns first, summed by its hospital, and scores as sums. Never: `own`.
When few answer: the mean is over those who did. Nobody: the same w again, with a new draw.
A lost disk: that device begins with no `own`. Devices that come or leave, and hospitals: as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import KEPT_BESIDE, UP, Method, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.contract.search import SearchSpace
from edge_sdk.errors import AuscultError, UsageError, say_failure
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.own_settings import Settings, settings_type
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.exact import has_diverged
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.aggregation.traffics import always_floats, summed
from edge_sdk.methods.shared.evaluation.reports import progress, training_scores
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, batches, descend, gradient

NOT_NEAR = "what its devices send does not lie near the model"
MADE_THERE = "what each device makes of the global model, and of a vector of its own if it keeps one"
JUDGING = 50  # purposes of randomness from here on are of models that are only judged


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given."""

    settings: Any = field(default_factory=Settings)


# What functions are given ---------------------------------------------------------------------------------------
class OwnDevice:
    """A device in a round, for functions of a user.

    Attributes:
        env: all that the device has, see `edge_sdk.contract.method.NodeEnv`.
        settings: of the method.
        round: number of the round, from 0.
        samples: how many training samples it has.
        loss: mean loss of the first descent; None: there was none yet.
    """

    def __init__(self, env: Env, round: int, first_purpose: int = 1) -> None:
        self.env, self.settings, self.round, self.samples = env, env.settings, round, env.samples
        self.loss: float | None = None
        self.purpose = first_purpose - 1

    def sgd(
        self,
        start: Vector,
        *,
        epochs: int | None = None,
        rate: float | None = None,
        near: Vector | None = None,
        pull: float | None = None,
    ) -> Vector:
        """Mini-batch SGD on the device's loss + weight_decay/2 ||v||^2 + pull/2 ||v - near||^2.

        Args:
            start: float (n,), where it begins; it stays as it is.
            epochs: passes over the device's samples; None: the setting local_epochs.
            rate: step size; None: of the settings, in this round.
            near: float (n,), what the result v, float (n,), is held near. pull: by how much.
        """
        if (near is None) != (pull is None):
            raise UsageError("device.sgd: give near, what the result is held near, and pull, by how much, together")
        self.purpose += 1
        s, v = self.settings, np.array(start, self.env.theta0.dtype)
        passes = s.local_epochs if epochs is None else epochs
        steps = batches(self.env.random(self.round, self.purpose), self.samples, s.batch, passes, self.env.least)
        eta = s.eta(self.round) if rate is None else rate
        slope = gradient(self.env, self.round, self.purpose, rate=eta)
        towards = None if near is None or not pull else pull * near
        loss = descend(slope, v, steps, eta, damp=s.weight_decay + (pull or 0.0), pull=towards)
        self.loss = loss if self.loss is None else self.loss
        return v

    def gradient(self, theta: Vector, rows: Any = None) -> tuple[float, Vector]:
        """Mean loss, and its gradient float (n,), over some of the training samples. `rows`: indices; None: all."""
        return gradient(self.env, self.round, rate=0)(theta, rows)

    def random(self) -> np.random.Generator:
        """A generator of this device and round, another one at each call; the same wherever it is made again."""
        self.purpose += 1
        return self.env.random(self.round, self.purpose)


@dataclass(frozen=True)
class OwnAggregator:
    """The aggregator at the end of a round, for functions of a user.

    Attributes:
        settings: of the method.
        round: number of the round, from 0.
        answers: devices whose uploads are in the mean.
    """

    settings: Any
    round: int
    answers: int


def plain_local(device: OwnDevice, w: Vector) -> Vector:
    """FedAvg's step."""
    return device.sgd(w)


def plain_server(aggregator: OwnAggregator, w: Vector, mean: Vector) -> Vector:
    """FedAvg's next model."""
    return mean


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers. `own`: its vector; None: it has none yet."""

    written_as: ClassVar[str] = "OwnDevice"

    own: Theta | None = None


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What the aggregator remembers.

    Attributes:
        model: w as it is sent.
        round: t.
        tally: the uploads of this round.
        memory: of the server's step; None: it has none yet.
    """

    written_as: ClassVar[str] = "OwnAggregator"

    model: Packed
    round: int = 0
    tally: Tally | None = None
    memory: Theta | None = None


@dataclass(frozen=True)
class PlainFunctions:
    """The functions of a method, and the roles that they make.

    Attributes:
        name: of the method.
        keeps: its devices have a vector of their own.
        remembers: its aggregator has one.
    """

    name: str
    local: Callable[..., Any]
    server: Callable[..., Any]
    personal: Callable[..., Any] | None
    keeps: bool
    remembers: bool

    def device_start(self, env: Env) -> Step:
        return DeviceState(env.earlier.get("personal") if self.keeps else None), []

    def device_receive(self, env: Env, s: DeviceState, sender: str, message: object) -> Step:
        m: FedavgModel = gather.expected(sender, message, FedavgModel)
        if env.samples == 0:
            return s, [Send(UP, Nobody())]
        w, device = lowrank.unpack(env.layout, m.model), OwnDevice(env, m.round)
        given = (device, w.copy(), s.own) if self.keeps else (device, w.copy())
        found = self.asked("local", *given)
        upload, own = self.checked_pair(found if self.keeps else (found, None), "local", "upload, own", env)
        weight = float(env.labelled) if env.settings.weighting == "samples" else 1.0
        told = {"global": w} | ({"personal": w if s.own is None else s.own} if self.keeps else {})
        sent = Sum(weight * upload, weight, 1, training_scores(env, device.loss, told))
        return DeviceState(own), [Send(UP, sent)]

    def aggregator_start(self, env: Env) -> Step:
        started, questions = fedavg.aggregator_start(env)  # type: ignore[arg-type]  # of an env it needs no more
        return AggregatorState(started.model), questions

    def aggregator_receive(self, env: Env, s: AggregatorState, sender: str, message: object) -> Step:
        return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []

    def aggregator_close(self, env: Env, s: AggregatorState) -> Step:
        done = progress(s.round + 1, s.tally)
        s = self.step(env, s)
        return s, [done] if s.round >= env.rounds else [done, *fedavg.questions(env, s)]  # type: ignore[arg-type]  # a model and a round

    def step(self, env: Env, s: AggregatorState) -> AggregatorState:
        """Nobody answered: the same model again, with a new draw."""
        if s.tally is None:
            return replace(s, round=s.round + 1)
        uploads, w = gather.total(s.tally, env.theta0), lowrank.unpack(env.layout, s.model)
        given = OwnAggregator(env.settings, s.round, uploads.count), w, uploads.total / uploads.weight
        found = self.asked("server", *given, *([s.memory] if self.remembers else []))
        new, memory = self.checked_pair(found if self.remembers else (found, None), "server", "w, memory", env)
        if has_diverged(new):
            why = "returned a model with numbers that are not finite, or too large"
            raise UsageError(f"method {self.name}: server {why}, in round {s.round}")
        return AggregatorState(lowrank.dense(env.layout, new), s.round + 1, None, memory)

    def models(self, env: Env, s: DeviceState | None, m: FedavgModel) -> dict[str, Vector]:
        """The models that a device can judge."""
        w = lowrank.unpack(env.layout, m.model)
        if s is None or not (self.keeps or self.personal):
            return {"global": w}
        if self.personal is None:
            return {"global": w, "personal": w if s.own is None else s.own}
        device = OwnDevice(env, m.round, JUDGING)
        return {"global": w, "personal": self.checked(self.asked("personal", device, w.copy(), s.own), "personal", env)}

    def asked(self, whose: str, *given: Any) -> Any:
        """What a function of the user returns. Raises UsageError, which names the line, if it fails."""
        function = getattr(self, whose)
        try:
            return function(*given)
        except AuscultError:
            raise
        except Exception as error:  # whatever it raises
            raise UsageError(f"method {self.name}: {whose} failed with {say_failure(error, function)}") from error

    def checked_pair(self, found: Any, whose: str, wanted: str, env: Env) -> tuple[Vector, Vector | None]:
        """A vector, and a second one or None. Raises UsageError if a function has returned something else."""
        if not isinstance(found, tuple) or len(found) != 2:
            raise UsageError(f"method {self.name}: {whose} returned a {type(found).__name__}; expected {wanted}")
        first, second = found
        return self.checked(first, whose, env), None if second is None else self.checked(second, whose, env)

    def checked(self, vector: Any, whose: str, env: Env) -> Vector:
        """A vector of its own, (n,). Raises UsageError if a function has returned something else."""
        found, size = np.asarray(vector), env.layout.size
        if found.shape != (size,) or found.dtype.kind != "f":
            what = f"{type(vector).__name__} {found.dtype} {found.shape}"
            raise UsageError(f"method {self.name}: {whose} returned a {what}; expected floats ({size},)")
        return np.array(found, env.theta0.dtype)


def show(env: Env, s: AggregatorState) -> FedavgModel:
    return FedavgModel(s.model, s.round, 0)


def method(
    name: str,
    *,
    local: Callable[..., Any] = plain_local,
    server: Callable[..., Any] = plain_server,
    personal: Callable[..., Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    search: SearchSpace | None = None,
    near: bool = True,
) -> Method:
    """A method of your own, of up to three functions; what is left out is FedAvg's.

    It runs in `simulate` at once. In an installed module, under the entry point `auscult.methods`, it has a name that
    `auscult replay`, `auscult simulate`, devices, hospitals and aggregators know.

    Args:
        name: of the method, of small letters, digits and "-".
        local: (device, w) -> upload, or (device, w, own) -> (upload, own): see `OwnDevice`.
        server: (aggregator, w, mean) -> w, or (aggregator, w, mean, memory) -> (w, memory): see `OwnAggregator`.
        personal: (device, w, own) -> the model that the device predicts with; None: `own`, where there is one.
        settings: name -> default of further settings, or another default of one that there is: eta_l, decay,
            weight_decay, batch, local_epochs, participation, selection, weighting. The default says of what type it
            is: 0.0 is any number, 0 a whole one.
        search: between which values `auscult tune` looks for settings, beside those of training.
        near: uploads lie near w, as a model does that began there; so they can travel as small integers.

    Raises:
        UsageError: a function takes other arguments, a setting cannot have its name, or a default is of another type.

    >>> import edge_sdk as auscult
    >>> def local(device, w, own):
    ...     v = w if own is None else own
    ...     return device.sgd(w), device.sgd(v, near=w, pull=device.settings.nearness)
    >>> auscult.method("mine", local=local, settings={"nearness": 0.1}).name
    'mine'
    """
    steps = PlainFunctions(
        name=name,
        local=local,
        server=server,
        personal=personal,
        keeps=count_arguments(name, "local", local, 2) == 3,
        remembers=count_arguments(name, "server", server, 3) == 4,
    )
    if personal is not None:
        count_arguments(name, "personal", personal, 3, 3)
    return Method(
        name=name,
        device=Role(steps.device_start, steps.device_receive, unchanged, DeviceState),
        hospital=fedavg.FEDAVG.hospital,
        aggregator=Role(steps.aggregator_start, steps.aggregator_receive, steps.aggregator_close, AggregatorState),
        messages=fedavg.FEDAVG.messages,
        settings=settings_type(name, settings or {}),
        env=Env,
        show=show,
        models=steps.models,
        personal=MADE_THERE if personal is not None else KEPT_BESIDE if steps.keeps else "",
        traffic=summed(FedavgModel, "model") if near else always_floats(NOT_NEAR),
        search={**TRAINING_SEARCH, **(search or {})},
        recommended={} if "local_epochs" in (settings or {}) else fedavg.EPOCHS,
        adds_up=True,
        warms_up=steps.keeps,
    )


def count_arguments(name: str, whose: str, function: Callable[..., Any], least: int, most: int = 0) -> int:
    """Number of arguments that a function takes, from `least` to `most` (one more than that, if it is 0).

    Raises:
        UsageError: it takes another number of them.
    """
    count = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
                for p in signature(function).parameters.values())  # fmt: skip
    most = most or least + 1
    if not least <= count <= most:
        wanted = f"{least} or {most}" if most > least else str(least)
        raise UsageError(f"method {name}: {whose} takes {count} arguments; expected {wanted}, see edge_sdk.methods.own")
    return count
