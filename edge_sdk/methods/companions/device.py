"""A device of the combination: it plays its part in one of the two methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache
from typing import Any

from edge_sdk.algebra.ensemble import COMPANION
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import Method, Role, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.companions.envs import make_outputs_env, make_shared_env
from edge_sdk.methods.companions.messages import SharedModel
from edge_sdk.methods.companions.settings import Env
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedslr import messages as fedslr_messages


@dataclass(frozen=True)
class Member:
    """A device: the state of the one method in which this device takes part."""

    shared: Any = None
    outputs: Any = None


@dataclass(frozen=True)
class Pair:
    """Hospital and aggregator: the states of both methods.

    Attributes:
        asked: hospital: which of the two wait for answers: (shared, outputs).
        exchanges: aggregator: hospital -> (round, exchange, what was wanted) of FedAL when it was last asked.
    """

    shared: Any
    outputs: Any
    asked: tuple[bool, bool] = (False, False)
    exchanges: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)


@cache
def declare_types(kind: type, shared: Any, outputs: Any, optional: bool) -> Any:
    """`kind` with the types of what is inside written down, for those who save it; the same class each time."""
    hints: list[Any] = [shared | None, outputs | None] if optional else [shared, outputs]
    names = ("shared", "outputs")
    made = [(n, h, field(default=None)) if optional else (n, h) for n, h in zip(names, hints, strict=True)]
    return make_dataclass(kind.__name__, made, bases=(kind,), frozen=True)


def device_role(base: Method) -> Role:
    kind = declare_types(Member, base.device.state, FEDAL.device.state, True)

    def start(env: Env) -> Step:
        if env.apart:
            return kind(outputs=FEDAL.device.start(make_outputs_env(env))[0]), []
        return kind(shared=base.device.start(make_shared_env(base, env))[0]), []

    def receive(env: Env, s: Member, sender: str, message: object) -> Step:
        if env.apart:
            state, sends = FEDAL.device.receive(make_outputs_env(env), s.outputs, sender, message)
            return replace(s, outputs=state), sends
        state, sends = base.device.receive(make_shared_env(base, env), s.shared, sender, message)
        return replace(s, shared=state), sends

    return Role(start, receive, lambda env, s: (s, []), kind)


def make_models(base: Method) -> Callable[[Env, Member | None, SharedModel], dict[str, Vector]]:
    def models(env: Env, s: Member | None, m: SharedModel) -> dict[str, Vector]:
        if s is not None and env.apart:
            return {COMPANION: s.outputs.theta}
        packed = check_model(env.layout, m)
        question = fedslr_messages.FedslrModel(packed, m.round, 0, {})
        found: dict[str, Vector] = dict(base.models(make_shared_env(base, env), s and s.shared, question))
        return found

    return models


def check_model(layout: Layout, m: SharedModel) -> Packed:
    """Raises PeerError if it is no model of this layout."""
    try:
        m.model.check(layout)
    except ValueError as error:
        raise PeerError(f"the model of round {m.round}: {error}") from None
    return m.model
