"""What a run with noise has told about its devices so far, as it stands in events, metrics and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edge_sdk.contract.method import OUT, Method, NodeEnv, Send
from edge_sdk.methods.shared.evaluation.reports import Progress, Report


@dataclass(frozen=True)
class PrivacySpent:
    """Privacy of a device, as it is after some rounds.

    Attributes:
        epsilon: towards who sees each hospital's sums, as the aggregator does.
        epsilon_model: towards who sees only the models that come out of all of them.
        delta: beside both.
    """

    epsilon: float
    epsilon_model: float
    delta: float


@dataclass(frozen=True)
class PrivateProgress(Progress):
    """A round of a run with noise is over."""

    spent: PrivacySpent

    def to_metrics(self) -> dict[str, Any]:
        return with_spent(super().to_metrics(), self.spent)

    def to_sentence(self) -> str:
        return f"{super().to_sentence()}, {to_words(self.spent)}"


@dataclass(frozen=True)
class PrivateReport(Report):
    """An evaluation of a run with noise is over."""

    spent: PrivacySpent = PrivacySpent(0.0, 0.0, 0.0)

    def to_metrics(self) -> dict[str, Any]:
        return with_spent(super().to_metrics(), self.spent)

    def to_sentence(self) -> str:
        return f"{super().to_sentence()}, {to_words(self.spent)}"


def with_spent(line: dict[str, Any], spent: PrivacySpent) -> dict[str, Any]:
    """A line of metrics with epsilon and its companions in it."""
    return {key: value for key, value in line.items() if key != "spent"} | asdict(spent)


def to_words(spent: PrivacySpent) -> str:
    return f"epsilon {spent.epsilon:.3g} (of the models {spent.epsilon_model:.3g}) at delta {spent.delta:g}"


def priced(method: Method, env: NodeEnv, state: Any, sends: Sequence[Send]) -> Sequence[Send]:
    """The sends, with what the run has told about a device so far in each event, where devices add noise."""
    return sends if method.spent is None else told_with(method.spent(env, state), sends)


def told_with(spent: PrivacySpent, sends: Sequence[Send]) -> list[Send]:
    """The sends, with what was spent in every event about a round or an evaluation."""
    return [replace(s, message=annotated(s.message, spent)) if s.to == OUT else s for s in sends]


def annotated(event: Any, spent: PrivacySpent) -> Any:
    if type(event) is Progress:
        return PrivateProgress(event.round, event.devices, event.sums, spent)
    if type(event) is Report:
        return PrivateReport(event.round, event.sums, event.final, spent)
    return event
