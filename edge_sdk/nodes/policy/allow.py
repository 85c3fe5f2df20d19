"""The [allow] table of a hospital's or a device's settings file: which runs its owner lets it take part in. Pure.

A run comes from the aggregator, which may be somebody else's, or no longer its owner's. So the node itself judges each
run that it is offered, before anybody below hears of it, and again while the run goes on. What is not set is allowed.
Each rule is a function of its own in RULES; a new key of the table is a field, its check, and a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import isfinite

from edge_sdk.contract.run import ROLLOUT, Run
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.around import privacy_of
from edge_sdk.nodes.policy.budget import check_hours, is_within

POLICY, BY_HAND = "policy", "by-hand"
SUMS, CLASSES = "sums", "classes"


@dataclass(frozen=True, kw_only=True)
class Allow:
    """The [allow] table.

    Attributes:
        methods: that a run may have; none named: all.
        messages: names of the message types that may cross, as in docs/methods.md; none named: all. A run is refused
            if its method declares another one.
        hours: spans of local time in which a run may go on, such as "22:00-06:00"; none: always.
        max_bytes: that this node sends and receives for one run, at most; 0: no such rule.
        epsilon_per_run: that a run may come to, counted by this node itself; 0: no such rule, and runs need no noise.
        epsilon_for_good: that all runs together may come to, from the first one of this node on; 0: no such rule.
        epsilon_delta: delta beside the two.
        scores: that may leave: "sums": how many held-out samples models get right, errors or macro-F1, losses;
            "classes": also histograms by class, which tell how many samples of each class there are.
        scores_of: of a hospital: least number of devices whose added scores it passes on.
        approval: "policy": a run that keeps these rules begins by itself; "by-hand": a person approves each one.
    """

    methods: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    hours: tuple[str, ...] = ()
    max_bytes: int = 0
    epsilon_per_run: float = 0.0
    epsilon_for_good: float = 0.0
    epsilon_delta: float = 1e-5
    scores: str = SUMS
    scores_of: int = 3
    approval: str = POLICY

    def __post_init__(self) -> None:
        if self.methods:
            check_methods(self.methods)
        check_hours(self.hours)
        if self.max_bytes < 0:
            raise UsageError(f"max_bytes = {self.max_bytes}, at least 0")
        for name in ("epsilon_per_run", "epsilon_for_good"):
            if not (isfinite(value := getattr(self, name)) and value >= 0):
                raise UsageError(f"{name} = {value}, finite and at least 0")
        if not 0 < self.epsilon_delta < 1:
            raise UsageError(f"epsilon_delta = {self.epsilon_delta}: it lies between 0 and 1")
        if self.scores not in (SUMS, CLASSES):
            raise UsageError(f"scores = {self.scores!r}, expected {SUMS} or {CLASSES}")
        if self.scores_of < 1:
            raise UsageError(f"scores_of = {self.scores_of}: at least 1 device")
        if self.approval not in (POLICY, BY_HAND):
            raise UsageError(f"approval = {self.approval!r}, expected {POLICY} or {BY_HAND}")

    @property
    def takes_all(self) -> bool:
        """There is no rule about runs, only about what leaves in any of them."""
        return replace(self, scores=SUMS, scores_of=1) == replace(Allow(), scores_of=1)


def check_methods(names: Collection[str]) -> None:
    """Raises UsageError if there is no method of one of these names."""
    from edge_sdk.methods import METHODS  # where an owner names some

    if unknown := sorted(m for m in {*names} if m not in METHODS and m != ROLLOUT):
        known = ", ".join(sorted((*METHODS, ROLLOUT)))
        raise UsageError(f"methods: there is no {unknown[0]!r}; there are: {known}")


@dataclass(frozen=True)
class RunFacts:
    """What rules look at, beside the run.

    Attributes:
        minute: of local time, since midnight.
        spent: bytes that this node has sent and received for the run so far.
        told: rho of what all other runs have told about this node (nodes/policy/epsilon_ledger.py).
        decision: what a person has said of exactly this run; None: nothing yet.
    """

    minute: int = 0
    spent: int = 0
    told: float = 0.0
    decision: bool | None = None


Rule = Callable[[Allow, Run, RunFacts], str]
"""(table, run, facts) -> why the run may not go on now, as a sentence; "": as far as this rule is concerned it may."""


def check_method(allow: Allow, run: Run, facts: RunFacts) -> str:
    if not allow.methods or run.method in allow.methods:
        return ""
    return f"method {run.method} is not allowed here; allowed: {', '.join(allow.methods)}"


def check_messages(allow: Allow, run: Run, facts: RunFacts) -> str:
    if not allow.messages or not (others := list_others(run, allow.messages)):
        return ""
    return f"method {run.method} sends messages that are not allowed here: {', '.join(others)}"


def list_others(run: Run, allowed: Collection[str]) -> list[str]:
    """Names of the message types of a run that are not among those allowed."""
    from edge_sdk.nodes.configuration.assembly import method_of

    return sorted({kind.__name__ for kind in method_of(run).messages} - {*allowed})


def check_decision(allow: Allow, run: Run, facts: RunFacts) -> str:
    if facts.decision is False:
        return "it was denied by hand"
    if allow.approval == BY_HAND and facts.decision is None:
        return f"it waits for approval by hand, at this node: auscult approve FOLDER {run.id}"
    return ""


def check_epsilon(allow: Allow, run: Run, facts: RunFacts) -> str:
    from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of

    if not (allow.epsilon_per_run or allow.epsilon_for_good):
        return ""
    privacy = privacy_of(run)
    if privacy is None:
        return "its uploads have no noise (no [run.privacy]), so nothing bounds its epsilon, which is bounded here"
    from edge_sdk.methods.integers.vectors.privacy import OFF  # loaded with a run that has noise
    from edge_sdk.nodes.policy.epsilon_ledger import rho_of_run

    if privacy.scores != OFF:
        return f"it sends scores without noise (run.privacy.scores = {privacy.scores!r}), and epsilon is bounded here"
    price, delta = rho_of_run(run), allow.epsilon_delta
    for limit, rho, what in (
        (allow.epsilon_per_run, price, "it comes to"),
        (allow.epsilon_for_good, price + facts.told, "with it, the runs of this node come to"),
    ):
        if limit and (epsilon := epsilon_of(rho, delta)) > limit:
            return f"{what} epsilon {epsilon:.4g} at delta {delta:g}, at most {limit:g} is allowed"
    return ""


def check_bytes(allow: Allow, run: Run, facts: RunFacts) -> str:
    if not allow.max_bytes or facts.spent < allow.max_bytes:
        return ""
    return f"it has used {facts.spent / 1e6:.1f} MB, at most {allow.max_bytes / 1e6:.1f} MB are allowed"


def check_time(allow: Allow, run: Run, facts: RunFacts) -> str:
    if not allow.hours or any(is_within(span, facts.minute) for span in allow.hours):
        return ""
    return f"it waits for the hours in which runs are allowed: {', '.join(allow.hours)}"


RULES: tuple[Rule, ...] = (check_method, check_messages, check_epsilon, check_decision, check_bytes, check_time)
"""In the order in which they are told: what lasts before what passes."""


def find_objections(allow: Allow, run: Run, facts: RunFacts) -> Iterator[str]:
    """Why a run may not go on now, in sentences.

    Raises:
        UsageError: the run's method cannot be made, and so not be judged.
    """
    return (why for rule in RULES if (why := rule(allow, run, facts)))
