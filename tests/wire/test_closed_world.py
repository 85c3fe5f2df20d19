"""A closed world: every field of every declared message has a type and bounds before it is read, and what is written
can be read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from edge_sdk.algebra.arrays import Tensor
from edge_sdk.contract.run import Run
from edge_sdk.methods import METHODS
from edge_sdk.methods.rollout.method import ROLLOUT
from edge_sdk.nodes.configuration.assembly import method_of

BOUNDED = (int, float, bool, str, bytes, NoneType)  # numbers by their width, the others by the header's limit
WRAPPERS = (
    "Both.",
    "Finished.shown",
    "Evaluate.shown",
    "Changes.label",
    "NumberedQuestion.question",
    "NoSum.nothing",
    "Integers.label",
)
"""Whose Any the codec reads as one of the run's declared messages, or nothing."""
SECRET = Run(id="r", method="fedslr", classes=("a", "b"), settle={}, uploads={"bits": 8, "secret": True})
AMONG = replace(SECRET, uploads={"bits": 8, "secret": "among-devices"})
AROUND = {"rollout": ROLLOUT, "secret sums": method_of(SECRET), "among devices": method_of(AMONG)}
ALL = [(name, message) for name, method in sorted({**METHODS, **AROUND}.items()) for message in method.messages]


def unbounded(hint: Any, seen: frozenset[type] = frozenset()) -> Iterator[str]:
    """Parts of an annotation whose type or size is not known before it is read."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        tensors = [each for each in hint.__metadata__ if isinstance(each, Tensor)]
        if not tensors:
            yield from unbounded(arguments[0], seen)
        return
    if isinstance(hint, type) and is_dataclass(hint):
        if hint not in seen:
            for field, inner in get_type_hints(hint, include_extras=True).items():
                if field in {f.name for f in fields(hint)}:
                    yield from (f"{hint.__name__}.{field}: {why}" for why in unbounded(inner, seen | {hint}))
    elif origin in (tuple, Union, UnionType, frozenset, Mapping):
        for each in arguments:
            if each is not Ellipsis:
                yield from unbounded(each, seen)
    elif hint not in BOUNDED and hint is not None:
        yield f"{hint} is no type that the codec bounds"


@pytest.mark.parametrize(("method", "message"), ALL, ids=[f"{m}-{c.__name__}" for m, c in ALL])
def test_every_field_of_every_message_has_a_type_and_bounds(method: str, message: type) -> None:
    found = [why for why in unbounded(message) if not why.startswith(WRAPPERS)]
    assert found == []


def test_an_array_without_a_shape_would_be_found() -> None:
    assert list(unbounded(np.ndarray)) and list(unbounded(tuple[Any, ...])) and not list(unbounded(tuple[int, ...]))
