"""What does not change in a run with secret sums: which answers are masked, and of how many devices a sum is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from edge_sdk.contract.method import Send
from edge_sdk.methods.secret.messages.forms import SumKind
from edge_sdk.methods.secret.messages.messages import SumForm


@dataclass(frozen=True)
class SecretPlan:
    """Kinds of answers that are added up.

    Attributes:
        cohort: devices of which a sum is made at least.
        kinds: type of an answer -> how it is masked.
        names: name of a kind of answer, as a form has it -> the same.
        hospitals: of which a sum is made at least; 0: the aggregator reads the sum of each hospital.
    """

    cohort: int
    kinds: Mapping[type, SumKind]
    names: Mapping[str, SumKind]
    hospitals: int = 0

    @property
    def least(self) -> int:
        """Devices of which a hospital makes a sum at least: over hospitals all of theirs are counted."""
        return 1 if self.hospitals else self.cohort

    def kind_of(self, form: SumForm) -> SumKind | None:
        return self.names.get(form.kind)


def says_nothing(message: Any) -> bool:
    """True for an answer without fields: that somebody has nothing, is behind, or has forgotten."""
    return not fields(message)


def asks_children(send: Send, *not_children: str) -> bool:
    """True for a question to children."""
    return send.answer and send.to not in not_children
