"""Devices that label their own windows, around a method that settles: roles. What they compute is in labelling.py.

At some rounds (`turns`) the aggregator, before it asks for the next round of the method inside, shows its model to
all devices. Each answers with counts: how many of its validation samples a mixture of that model and its own forest
gets right, for each weight, and how precise it is above each threshold. The fleet's choice goes down, every device
labels its own windows with it, and trains on in the method's rounds with these windows beside its labelled ones. Where
no threshold is precise enough nobody labels anything: then it does not pay.

When the method is over, and for a newcomer, labels are made anew from the final model, `label_times` turns of them,
before the device settles: a function of that model, of the device's samples and of the run's seed, so that nothing is
lost with a process.

Leaves the device: the counts, summed by its hospital, like those of settling. Never: a label, or how many it gave.
When few answer: the choice is theirs; nobody: nothing is labelled. A device that is away at that moment trains on with
the labels that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

from edge_sdk.algebra.arrays import OrNone
from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.samples import SelfLabels
from edge_sdk.contract.method import DOWN, ME, OUT, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import inside, role_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.counting import Counts, Doubt, Near, added_up, no_counts, no_doubt, noted, of_device
from edge_sdk.methods.settling.labelling import NO_LABELS
from edge_sdk.methods.settling.method import Choice, Chosen, Settle
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.aggregation.gather import expected
from edge_sdk.methods.shared.membership.riders import Rider, tell_all, tell_new, told_again


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Examine:
    """Down: say how well you would label with this model. `shown`: as the method does."""

    shown: Any

    @property
    def round(self) -> int | None:
        """Rounds of the model that is shown, by which a device tells one turn from the next; None: it does not say."""
        shown = self.shown
        while isinstance(shown, Chosen):
            shown = shown.shown
        return getattr(shown, "round", None)


@dataclass(frozen=True)
class WithLabels(Rider):
    """Down: a question, before which devices label their windows with the model of the latest `Examine`.

    Attributes:
        choice: index into `labelling.options`; -1: they label none.
    """

    message: Any
    choice: OrNone = -1


@dataclass(frozen=True)
class LabelledModel:
    """Down: a model, as the method shows it, and how devices label their windows before they settle on it."""

    shown: Any
    choice: OrNone = -1


@dataclass(frozen=True)
class LabelChoice:
    """Aggregator, to its application: how the fleet labels its windows from here on.

    Attributes:
        round: rounds that are over.
        weight: of the forest; threshold: from which probability on; 0 and 0: nothing is labelled.
        sure, right: validation samples above the threshold, and how many of them are right.
        samples: validation samples; devices: whose.
    """

    round: int
    weight: float
    threshold: float
    sure: int
    right: int
    samples: int
    devices: int

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "self-labels", **asdict(self)}

    def to_sentence(self) -> str:
        if not self.samples:
            return f"self-labels, round {self.round}: no device has windows without a label and validation samples"
        if not self.threshold:
            return (
                f"self-labels, round {self.round}: no threshold is precise enough on {self.samples} validation samples"
            )
        taken = f"windows above {self.threshold:g}, forest with weight {self.weight:g}"
        return (
            f"self-labels, round {self.round}: {taken}; {self.right} of {self.sure} validation samples above it right"
        )


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SelfTrainingState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        examining: counts are being gathered; device: it has been asked for its own.
        counts: what has been gathered; apart: what each child has told since. heard: who has.
        choice: as in `WithLabels`. chosen: aggregator, hospital: the fleet has made one. told: hospital: who knows it.
        examined: aggregator: round after which devices were asked last. share: of samples right when the fleet chose.
        given_up: aggregator: labels did harm and no threshold was precise: nobody labels for the rest of the run.
        shown: device: the model of the latest `Examine`.
        labels: device: those that it trains with.
    """

    inner: Any
    examining: bool = False
    counts: Counts = field(default_factory=lambda: no_counts(0))
    apart: Mapping[str, Counts] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    choice: int = -1
    chosen: bool = False
    told: tuple[str, ...] = ()
    examined: int = 0
    share: float = 0.0
    given_up: bool = False
    shown: Any = None
    labels: SelfLabels = NO_LABELS


def nothing(s: Settling) -> Counts:
    return no_counts(labelling.count_size(s))


