"""Small roles whose whole behaviour is a sum: what counts twice or not at all is seen in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Tensor
from edge_sdk.contract.method import DOWN, OUT, UP, NodeEnv, Role, Send, unchanged
from edge_sdk.contract.node import Record
from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.wire.codec.codec import Codec

Floats = Annotated[npt.NDArray[np.floating[Any]], Tensor(("?",))]


@dataclass(frozen=True)
class Ask:
    """A vector for everybody below."""

    round: int
    values: Floats


@dataclass(frozen=True)
class Answer:
    """The sum over `devices` devices."""

    round: int
    devices: int
    values: Floats


@dataclass(frozen=True)
class Done:
    """Event of the root after each round."""

    round: int
    devices: int
    total: float


@dataclass(frozen=True)
class Tally:
    """State of a device: how many questions it has worked on, and the latest; equal if each came once."""

    count: int = 0
    last: int = 0


@dataclass(frozen=True)
class Sums:
    """State of a hospital or the aggregator."""

    round: int = 0
    devices: int = 0
    heard: Mapping[str, int] = field(default_factory=dict)
    values: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    asked: Floats = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """`work`: called by a device for each question."""

    size: int = 4
    work: Callable[[int], None] = lambda round: None


MESSAGES = (Ask, Answer)


def device_start(env: Env) -> Any:
    return Tally(), []


def device_receive(env: Env, state: Tally, sender: str, m: Ask) -> Any:
    env.work(m.round)
    return Tally(state.count + 1, m.round), [Send(UP, Answer(m.round, 1, m.values + np.float32(1)))]


def hospital_start(env: Env) -> Any:
    return Sums(), []


def hospital_receive(env: Env, state: Sums, sender: str, m: Any) -> Any:
    if sender == UP:
        return Sums(m.round, values=np.zeros_like(m.values), asked=m.values), [Send(everybody(env), m)]
    return added(state, sender, m), []


def hospital_close(env: Env, state: Sums) -> Any:
    return state, [Send(UP, Answer(state.round, state.devices, state.values))]


def aggregator_start(env: Env) -> Any:
    zero = np.zeros(env.size, np.float32)
    return Sums(1, values=zero, asked=zero), [Send(everybody(env), Ask(1, zero))]


def aggregator_receive(env: Env, state: Sums, sender: str, m: Answer) -> Any:
    return added(state, sender, m), []


def aggregator_close(env: Env, state: Sums) -> Any:
    """The next question is the mean, so that after round r every entry is r."""
    mean = state.values / np.float32(max(1, state.devices))
    told = Send(OUT, Done(state.round, state.devices, float(mean.sum())))
    if state.round >= env.rounds:
        return state, [told]
    following = Sums(state.round + 1, values=np.zeros_like(mean), asked=mean)
    return following, [told, Send(everybody(env), Ask(state.round + 1, mean))]


def everybody(env: Env) -> str | tuple[str, ...]:
    """All children by name, so that who is dead at the moment is asked too; without names, those who are here."""
    return tuple(sorted(env.sizes)) or DOWN


def added(state: Sums, sender: str, m: Answer) -> Sums:
    assert m.round == state.round, f"answer of round {m.round} in round {state.round}"
    heard = {**state.heard, sender: state.heard.get(sender, 0) + 1}
    return Sums(state.round, state.devices + m.devices, heard, state.values + m.values, state.asked)


DEVICE = Role(device_start, device_receive, unchanged, Tally)
HOSPITAL = Role(hospital_start, hospital_receive, hospital_close, Sums)
AGGREGATOR = Role(aggregator_start, aggregator_receive, aggregator_close, Sums)


def assembly(role: Role, run: Run, policy: Policy | None = None, **given: Any) -> Assembly:
    env = Env(seed=run.seed, rounds=run.rounds, **given)
    records = Codec((Record, role.state, Done, *MESSAGES), finite=False)
    return Assembly(role, env, policy or Policy(), Codec(MESSAGES), records)
