"""Boxes for the settings of a run: one for each key, made of the dataclass that checks the run itself.

So no key is missing in the form, none is there that a run does not take, and the words beside a box are those of the
dataclass. A box that is left empty says nothing: the setting is then as `preset` has it.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from aggregator.service.runs.runs import Wanted
from edge_sdk.data.augment import Augment
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.vectors.privacy import Privacy
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.robust.settings import RULES, Robust
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.replay.planning.toml_files import as_toml

SETTINGS = "settings"
TABLES: Mapping[str, tuple[str, Any]] = {
    SETTINGS: ("Settings of the method", None),
    "settle": ("Settling, after the last round", Settling),
    "augment": ("Changes of windows while devices train", Augment),
    "robust": ("Rules against bad devices", Robust),
    "uploads": ("Uploads as small integers, or as secret sums", Uploads),
    "privacy": ("Noise that devices add to uploads", Privacy),
}
"""Table of a run -> its title, and the dataclass that checks it; None: that of the method."""
ON = "on"
"""Key of the box that switches a table on although nothing else in it is said."""
YES_NO = ("true", "false")
RULED = {("robust", "rule"), ("robust", "hospitals")}
"""Settings whose values are RULES, which their words only name."""
ENCLOSED, SHAPES = {"list": "[]", "table": "{}"}, {"list": "0.5, 1", "table": "north = 0.5"}
"""Kind of a box whose text is TOML without what stands around it, and what it may look like."""
ATTRIBUTE = re.compile(r"^    (?:    )?(\w+(?:, \w+)*): (.*)$")


@dataclass(frozen=True)
class Box:
    """One setting in the form.

    Attributes:
        name: of the field in the form, such as "robust.rule".
        kind: "whole", "number", "choice", "text", "list" or "table".
        words: what it is.
        example: its default, or "" where it has none; options: values that the words name.
    """

    name: str
    key: str
    kind: str
    words: str
    example: str
    options: tuple[str, ...]


def kind_of(table: str, method: str) -> Any:
    """The dataclass that checks a table of a run; for a method that cannot be had, that of the usual one."""
    if (found := TABLES[table][1]) is not None:
        return found
    try:
        return METHODS[method].settings
    except (KeyError, UsageError):  # whoever asked for it is told so elsewhere, and needs the form to choose another
        return METHODS[Wanted().method].settings


def list_boxes(table: str, method: str) -> tuple[Box, ...]:
    """Boxes of a table, in the order of its dataclass."""
    return boxes_of(kind_of(table, method), table)


@cache
def boxes_of(kind: Any, table: str) -> tuple[Box, ...]:
    words, hints = read_words(kind), get_type_hints(kind)
    return tuple(make_box(table, field, hints[field.name], words.get(field.name, "")) for field in fields(kind))


def make_box(table: str, field: Field[Any], hint: Any, words: str) -> Box:
    kinds = {one for one in get_args(hint) if one is not type(None)} if is_union(hint) else {hint}
    options = tuple(dict.fromkeys(re.findall(r'"([\w-]+)"', words))) if str in kinds else ()
    kind = find_kind(kinds)
    if (table, field.name) in RULED:
        options, words = RULES, words.partition(":")[0] + ": " + ", ".join(RULES)
    elif kind == "choice":
        options = (*YES_NO, *options)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    example = "" if default is MISSING or default is None or default in ((), {}) else to_text(default)
    return Box(f"{table}.{field.name}", field.name, kind, words, example, options)


def find_kind(kinds: set[Any]) -> str:
    """Kind of the box for a value that may be of these types."""
    if bool in kinds:
        return "choice"
    if kinds <= {int, float}:
        return "whole" if kinds == {int} else "number"
    origins = {get_origin(one) or one for one in kinds}
    return "list" if tuple in origins else "table" if any(issubclass(one, Mapping) for one in origins) else "text"


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def read_words(kind: Any) -> dict[str, str]:
    """What the docstrings of a dataclass and of those that it is made from say of each attribute."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        _, _, said = (inspect.cleandoc(one.__dict__.get("__doc__") or "")).partition("Attributes:\n")
        names: list[str] = []
        for line in said.splitlines():
            if match := ATTRIBUTE.match(line):
                names, text = match[1].split(", "), match[2]
                found |= dict.fromkeys(names, text)
            elif line.startswith("     "):
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
            else:
                names = []
    return found


def to_text(value: Any) -> str:
    """A value as it stands in a box."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(to_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items())
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def to_fields(wanted: Mapping[str, Any]) -> dict[str, str]:
    """The tables of a run as fields of the form."""
    found: dict[str, str] = {}
    for table in TABLES:
        values = as_toml(wanted.get(table, {}))
        found |= {f"{table}.{key}": to_text(value) for key, value in values.items()}
        if values:
            found[f"{table}.{ON}"] = ON
    return found


def read_tables(form: Mapping[str, Any], method: str) -> dict[str, dict[str, Any]]:
    """The tables of a run from the fields of the form.

    Raises:
        UsageError: what stands in a box is not what it is for.
    """
    found: dict[str, dict[str, Any]] = {}
    for table in TABLES:
        boxes = list_boxes(table, method)
        values = {box.key: read_value(box, text) for box in boxes if (text := str(form.get(box.name, "")).strip())}
        if not values and form.get(f"{table}.{ON}"):
            values = state_one(table, boxes)
        found[table] = values
    return found


def state_one(table: str, boxes: tuple[Box, ...]) -> dict[str, Any]:
    """The first setting of a table that was switched on, as its default has it: an empty table is one that is off."""
    for box in boxes:
        if box.example:
            return {box.key: read_value(box, box.example)}
    raise UsageError(f"{table}: is switched on, and needs a value")


def read_value(box: Box, text: str) -> Any:
    """What stands in a box, as the run has it."""
    if box.kind == "choice" and text in YES_NO:
        return text == "true"
    try:
        if box.kind == "whole":
            return int(text)
        if box.kind == "number":
            return float(text)
    except ValueError:
        expected = "a whole number" if box.kind == "whole" else "a number"
        like = f", such as {box.example}" if box.example else ""
        raise UsageError(f"{box.name} = {text[:40]!r}: expected {expected}{like}") from None
    if box.kind in ENCLOSED:
        return read_toml(box, text)
    return text


def read_toml(box: Box, text: str) -> Any:
    """A list with commas between, or a table of names and values."""
    (left, right), like = tuple(ENCLOSED[box.kind]), box.example or SHAPES[box.kind]
    try:
        return tomllib.loads(f"x = {left}{text}{right}")["x"]
    except (ValueError, RecursionError):  # of a number with thousands of digits, too
        raise UsageError(f"{box.name} = {text[:40]!r}: expected something such as {like}") from None
