"""Every number in every message has a range that is checked before a role sees it: one test over all that is declared.

An example of each message is made from its annotations. In it each number is set in turn to what no honest node says:
beyond both ends, and to what is no number. What a field means may bound it more closely: that is for each message's own
`check`, and its tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from math import inf, nan
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from edge_sdk.algebra.arrays import ANY, Drawn, OrNone, Tensor
from edge_sdk.errors import EncodeError
from edge_sdk.wire.codec import composites
from edge_sdk.wire.codec.codec import Codec, DecodeError
from edge_sdk.wire.codec.coders import LARGEST_FLOAT, LARGEST_INT
from tests.methods.problems import LAYOUT
from tests.wire.test_closed_world import ALL

WRONG_INTS = (-1, -2, -(2**63), LARGEST_INT + 1, 2**63 - 1, 2**64 - 1)
WRONG_FLOATS = (nan, inf, -inf, 2 * LARGEST_FLOAT, -2 * LARGEST_FLOAT)
PLAIN: Mapping[Any, Any] = {int: 1, float: 1.0, bool: True, str: "a", bytes: b"a", type(None): None, Any: None}


def example(hint: Any) -> Any:
    """A value of an annotation with as many numbers in it as there may be."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated:
        tensors = [each for each in hint.__metadata__ if isinstance(each, Tensor)]
        return example_array(tensors[0]) if tensors else example(inner[0])
    if is_dataclass(hint):
        return made(hint, {name: example(each) for name, each in hints_of(hint).items()})
    if origin is tuple:
        return tuple(example(each) for each in inner if each is not Ellipsis)
    if origin is Mapping:
        return {"a": example(inner[1])}
    if origin is frozenset:
        return frozenset({"a"})
    assert origin in (Union, UnionType), hint
    return next(value for each in inner if (value := example(each)) is not None)


def hints_of(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def made(cls: Any, values: Mapping[str, Any]) -> Any:
    """A message as somebody makes it who does not care whether it says anything."""
    found = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def example_array(spec: Tensor) -> Any:
    sizes = {ANY: 1, "n": LAYOUT.size}
    shape = tuple(d if isinstance(d, int) else sizes.get(d, 2) for d in spec.dims)
    return np.ones(shape, "float32" if spec.dtype == "float" else spec.dtype)


def changed(value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    """A value in all ways in which one number in it is out of its range, each with the address of that number."""
    if type(value) is int:
        apart = {OrNone: (-2, 2**31 + 1), Drawn: (-1, 2**63)}
        yield from ((f" = {wrong}", wrong) for wrong in apart.get(hint, WRONG_INTS))
    elif type(value) is float:
        yield from ((f" = {wrong}", wrong) for wrong in WRONG_FLOATS)
    elif is_dataclass(value):
        for name, inner in hints_of(type(value)).items():
            for at, new in changed(getattr(value, name), inner):
                values = {each.name: getattr(value, each.name) for each in fields(value)}
                yield f".{name}{at}", made(type(value), {**values, name: new})
    elif isinstance(value, tuple):
        for i, inner in enumerate(value):
            of = get_args(hint)[0 if Ellipsis in get_args(hint) else i] if get_origin(hint) is tuple else None
            yield from ((f"[{i}]{at}", (*value[:i], new, *value[i + 1 :])) for at, new in changed(inner, of))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from ((f"[{key}]{at}", {**value, key: new}) for at, new in changed(inner, None))
    elif isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f":
        for wrong in (nan, inf):
            (copy := value.copy()).flat[0] = wrong
            yield f"[0] = {wrong}", copy


def find_open(message: type, codec: Codec, careless: Codec) -> list[str]:
    """Numbers of a message that may be anything: the codec writes them, or reads them from who does."""
    found, honest = [], example(message)
    codec.decode(codec.encode(honest))
    for at, wrong in changed(honest, message):
        with suppress(EncodeError):
            codec.encode(wrong)
            found.append(f"{message.__name__}{at} is written")
        with suppress(DecodeError):
            codec.decode(careless.encode(wrong))
            found.append(f"{message.__name__}{at} is read")
    return found


@pytest.fixture
def nobody_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages do not check themselves, so that what is refused is refused for its range alone."""
    monkeypatch.setattr(composites, "constructor", lambda cls, layout: partial(made, cls))


@pytest.mark.usefixtures("nobody_checks")
@pytest.mark.parametrize(("method", "message"), ALL, ids=[f"{m}-{c.__name__}" for m, c in ALL])
def test_no_number_of_a_message_is_out_of_its_range(method: str, message: type) -> None:
    roots = [each for name, each in ALL if name == method]
    codec, careless = Codec(roots, layout=LAYOUT), Codec(roots, layout=LAYOUT, finite=False)
    assert find_open(message, codec, careless) == []


@dataclass(frozen=True)
class Everything:
    """All places in which a message may have a number."""

    count: int
    share: float
    several: tuple[int, ...]
    pair: tuple[int, float]
    scores: Mapping[str, float]
    maybe: int | None
    rank: OrNone


def test_each_place_for_a_number_is_looked_at() -> None:
    codec = Codec([Everything], layout=LAYOUT)
    honest = Everything(LARGEST_INT, -LARGEST_FLOAT, (0,), (0, LARGEST_FLOAT), {"a": 0.0}, None, -1)
    assert codec.decode(codec.encode(honest)) == honest
    assert len(list(changed(example(Everything), Everything))) == 4 * len(WRONG_INTS) + 3 * len(WRONG_FLOATS) + 2
    for at, wrong in changed(example(Everything), Everything):
        with pytest.raises(EncodeError, match="from"):
            codec.encode(wrong)
            pytest.fail(at)
    assert replace(honest, maybe=3) == codec.decode(codec.encode(replace(honest, maybe=3)))