def turns(s: Settling, rounds: int) -> frozenset[int]:
    """Rounds after which devices label: the last one `label_every` before the end, closer together in a short run."""
    every = int(min(s.label_every, rounds // (s.label_times + 1)))
    return frozenset(rounds - every * k for k in range(1, s.label_times + 1)) if every else frozenset()


# Around a method ------------------------------------------------------------------------------------------------
def self_trained(
    method: Method,
    settings: Settling,
    over_devices: Near | None = None,
    over_hospitals: Near | None = None,
    doubt: Doubt = no_doubt,
) -> Method:
    """Add self-labelled windows to a method that settles. Its arguments are those of `settling.method.settled`;
    without a rule hospitals add up everybody's counts here."""
    kind = get_type_hints(method.show)["return"]

    def show(env: NodeEnv, s: SelfTrainingState) -> LabelledModel:
        return LabelledModel(method.show(env, s.inner), s.choice)

    def models(env: NodeEnv, s: SelfTrainingState | None, m: LabelledModel) -> Mapping[str, Vector]:
        shown, inner = expected(UP, m.shown, kind), s and s.inner
        if s is None or shown.candidate < 0:
            return method.models(env, inner, shown)
        w = shared_model(method, env, shown)
        return method.models(labelling.taught_by(env, settings, w, check_choice(settings, m.choice)), inner, shown)

    def predicts(env: NodeEnv, m: LabelledModel) -> Ensemble | None:
        return None if method.predicts is None else method.predicts(env, m.shown)

    def rounds_over(s: SelfTrainingState) -> int:
        assert method.rounds_over is not None
        return method.rounds_over(s.inner)

    return replace(
        method,
        device=device(method, settings),
        hospital=hospital(method, settings, over_devices),
        aggregator=aggregator(method, settings, rounds_over, over_hospitals, doubt),
        messages=(*method.messages, Examine, WithLabels, LabelledModel),
        show=show,
        models=models,
        predicts=predicts,
        rounds_over=rounds_over,
    )


def shared_model(method: Method, env: NodeEnv, shown: Chosen) -> Vector:
    """The global model of what is shown, without settling on it, or making a device's own model, which may cost some
    passes over its samples."""
    return method.models(env, None, replace(shown, candidate=-1))["global"]


def check_choice(s: Settling, choice: int) -> int:
    """Raises PeerError if there is no such way to label."""
    if choice >= len(labelling.options(s)):
        raise PeerError(f"way {choice} to label is chosen, there are {len(labelling.options(s))}")
    return choice


# Roles ----------------------------------------------------------------------------------------------------------
def device(method: Method, settings: Settling) -> Role:
    inner, kind = method.device, get_type_hints(method.show)["return"]

    def labelled(env: NodeEnv, s: SelfTrainingState, choice: int) -> SelfTrainingState:
        s = replace(s, choice=check_choice(settings, choice))
        if choice < 0:
            return replace(s, shown=None, labels=NO_LABELS, examining=False)
        if s.shown is None:
            return s
        w = shared_model(method, env, s.shown)
        labels = labelling.label(labelling.taught(env, s.labels), settings, w, choice)
        return replace(s, shown=None, labels=labels, examining=False)

    def receive(env: NodeEnv, s: SelfTrainingState, sender: str, m: Any) -> Step:
        known = labelling.taught(env, s.labels)
        if isinstance(m, Examine):
            w = shared_model(method, env, expected(UP, m.shown, kind))
            counts = of_device(*labelling.labelling_counts(known, settings, w))
            return replace(s, shown=m.shown, examining=True), [Send(UP, counts)]
        if isinstance(m, WithLabels):
            s, m = labelled(env, s, m.choice), m.message
            known = labelling.taught(env, s.labels)
        if isinstance(m, Settle):
            w = shared_model(method, env, Chosen(m.shown))
            known = labelling.taught_by(env, settings, w, s.choice)
        return inside(inner, known, s, sender, m)

    def close(env: NodeEnv, s: SelfTrainingState) -> Step:
        state, sends = inner.close(labelling.taught(env, s.labels), s.inner)
        return replace(s, inner=state), sends

    return role_around(inner, SelfTrainingState, receive, close)


def hospital(method: Method, settings: Settling, near: Near | None) -> Role:
    inner = method.hospital

    def receive(env: NodeEnv, s: SelfTrainingState, sender: str, m: Any) -> Step:
        if sender == UP and isinstance(m, Examine):
            asked = replace(s, examining=True, counts=nothing(settings), apart={}, heard=(), told=())
            return asked, [Send(DOWN, m, all=True)]
        if sender == UP and isinstance(m, WithLabels):
            told = () if isinstance(m.message, Settle) else s.told  # who has missed it is told before it counts
            s, m = replace(s, choice=m.choice, chosen=True, told=told), m.message
        if sender not in (UP, ME) and s.examining:
            return noted(env, s, sender, m), []
        return told_before(env, *inside(inner, env, replace(s, examining=s.examining and sender != UP), sender, m))

    def close(env: NodeEnv, s: SelfTrainingState) -> Step:
        if s.examining:
            return replace(s, examining=False, apart={}), [Send(UP, added_up(s, near))]
        state, sends = inner.close(env, s.inner)
        return told_before(env, replace(s, inner=state), sends)

    return role_around(inner, SelfTrainingState, receive, close, renew=told_again(inner))


def told_before(env: NodeEnv, s: SelfTrainingState, sends: Sequence[Send]) -> Step:
    """What a hospital sends, with the fleet's choice around a child's first question after it."""
    if not s.chosen:
        return s, sends
    told, sends = tell_new(env, s.told, sends, lambda message: WithLabels(message, s.choice))
    return replace(s, told=told), sends


def aggregator(method: Method, settings: Settling, rounds_over: Any, near: Near | None, doubt: Doubt) -> Role:
    """Closes a round of the method twice where devices label: first to see its model, and again, from the state of
    before, once the counts are in (as methods/shared/evaluation/evaluation.py does)."""
    inner = method.aggregator

    def receive(env: NodeEnv, s: SelfTrainingState, sender: str, m: Any) -> Step:
        return (noted(env, s, sender, m), []) if s.examining and sender != ME else inside(inner, env, s, sender, m)

    def close(env: NodeEnv, s: SelfTrainingState) -> Step:
        state, sends = inner.close(env, s.inner)
        after = replace(s, inner=state)
        if s.examining:
            after = replace(after, counts=added_up(after, near), apart={})
            return chosen(settings, after, rounds_over(after), questions(sends), doubt(after.counts.devices))
        round = rounds_over(after)
        if round == s.examined or round not in turns(settings, env.rounds):
            return after, tell_all(sends, lambda m: WithLabels(m, s.choice)) if s.chosen else sends
        told = [send for send in sends if send.to == OUT]
        asked = replace(s, examining=True, counts=nothing(settings), apart={}, heard=(), examined=round)
        return asked, [*told, Send(DOWN, Examine(method.show(env, state)), all=True)]

    return role_around(inner, SelfTrainingState, receive, close)


def questions(sends: Sequence[Send]) -> list[Send]:
    return [send for send in sends if send.to not in (UP, OUT)]


def chosen(settings: Settling, s: SelfTrainingState, round: int, rest: list[Send], doubt: float = 0.0) -> Step:
    """The aggregator with the fleet's choice, which goes down before the method's own questions.

    It is made at the first turn at which a threshold is precise enough, and stays while the mixture is right about as
    often as then. Where it is not, be it that labels do harm or that the shared model has become worse by itself, the
    fleet chooses anew, and gives labels up only if no threshold is precise enough any more.
    """
    counts, choice, share, samples = s.counts.correct, s.choice, s.share, s.counts.samples
    harm = choice >= 0 and not labelling.still_pays(settings, counts, choice, samples, share, doubt)
    if harm or (choice < 0 and not s.given_up):
        choice = labelling.choose_labelling(settings, counts)
        share = counts[choice // len(settings.label_thresholds)] / samples if choice >= 0 else 0.0
    given_up = s.given_up or (harm and choice < 0)
    s = replace(s, examining=False, choice=choice, chosen=True, share=float(share), given_up=given_up)
    told = choice_event(settings, s, round, choice)
    return s, [Send(OUT, told), *tell_all(rest, lambda message: WithLabels(message, choice))]


def choice_event(settings: Settling, s: SelfTrainingState, round: int, choice: int) -> LabelChoice:
    """What the application is told."""
    if choice < 0:
        return LabelChoice(round, 0.0, 0.0, 0, 0, s.counts.samples, s.counts.devices)
    at = len(settings.label_weights) + 2 * choice
    sure, right = (min(max(0, int(n)), s.counts.samples) for n in s.counts.correct[at : at + 2])
    weight, threshold = labelling.options(settings)[choice]
    return LabelChoice(round, weight, threshold, sure, min(right, sure), s.counts.samples, s.counts.devices)


TOLD = (Choice, LabelChoice)
"""What roles of a run that settles tell their application."""
