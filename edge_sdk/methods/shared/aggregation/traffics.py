"""`Method.traffic` of methods whose devices send a vector that is added up, and of those that cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge_sdk.contract.traffic import VectorTraffic, first_model
from edge_sdk.methods.shared.aggregation.gather import Sum


def summed(question: type, *paths: str, upload: type = Sum, **more: Any) -> Callable[[Any], VectorTraffic]:
    """Vectors of `Sum`s, or of such uploads, beside the model at these paths of a question.

    `more`: other fields of `VectorTraffic`.
    """
    given = {"first": first_model, **more}
    traffic = VectorTraffic(down={question: paths}, up={upload: ("total",)}, **given)
    return lambda settings: traffic


def always_floats(why: str) -> Callable[[Any], str]:
    """A method whose vectors must travel as they are."""
    return lambda settings: why
