"""Evaluation rounds around any barrier method, and the end of a run.

Every so often the model goes to every device, picked or not, and scores come back as sums; the method inside does not
notice. An evaluation waits for all that are here, also where a round of the method is over with the first few answers,
or until the time is up. After its last round (it asks nothing more) all devices are asked once more, then everybody
hears that the run is over. A node that was away or silent in that last evaluation, or has another disk since, or comes
for the first time when all is over, hears it together with the model, whenever its mail reaches it: last words go to
all children that there are, here or not.

The aggregator closes a round of the method twice: first to see the new model, which is then evaluated, and again, with
the state of before, once the scores are in. Roles are pure, so both give the same model, and the second one asks those
that are here by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, get_type_hints

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.environment.gradients import NOTHING
from edge_sdk.contract.method import DOWN, ME, OUT, UP, Forward, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.records import changed
from edge_sdk.contract.wrapping import passed_in, role_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation.exact import Exact, bounded, number
from edge_sdk.methods.shared.aggregation.gather import expected, plus_scores, split_scores, with_name
from edge_sdk.methods.shared.aggregation.guard import Guard, Refused, begin_round, is_vote, judge_answer
from edge_sdk.methods.shared.aggregation.registration import bound_claim, note_claim
from edge_sdk.methods.shared.aggregation.scores import check_round, check_scores
from edge_sdk.methods.shared.aggregation.suspension import is_suspended, note_refusal, note_upload, without_suspended
from edge_sdk.methods.shared.evaluation import beside, reports
from edge_sdk.methods.shared.evaluation.healing import heal, heal_personal
from edge_sdk.methods.shared.evaluation.reports import Models, Progress, Report, judge, judge_personal, judge_test
from edge_sdk.methods.shared.evaluation.spent import priced

__all__ = ["Evaluate", "Finished", "Models", "Progress", "Report", "Scores", "Watched", "evaluated"]

LONGEST = 500
"""Characters of a reason that are kept: some of them were the peer's."""


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Evaluate:
    """Down: judge this model.

    Attributes:
        round: rounds that are over.
        final: there will be no other.
        shown: the model, as the method shows it.
    """

    round: int
    final: bool
    shown: Any

    def check(self, layout: Layout) -> None:
        check_round(self.round)


@dataclass(frozen=True)
class Scores:
    """Up: sums over the devices that answered; to a device's application: its own.

    Attributes:
        round: rounds that are over.
        sums: as `reports.judge` names them.
    """

    round: int
    sums: Mapping[str, float]

    def check(self, layout: Layout) -> None:
        check_round(self.round)
        check_scores(self.sums)


@dataclass(frozen=True)
class Finished:
    """Down, and to the application: the run is over.

    Attributes:
        round: rounds that it took.
        shown: downward, the final model, for a node that was not heard in the last evaluation.
    """

    ends_run: ClassVar[bool] = True  # the runtime tells it at each start: see delivery/roles/events.py

    round: int
    shown: Any = None

    def check(self, layout: Layout) -> None:
        check_round(self.round)

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "finished", **asdict(self)}

    def to_sentence(self) -> str:
        return f"finished after {self.round} rounds"


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Watched:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        round: rounds that are over.
        evaluating: an evaluation is on its way.
        final: it is, or was, the last one.
        sums: scores so far.
        heard: whose.
        shown: hospital: the final model, for those of its devices that are not heard.
        guard: hospital, aggregator: what it has seen of its children's uploads.
        over: hospital, aggregator: it has said that the run is.
    """

    inner: Any
    round: int = 0
    evaluating: bool = False
    final: bool = False
    sums: Mapping[str, Exact] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    shown: Any = None
    guard: Guard = field(default_factory=Guard)
    over: bool = False


def noted(env: NodeEnv, s: Watched, sender: str, message: Any) -> Watched:
    """The state after a child's scores.

    Raises:
        PeerError: they cannot be of as many devices as the child has.
    """
    m: Scores = expected(sender, message, Scores)
    if is_suspended(env, s.guard, sender):
        return replace(s, heard=with_name(s.heard, sender))
    try:
        check_scores(m.sums, env.sizes.get(sender, 1))
    except ValueError as error:
        raise PeerError(f"{sender}: {error}") from None
    return replace(s, sums=plus_scores(s.sums, split_scores(m.sums)), heard=with_name(s.heard, sender))


def sums_of(s: Watched) -> dict[str, float]:
    return {name: bounded(number(value)) for name, value in s.sums.items()}


# Roles ----------------------------------------------------------------------------------------------------------
def evaluated(method: Method, every: int = 0) -> Method:
    """Add to a method an evaluation after every `every` rounds (0: none) and one after the last."""
    kind = get_type_hints(method.show)["return"]
    return replace(
        method,
        device=device(method, kind),
        hospital=hospital(method),
        aggregator=aggregator(method, every),
        messages=(*method.messages, Evaluate, Scores, Finished),
        show=lambda env, s: method.show(env, s.inner),
        models=lambda env, s, m: method.models(env, s and s.inner, expected(UP, m, kind)),
    )


def unread(env: NodeEnv, s: Watched, sender: str, why: str) -> Step:
    """The state after a child's message that could not be read, or that nobody may send: as good as a bad upload."""
    return (s, []) if is_suspended(env, s.guard, sender) else refused(env, s, sender, why, [])


