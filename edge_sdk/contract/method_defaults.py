"""Functions that a method has of which it says nothing: it warns of nothing, and adds nothing up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.contract.traffic import VectorTraffic


def no_warnings(settings: Any, sizes: Mapping[str, int]) -> Sequence[str]:
    return ()


def any_rule(settings: Any, tier: str, rule: str) -> str:
    return ""


def changeable(settings: Any) -> str:
    return ""


def never(settings: Any) -> bool:
    return False


def no_sums(settings: Any) -> VectorTraffic | str:
    return "what its devices send is not added up"
