"""The settling phase around any method with a global model: roles. What they compute is in equations.py.

After the last round of the method inside (it asks nothing more) every device is shown the final model, settles with
every candidate of the settings, and answers with counts: how many of its validation samples each candidate gets right.
Hospitals add these up, the aggregator chooses one candidate for the whole fleet, and the choice goes down beside the
model in the last evaluation, or in the last words, which also reach devices that were away and devices that joined
when the run was over. A device then settles once more with that candidate and keeps the result.

It computes that twice so that it need not remember it: all of it is a function of the model that is shown, of the
device's own samples and of the run's seed. So nothing is lost with a process, and a newcomer is no special case.

Leaves the device: the counts of correct validation samples of all candidates, their number, and 1 if it has any, summed
by its hospital. Where a hospital has a single device, that sum is the device's own.
Never: the personal component, the local model, which samples it gets right.
When few answer: the choice is theirs. Nobody, or nobody with validation samples: all candidates are equal, so it is the
first that `choose` looks at, and `Choice.samples` is 0, which the aggregator's log warns of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

from edge_sdk.algebra.arrays import OrNone
from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.forest import pack
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.gradients import PHASES
from edge_sdk.contract.method import DOWN, ME, OUT, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import inside, role_around
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.settling import equations
from edge_sdk.methods.settling.counting import (
    Counts,
    Doubt,
    Near,
    added_up,
    no_counts,
    no_doubt,
    noted,
    of_device,
    usual_near,
)
from edge_sdk.methods.settling.own_line import behind_own_line
from edge_sdk.methods.settling.settings import Candidate, Settling
from edge_sdk.methods.shared.aggregation.gather import expected
from edge_sdk.methods.shared.evaluation.beside import FOREST


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Settle:
    """Down: settle on this model with every candidate, and say how often each is right. `shown`: as the method does."""

    shown: Any


@dataclass(frozen=True)
class Chosen:
    """Down: the model, and how devices predict with it.

    Attributes:
        shown: the model, as the method shows it.
        candidate: index of the fleet's choice; -1: it has not chosen yet.
        alone: index of the best model of a device on its own; network: of the best network among these.
    """

    shown: Any
    candidate: OrNone = -1
    alone: OrNone = -1
    network: OrNone = -1


@dataclass(frozen=True)
class Choice:
    """Aggregator, to its application: what the fleet has chosen.

    Attributes:
        steps, local_steps, weight: of the candidate.
        correct: validation samples that it gets right, and `local_correct` the best local model on its own.
        samples: validation samples that there are; of outputs that are no classes all three are in parts of a sample,
            as of `equations.points`.
        devices: whose they are.
        forest: what the device's own model beside the personalised one is, and forest_alone the best one on its own: a
            network (0), a forest (1), a forest that has self-labelled samples too (2).
    """

    steps: int
    local_steps: int
    weight: float
    correct: int
    local_correct: int
    samples: int
    devices: int
    forest: int = 0
    forest_alone: int = 0

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "settling", **asdict(self)}

    def to_sentence(self) -> str:
        if not self.samples:
            return "settling: there is no validation sample, so nothing was chosen; the first candidate goes"
        own = "forest" if self.forest else f"local model of {self.local_steps} steps"
        models = f"{self.steps} steps, {own} with weight {self.weight:g}"
        shares = [f"{100 * right / self.samples:.1f} %" for right in (self.correct, self.local_correct)]
        forest = " (a forest)" if self.forest_alone else ""
        right = f"{shares[0]} right on validation samples, alone {shares[1]}{forest}"
        return f"settling: {self.devices} devices choose {models}: {right}"


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SettlingState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        rounds: aggregator: closes of the method inside.
        settling: counts are being gathered; device: it has been asked for its own.
        counts: what has been gathered; apart: what each child has told since. heard: who has.
        candidate, alone, network: aggregator: as in `Chosen`.
    """

    inner: Any
    rounds: int = 0
    settling: bool = False
    counts: Counts = field(default_factory=lambda: no_counts(0))
    apart: Mapping[str, Counts] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    candidate: int = -1
    alone: int = -1
    network: int = -1


def nothing(s: Settling) -> Counts:
    """The sum over no devices."""
    return no_counts(len(s.candidates))


# Around a method ------------------------------------------------------------------------------------------------
def settled(
    method: Method,
    settings: Settling,
    over_devices: Near | None = None,
    over_hospitals: Near | None = None,
    doubt: Doubt = no_doubt,
) -> Method:
    """Add the settling phase after a method's last round.

    Args:
        over_devices: whose counts hospitals add up, by the run's robust rule; None: by the usual one.
        over_hospitals: the same of hospitals, at the aggregator; None: everybody's.
        doubt: of the counts that the aggregator gets.

    Raises:
        UsageError: its devices share no model of one layout that they could settle from.
    """
    if method.kernels != "plain":
        raise UsageError(f"method {method.name!r}: settling starts at a global model that every device has whole")
    kind = get_type_hints(method.show)["return"]

    def show(env: NodeEnv, s: SettlingState) -> Chosen:
        return Chosen(method.show(env, s.inner), s.candidate, s.alone, s.network)

    def models(env: NodeEnv, s: SettlingState | None, m: Chosen) -> Mapping[str, Vector]:
        if s is None or m.candidate < 0:
            return method.models(env, s and s.inner, expected(UP, m.shown, kind))
        return chosen_models(env, settings, shown_models(method, env, settings, s, m.shown), m)

    def predicts(env: NodeEnv, m: Chosen) -> Ensemble | None:
        if m.candidate < 0:
            return None
        c = candidate(settings, m.candidate)
        return equations.ensemble(env, settings, 0.0 if c.forest and env.own is None else c.weight)

    return replace(
        method,
        device=device(method, settings),
        hospital=hospital(method, settings, over_devices),
        aggregator=aggregator(method, settings, over_hospitals, doubt),
        messages=(*method.messages, Settle, Counts, Chosen),
        show=show,
        models=models,
        rounds_over=lambda s: s.rounds if method.rounds_over is None else method.rounds_over(s.inner),
        predicts=predicts,
    )