def guarded(inner: Role, env: NodeEnv, s: Watched, sender: str, message: Any, noisy: bool) -> Step:
    """A child's answer for the method itself, if it is within bounds (noise is, by its scale) and not suspended."""
    if is_suspended(env, s.guard, sender):
        return s, []
    message, claims = bound_claim(env, s.guard, sender, message)
    guard, why = (s.guard, "") if noisy else judge_answer(env, s.guard, sender, message)
    s, told = changed(s, guard=guard), [Send(OUT, claim) for claim in claims]
    if why and is_vote(message):
        return s, [*told, Send(OUT, Refused(sender, why))]  # a vote has its own rule of who is heard when
    if why:
        return refused(env, s, sender, why, told)
    try:
        state, sends = inner.receive(without_suspended(env, guard), s.inner, sender, message)
    except PeerError as error:
        return refused(env, s, sender, str(error), told)
    guard = note_upload(note_claim(env, guard, sender, message), sender, message)
    return changed(s, inner=state, guard=guard), [*told, *sends]


def refused(env: NodeEnv, s: Watched, sender: str, why: str, told: list[Send]) -> Step:
    """The state without an answer that is not counted, and what is said of it."""
    why = why[:LONGEST]
    guard, suspended = note_refusal(env, s.guard, sender, why)
    said = [Refused(sender, why), *suspended]
    return replace(s, guard=guard), [*told, *(Send(OUT, event) for event in said)]


def inside(inner: Role, env: NodeEnv, s: Watched, sender: str, message: Any) -> Step:
    """A message for the method itself, which does not see suspended children."""
    state, sends = inner.receive(without_suspended(env, s.guard), s.inner, sender, message)
    return changed(s, inner=state), sends


def device(method: Method, kind: type) -> Role:
    def judged(env: NodeEnv, s: Watched, round: int, final: bool, shown: Any) -> tuple[Scores, list[Send]]:
        with env.gradients.counting(NOTHING):  # but what settles, which says so
            models, healed = heal_personal(round, method.models(env, s.inner, expected(UP, shown, kind)))
        env = with_scores(method, env, shown)
        told = [*healed, *beside.told_of_own(round, models)]
        models, ensemble = beside.with_forest(models, None if method.predicts is None else method.predicts(env, shown))
        judged_by = env.held_out if env.test is None and env.held_out is not None else env.validation
        known = {} if ensemble is None else reports.ensemble_sums(judged_by, models, ensemble)
        found = judge(env, models, known)
        sums = found | judge_personal(models, found) | (judge_test(env, models, ensemble) if final else {})
        scores = Scores(round, sums)
        return scores, [*told, Send(OUT, scores)] + [Send(OUT, Models(round, models, ensemble))] * final

    def receive(env: NodeEnv, s: Watched, sender: str, m: Any) -> Step:
        if isinstance(m, Evaluate):
            scores, told = judged(env, s, m.round, m.final, m.shown)
            said = scores if method.tells_scores else Scores(m.round, {})
            return replace(s, round=m.round, final=m.final), [Send(UP, said), *told]
        if isinstance(m, Finished):
            told = [] if m.shown is None else judged(env, s, m.round, True, m.shown)[1]
            return replace(s, round=m.round, final=True), [*told, Send(OUT, Finished(m.round))]
        step = method.device.receive(env, s.inner, sender, m)
        state, sends = heal(method.device, env, s.inner, step, getattr(m, "round", s.round))
        return changed(s, inner=state), sends

    def close(env: NodeEnv, s: Watched) -> Step:
        if s.final:
            return s, []  # its last models have been judged and told: a clock of its own moves them no more
        state, sends = heal(method.device, env, s.inner, method.device.close(env, s.inner), s.round)
        return replace(s, inner=state), sends

    return role_around(method.device, Watched, receive, close)


def with_scores(method: Method, env: NodeEnv, shown: Any) -> NodeEnv:
    """A device's env with the scores for an evaluation: `judge`, which has more in it, or what the method makes."""
    if method.scorer is None:
        return replace(env, score=env.judge or env.score)
    score, test = method.scorer(env, shown)
    return replace(env, score=score, test=test)


