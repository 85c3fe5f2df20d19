"""Settings of robust sums: the [run.robust] table, and which methods it can stand around."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from edge_sdk.contract.method import Method
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import above_zero, one_of

NONE, CLIP, TRIMMED_MEAN, MEDIAN, GEOMETRIC_MEDIAN = "none", "clip", "trimmed-mean", "median", "geometric-median"
RULES = (NONE, CLIP, TRIMMED_MEAN, MEDIAN, GEOMETRIC_MEDIAN)


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Rules by which nodes add up what their children send.

    Attributes:
        rule: over devices, at each hospital: one of RULES; see rules.py.
        hospitals: over hospitals, at the aggregator: one of RULES.
        share: of the children that a trimmed mean leaves out at each end of each coordinate.
        neighbours: rules but "clip" are applied to means of neighbours; `share` says how many each mean leaves out.
        keep: times the median distance from such a rule's result up to which uploads count, with their weights; their
            mean takes the place of the result. At least 1; 0: the result itself counts, not with mirrored vectors.
        factor: times the median distance to which "clip" shortens.
    """

    rule: str = NONE
    hospitals: str = NONE
    share: float = 0.3
    neighbours: bool = True
    keep: float = 1.5
    factor: float = 1.5

    def __post_init__(self) -> None:
        one_of(self, RULES, "rule", "hospitals")
        above_zero(self, "factor")
        if self.keep != 0 and not 1 <= self.keep < inf:
            raise UsageError(f"keep = {self.keep}: times the median distance, 1 or more, or 0 for no such mean")
        if not 0 < self.share < 0.5:
            raise UsageError(f"share = {self.share}: a share of the children left out at each end, above 0, below 0.5")

    def at(self, tier: str) -> str:
        """The rule of a tier: "hospital" or "aggregator"."""
        return self.rule if tier == "hospital" else self.hospitals


def check_method(method: Method, method_settings: Any, settings: Robust) -> None:
    """Raises UsageError if the sums of a method cannot be made robust as settings say; its sentence says why."""
    for tier, key in (("hospital", "rule"), ("aggregator", "hospitals")):
        rule = settings.at(tier)
        why = "" if rule == NONE else method.plain_sums(method_settings, tier, rule)
        if not why and rule not in (NONE, CLIP) and tier in method.mirrored and settings.keep == 0:
            why = "keep = 0: devices move vectors by their uploads, a rule only chooses who counts; expected 1 or more"
        if why:
            raise UsageError(f"run.robust: {key} = {rule!r} with method {method.name}: {why}")
