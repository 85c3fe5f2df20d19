"""What an endpoint of the API takes and answers, said where it is written, and as JSON Schema for the document."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import sqlalchemy as sql

Schema = dict[str, Any]
E = TypeVar("E", bound=Callable[..., Any])
DECLARED = "declared"
"""Attribute of an endpoint that has a `Declared`."""


@dataclass(frozen=True)
class Declared:
    """What an endpoint takes and answers.

    Attributes:
        answer, body: what `to_schema` takes; body None: there is none.
        code: of the answer where all went well.
        problems: codes of the answers where it did not.
        query: parameter that may stand in the address -> what it is for; "NAME#MOST" is a whole number.
    """

    answer: Any
    body: Any = None
    code: int = 200
    problems: tuple[int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ListOf:
    """Several of the same."""

    kind: Any


@dataclass(frozen=True)
class Either:
    """One of several."""

    kinds: tuple[Any, ...]


@dataclass(frozen=True)
class Also:
    """The fields of a dataclass or a table, and some more."""

    of: Any
    more: Mapping[str, Any]


@dataclass(frozen=True)
class Keys:
    """An object. Keys that end in "?" may be missing."""

    fields: Mapping[str, Any]


def declare(
    answer: Any,
    body: Any = None,
    code: int = 200,
    problems: tuple[int, ...] = (),
    query: Mapping[str, str] | None = None,
) -> Callable[[E], E]:
    """Decorates an endpoint with what it takes and answers."""

    def decorate(endpoint: E) -> E:
        setattr(endpoint, DECLARED, Declared(answer, body, code, problems, query or {}))
        return endpoint

    return decorate


PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    Any: {},
}


def to_schema(kind: Any) -> Schema:
    """JSON Schema of an annotation, a dataclass, a table, `Keys` or `Also`."""
    if isinstance(kind, Keys):
        return to_object({name.rstrip("?"): to_schema(of) for name, of in kind.fields.items()}, optional(kind))
    if isinstance(kind, Also):
        found, more = to_schema(kind.of), to_schema(Keys(kind.more))
        return to_object(found["properties"] | more["properties"], set(found["properties"]) - set(found["required"]))
    if isinstance(kind, ListOf):
        return {"type": "array", "items": to_schema(kind.kind)}
    if isinstance(kind, Either):
        return {"anyOf": [to_schema(one) for one in kind.kinds]}
    if isinstance(kind, sql.Table):
        return to_object({column.name: column_schema(column) for column in kind.columns})
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return to_object({one.name: field_schema(one, hints[one.name]) for one in fields(kind)})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [to_schema(one) for one in inner]}
    if origin in (list, tuple):
        return to_schema(ListOf(inner[0]))
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": to_schema(inner[1])}
    return dict(PLAIN[kind])


def optional(kind: Keys) -> set[str]:
    return {name.rstrip("?") for name in kind.fields if name.endswith("?")}


def to_object(properties: Mapping[str, Schema], may_miss: set[str] | frozenset[str] = frozenset()) -> Schema:
    required = sorted({*properties} - may_miss)
    return {"type": "object", "properties": dict(properties), "required": required}


def field_schema(one: Field[Any], hint: Any) -> Schema:
    """A field of a dataclass, with its default where it is a plain one."""
    plain = one.default is not MISSING and isinstance(one.default, str | int | float | None)
    return to_schema(hint) | ({"default": one.default} if plain else {})


def column_schema(column: sql.Column[Any]) -> Schema:
    found = {} if isinstance(column.type, sql.JSON) else to_schema(column.type.python_type)
    return {"anyOf": [found, {"type": "null"}]} if column.nullable and found else found


def without_required(schema: Schema) -> Schema:
    """An object as a request may have it: what is left out has its default."""
    return {key: value for key, value in schema.items() if key != "required"}