def hospital(method: Method) -> Role:
    inner, noisy, pass_in = method.hospital, method.spent is not None, passed_in(method.hospital.renew)

    def receive(env: NodeEnv, s: Watched, sender: str, m: Any) -> Step:
        if sender == UP and isinstance(m, Evaluate):
            asked = replace(s, round=m.round, evaluating=True, sums={}, heard=(), over=False)
            return replace(asked, final=m.final, shown=m.shown if m.final else None), forwarded(method, env, m)
        if sender == UP and isinstance(m, Finished):
            s = replace(s, round=m.round, evaluating=False, over=True)
            s = replace(s, heard=(), shown=m.shown) if s.shown is None else s
            return s, last_words(env, s.heard, m.round, s.shown, method.forward)
        if sender == UP:
            s = replace(s, evaluating=False, shown=None, guard=begin_round(s.guard), over=False)
            return inside(inner, env, s, sender, m)
        if sender == ME:
            return inside(inner, env, s, sender, m)
        return (noted(env, s, sender, m), []) if s.evaluating else guarded(inner, env, s, sender, m, noisy)

    def close(env: NodeEnv, s: Watched) -> Step:
        if s.evaluating:
            return replace(s, evaluating=False), [Send(UP, Scores(s.round, sums_of(s)))]
        state, sends = inner.close(without_suspended(env, s.guard), s.inner)
        return replace(s, inner=state), sends

    def renew(env: NodeEnv, s: Watched, child: str) -> Step:
        s = s if pass_in is None else pass_in(env, s, child)[0]
        return told_anew(env, s, child, s.shown, method.forward)

    return role_around(inner, Watched, receive, close, unread, renew)


def forwarded(method: Method, env: NodeEnv, m: Evaluate) -> list[Send]:
    """To all devices, or to each its own."""
    if method.forward is None or not env.here:
        return [Send(DOWN, m, all=True)]
    return [Send(d, replace(m, shown=method.forward(env, m.shown, d, m.final)), all=True) for d in env.here]


def aggregator(method: Method, every: int) -> Role:
    inner, noisy = method.aggregator, method.spent is not None

    def receive(env: NodeEnv, s: Watched, sender: str, m: Any) -> Step:
        if sender == ME:
            return inside(inner, env, s, sender, m)
        return (noted(env, s, sender, m), []) if s.evaluating else guarded(inner, env, s, sender, m, noisy)

    def close(env: NodeEnv, s: Watched) -> Step:
        state, sends = inner.close(without_suspended(env, s.guard), s.inner)
        s = replace(s, guard=begin_round(s.guard))
        if s.evaluating:
            s, sends = resumed(env, replace(s, inner=state, evaluating=False), asking(sends), method)
            return s, priced(method, env, state, sends)
        sends = priced(method, env, state, sends)
        round = s.round + 1 if method.rounds_over is None else method.rounds_over(state)
        final = not asking(sends)
        if not final and (every == 0 or round % every or round == s.round):
            return replace(s, inner=state, round=round), sends
        s = replace(s, round=round, evaluating=True, final=final, sums={}, heard=())
        told = [send for send in sends if send.to == OUT]
        return s, [*told, Send(DOWN, Evaluate(round, final, method.show(env, state)), all=True)]

    def renew(env: NodeEnv, s: Watched, child: str) -> Step:
        return told_anew(env, s, child, method.show(env, s.inner) if s.over else None)

    return role_around(inner, Watched, receive, close, unread, renew)


def resumed(env: NodeEnv, s: Watched, questions: list[Send], method: Method) -> Step:
    """The aggregator after an evaluation: back to the method, or to the end."""
    report = Send(OUT, Report(s.round, sums_of(s), s.final))
    if not s.final:
        return s, [report, *questions]
    return replace(s, over=True), [report, *last_words(env, s.heard, s.round, method.show(env, s.inner))]


def asking(sends: Any) -> list[Send]:
    return [send for send in sends if send.to not in (UP, OUT)]


def told_anew(env: NodeEnv, s: Watched, child: str, shown: Any, forward: Forward | None = None) -> Step:
    """The state where a child has another disk, or is new: the model of the last evaluation is not there."""
    s = replace(s, heard=tuple(name for name in s.heard if name != child))
    return s, with_model(env, (child,), s.round, shown, forward) if s.over else []


def last_words(
    env: NodeEnv, heard: tuple[str, ...], round: int, shown: Any, forward: Forward | None = None
) -> list[Send]:
    """To those that have the final model, to those that have not, and to the application."""
    others = tuple(sorted({*env.here, *env.sizes} - {*heard}))
    to_others = with_model(env, others, round, shown, forward)
    return [Send(heard, Finished(round), answer=False), *to_others, Send(OUT, Finished(round))]


def with_model(env: NodeEnv, children: tuple[str, ...], round: int, shown: Any, forward: Forward | None) -> list[Send]:
    """The end of the run with the final model. `forward`: hospital: makes what each child is shown."""
    if forward is None or shown is None:
        return [Send(children, Finished(round, shown), answer=False)]
    return [Send(d, Finished(round, forward(env, shown, d, True)), answer=False) for d in children]
