"""Labels: messages without their vectors. Made from the message's own type, so that no method writes them down twice.

A label has the fields of its message but those that a path names: of "total" the field `total` is missing, of
"sums.total" the label has a label in its field `sums`. Vectors are taken out of a message by path and put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import PeerError

Paths = tuple[str, ...]


@cache
def hints_of(cls: Any) -> Mapping[str, Any]:
    """Field -> its type, of a message's type; read once, as each reading compiles the types' text."""
    return get_type_hints(cls, include_extras=True)


@cache
def label_type(cls: Any, paths: Paths) -> type:
    """The type of a message without these vectors; the same class each time."""
    hints, made = hints_of(cls), list[tuple[str, Any]]()
    for f in fields(cls):
        below = paths_below(paths, f.name)
        hint = label_type(member(hints[f.name]), below) | None if below else hints[f.name]
        made += [] if f.name in paths else [(f.name, hint)]
    made_type: type = make_dataclass(
        f"{cls.__name__}Label", made, frozen=True, namespace={"origin": cls, "paths": paths}
    )
    return made_type


def paths_below(paths: Paths, name: str) -> Paths:
    """What is left of the paths that go through a field."""
    return tuple(path[len(name) + 1 :] for path in paths if path.startswith(f"{name}."))


def member(hint: Any) -> Any:
    """The dataclass in `X` or `X | None`."""
    return next((a for a in get_args(hint) if a is not type(None)), hint)


def take_label(message: Any, paths: Paths) -> Any:
    """The message without these vectors."""
    found: dict[str, Any] = {}
    for f in fields(message):
        if f.name not in paths:
            value, below = getattr(message, f.name), paths_below(paths, f.name)
            found[f.name] = take_label(value, below) if below and value is not None else value
    cls: Any = type(message)
    return label_type(cls, paths)(**found)


def take_vectors(layout: Layout, message: Any, paths: Paths) -> dict[str, Vector]:
    """Path -> its vector, of those that there are."""
    found = {}
    for path in paths:
        value = message
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        if value is not None:
            found[path] = lowrank.unpack(layout, value) if isinstance(value, Packed) else value
    return found


def put_vectors(layout: Layout, label: Any, vectors: Mapping[str, Vector]) -> Any:
    """The message of a label and its vectors; a vector that is not given is None.

    Raises:
        PeerError: the message refuses what is in it.
    """
    cls = type(label).origin
    hints, values = hints_of(cls), {f.name: getattr(label, f.name) for f in fields(label)}
    for f in fields(cls):
        if below := {path[len(f.name) + 1 :]: v for path, v in vectors.items() if path.startswith(f"{f.name}.")}:
            if values[f.name] is None:
                raise PeerError(f"{cls.__name__}: a vector in {f.name}, which is not there")
            values[f.name] = put_vectors(layout, values[f.name], below)
        elif f.name not in values:
            vector = vectors.get(f.name)
            check_size(layout, f"{cls.__name__}.{f.name}", hints[f.name], vector)
            values[f.name] = lowrank.dense(layout, vector) if hints[f.name] is Packed and vector is not None else vector
    return checked(cls(**values), layout)


def check_size(layout: Layout, where: str, hint: Any, vector: Vector | None) -> None:
    """Raises PeerError for a vector of another size than the model's in a field of that size."""
    sizes = [part.dims for one in (hint, *get_args(hint)) for part in getattr(one, "__metadata__", ())]
    if vector is not None and layout.size and ("n",) in sizes and vector.shape != (layout.size,):
        raise PeerError(f"{where} has {vector.size} numbers, the model has {layout.size}")


def checked(message: Any, layout: Layout) -> Any:
    """The message, after its own check."""
    try:
        if (check := getattr(message, "check", None)) is not None:
            check(layout)
    except ValueError as error:
        raise PeerError(f"{type(message).__name__}: {error}") from None
    return message


def joined(vectors: Mapping[str, Vector]) -> Vector:
    """The vectors one behind the other, in the order of their paths."""
    return np.concatenate([vectors[path] for path in sorted(vectors)])


def parted(there: Paths, vector: Vector) -> dict[str, Vector]:
    """The inverse of `joined`, of vectors of one length."""
    return dict(zip(sorted(there), np.split(vector, len(there)), strict=True))