def candidate(s: Settling, index: int) -> Candidate:
    """Raises PeerError if there is no such candidate."""
    if not 0 <= index < len(s.candidates):
        raise PeerError(f"candidate {index} is chosen, there are {len(s.candidates)}")
    return s.candidates[index]


def chosen_models(env: NodeEnv, s: Settling, found: Mapping[str, Vector], m: Chosen) -> Mapping[str, Vector]:
    """The global model, the personalised one and the local one, with as many steps as the fleet has chosen; beside them
    the vector of the device's forest (FOREST), if one is chosen."""
    c, network = candidate(s, m.candidate), candidate(s, m.alone if m.network < 0 else m.network)

    def made(env: NodeEnv) -> Mapping[str, Vector]:
        (personal,) = equations.component(env, s, start_of(s, found), (c.steps,))
        (local,) = equations.local_model(env, s, (network.local_steps,))
        trees = {FOREST: pack(equations.forest(env, s, c.forest))} if c.forest and env.own is not None else {}
        return {"global": found["global"], "personal": personal, "local": local, **trees}

    return behind_own_line(env, s, 0.0 if c.forest and env.own is None else c.weight, made)


def shown_models(
    method: Method, env: NodeEnv, settings: Settling, s: SettlingState, shown: Any
) -> Mapping[str, Vector]:
    """The models that a device settles from: the global one, and its own where the settings start there. Else the own
    one is not made, which may cost some passes over its samples."""
    inner = None if settings.start == "global" else s.inner
    return method.models(env, inner, expected(UP, shown, get_type_hints(method.show)["return"]))


def start_of(s: Settling, found: Mapping[str, Vector]) -> Vector:
    """The model that a device settles from.

    Raises:
        UsageError: the method has no such model.
    """
    if s.start not in found:
        raise UsageError(f"start = {s.start!r}: devices of this method have the models {', '.join(found)}")
    return found[s.start]


# Roles ----------------------------------------------------------------------------------------------------------
def device(method: Method, settings: Settling) -> Role:
    def receive(env: NodeEnv, s: SettlingState, sender: str, m: Any) -> Step:
        if not isinstance(m, Settle):
            return inside(method.device, env, s, sender, m)
        with env.gradients.counting(PHASES):
            found = shown_models(method, env, settings, s, m.shown)
            counts = of_device(*equations.correct_counts(env, settings, start_of(settings, found)))
        return replace(s, settling=True), [Send(UP, counts)]

    def close(env: NodeEnv, s: SettlingState) -> Step:
        if s.settling:
            return s, []  # the last round is over: a clock of its own moves the model no more that was counted
        state, sends = method.device.close(env, s.inner)
        return replace(s, inner=state), sends

    return role_around(method.device, SettlingState, receive, close)


def hospital(method: Method, settings: Settling, near: Near | None = None) -> Role:
    inner = method.hospital

    def receive(env: NodeEnv, s: SettlingState, sender: str, m: Any) -> Step:
        if sender == UP and isinstance(m, Settle):
            asked = replace(s, settling=True, counts=nothing(settings), apart={}, heard=())
            return asked, [Send(DOWN, m, all=True)]
        if sender not in (UP, ME) and s.settling:
            return noted(env, s, sender, m), []
        return inside(inner, env, replace(s, settling=s.settling and sender != UP), sender, m)

    def close(env: NodeEnv, s: SettlingState) -> Step:
        if s.settling:
            return replace(s, settling=False, apart={}), [Send(UP, added_up(s, near or usual_near))]
        state, sends = inner.close(env, s.inner)
        return replace(s, inner=state), sends

    return role_around(inner, SettlingState, receive, close)


def aggregator(method: Method, settings: Settling, near: Near | None = None, doubt: Doubt = no_doubt) -> Role:
    inner = method.aggregator

    def receive(env: NodeEnv, s: SettlingState, sender: str, m: Any) -> Step:
        return (noted(env, s, sender, m), []) if s.settling and sender != ME else inside(inner, env, s, sender, m)

    def close(env: NodeEnv, s: SettlingState) -> Step:
        if s.settling:
            return decided(settings, replace(s, counts=added_up(s, near), apart={}), doubt)
        state, sends = inner.close(env, s.inner)
        s = replace(s, inner=state, rounds=s.rounds + 1)
        if any(send.to not in (UP, OUT) for send in sends):
            return s, sends
        asked = replace(s, settling=True, counts=nothing(settings), apart={}, heard=())
        return asked, [*sends, Send(DOWN, Settle(method.show(env, state)), all=True)]

    return role_around(inner, SettlingState, receive, close)


def decided(settings: Settling, s: SettlingState, doubt: Doubt = no_doubt) -> Step:
    """The aggregator with the fleet's choice; there is nothing more to ask."""
    index, alone, network = equations.choose(settings, s.counts.correct, s.counts.samples, doubt(s.counts.devices))
    c, counts = settings.candidates[index], s.counts
    right, alone_right = (min(max(0, int(counts.correct[i])), counts.samples) for i in (index, alone))
    forests = c.forest, settings.candidates[alone].forest
    told = Choice(c.steps, c.local_steps, c.weight, right, alone_right, counts.samples, counts.devices, *forests)
    return replace(s, settling=False, candidate=index, alone=alone, network=network), [Send(OUT, told)]
