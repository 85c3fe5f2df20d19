"""Settings files: TOML into frozen dataclasses, checked completely before anything starts.

Every error names the file, the key, the value and what would be right; all of them are told at once. What a value may
be is said by the dataclass: its annotation gives the type, its `__post_init__` the range (UsageError).
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import types
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from edge_sdk.errors import UsageError
from edge_sdk.wire.addresses import conceal

T = TypeVar("T")
WIDEST = 2**63
"""Beyond it no message and no database keeps a whole number."""
NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    dict: "a table",
}


def read_toml(path: str | Path, kind: type[T]) -> T:
    """One settings file as a `kind`. Relative paths in it are relative to the file.

    Raises:
        UsageError: the file cannot be read, or anything in it is wrong.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error
    faults: list[str] = []
    made = build(kind, table, "", path.parent, faults)
    if faults or made is None:
        raise UsageError("\n".join(f"{path}: {fault}" for fault in faults))
    return made


def text_without_passwords(path: Path) -> str:
    """The text of a settings file to be kept: as it is, but for the passwords of brokers.

    Raises:
        UsageError: a password is written in a way in which it is not found, such as with an escape of TOML.
    """
    text = conceal(path.read_text(encoding="utf-8"))
    for value in list_texts(tomllib.loads(text)):
        if "://" in value and urlsplit(value).password is not None:
            raise UsageError(f"{path}: {conceal(value)!r}: write its password plainly (%40 for @, %20 for a blank)")
    return text


def list_texts(value: Any) -> list[str]:
    """All texts in a table, however deep."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in list_texts(one)]
    return [value] if isinstance(value, str) else []


def from_mapping(kind: type[T], values: Mapping[str, Any], what: str) -> T:
    """A dataclass from values that do not come from a file, e.g. `--set key=value` or the settings of a run."""
    faults: list[str] = []
    made = build(kind, values, "", Path(), faults)
    if faults or made is None:
        raise UsageError("\n".join(f"{what}: {fault}" for fault in faults))
    return made


def part_of(file: Any, kind: type[T], **more: Any) -> T:
    """The keys of a settings file that a `kind` is about, as one; `more`: what stands in no file, or otherwise there.
    What the file has no key for is as by default."""
    known = {field.name for field in dataclasses.fields(file)}
    found = {field.name: getattr(file, field.name) for field in fields_of(kind) if field.name in known}
    return kind(**found | more)


def build(kind: type[T], table: Mapping[str, Any], prefix: str, base: Path, faults: list[str]) -> T | None:
    """A `kind` from a table, or None with what is wrong added to `faults`."""
    fields = {f.name: f for f in fields_of(kind)}
    hints = hints_of(kind)  # type: ignore[arg-type]  # a class can be hashed, whatever its objects can
    found, before = dict[str, Any](), len(faults)
    for key in table:
        if key not in fields:
            faults.append(unknown_key(prefix + str(key), str(key), list(fields)))
    for name in fields:
        if name in table:
            told = len(faults)
            found[name] = convert(hints[name], table[name], prefix + name, base, faults)
            faults[told:] = [fault + fields[name].metadata.get("note", "") for fault in faults[told:]]
        elif name in required(kind):
            faults.append(f"{prefix}{name} is missing: {said(hints[name])}")
    if len(faults) > before:
        return None
    try:
        return kind(**found)
    except UsageError as error:
        faults.append(f"{prefix[:-1]}: {error}" if prefix else str(error))
        return None


@cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """Field -> what its annotation says."""
    return types.MappingProxyType(get_type_hints(kind))


def unknown_key(address: str, key: str, known: list[str]) -> str:
    from difflib import get_close_matches  # for an error only

    near = " or ".join(get_close_matches(key, known, 2))
    return f"{address} is no setting" + (f", did you mean {near}?" if near else f"; there are: {', '.join(known)}")


def convert(hint: Any, value: Any, address: str, base: Path, faults: list[str]) -> Any:
    """One value as what its annotation says, or a fault."""
    if get_origin(hint) in (Union, types.UnionType):
        options = [h for h in get_args(hint) if h is not type(None)]
        return convert(nearest(options, value), value, address, base, faults)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(hint, value, address + ".", base, faults)  # type: ignore[arg-type]
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        item = get_args(hint)[0]
        return tuple(convert(item, v, f"{address}[{i}]", base, faults) for i, v in enumerate(value))
    if get_origin(hint) in (dict, Mapping) and isinstance(value, Mapping):
        item = get_args(hint)[1]
        return {k: v if item is Any else convert(item, v, f"{address}.{k}", base, faults) for k, v in value.items()}
    if hint is Any:
        return value
    if hint is Path and isinstance(value, (str, Path)) and is_path(value):
        return base / value
    if hint is float and type(value) in (int, float) and (type(value) is float or abs(value) < 2**1000):
        return float(value)
    if hint is int and type(value) is int and abs(value) >= WIDEST:
        faults.append(f"{address} = {value!r:.200}: expected a whole number of 64 bits")
        return None
    if hint in (str, int, bool) and type(value) is hint:
        return value
    faults.append(f"{address} = {value!r:.200}: expected {said(hint)}")
    return None


def is_path(value: str | Path) -> bool:
    """Says whether a file system can be asked for this: no NUL, and no name longer than 255 bytes."""
    text = str(value)
    return (
        "\0" not in text and len(os.fsencode(text)) < 4096 and all(len(os.fsencode(n)) < 256 for n in text.split("/"))
    )


def nearest(options: list[Any], value: Any) -> Any:
    """The kind of table, among several, whose required keys are there, or that has most of these keys; of plain values
    the one that this is."""
    if isinstance(value, str) and str in options:
        return str
    tables = [o for o in options if dataclasses.is_dataclass(o)]
    if len(tables) < 2 or not isinstance(value, Mapping):
        return options[0]
    return max(tables, key=lambda kind: (required(kind) <= {*value}, sum(f.name in value for f in fields_of(kind))))


def required(kind: Any) -> set[str]:
    missing = dataclasses.MISSING
    return {f.name for f in fields_of(kind) if f.default is missing and f.default_factory is missing}


def fields_of(kind: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(kind) if f.init]


def said(hint: Any) -> str:
    """An annotation in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(said(h) for h in get_args(hint) if h is not type(None)))
    if get_origin(hint) is tuple:
        return f"a list of {said(get_args(hint)[0]).removeprefix('a ')}s"
    if dataclasses.is_dataclass(hint) or get_origin(hint) in (dict, Mapping):
        return "a table"
    return NAMES.get(hint, str(hint))


def assigned(texts: Iterable[str]) -> dict[str, Any]:
    """The table that assignments on a command line make; `a.b=1` is in the table `a`."""
    found: dict[str, Any] = {}
    for text in texts:
        key, value = parse_assignment(text)
        *tables, last = key.split(".")
        at = found
        for table in tables:
            at = at.setdefault(table, {})
            if not isinstance(at, dict):
                raise UsageError(f"--set {text}: {table} is a value already")
        at[last] = value
    return found


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` of the command line; the value is read as TOML, or taken as text."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UsageError(f"--set {text}: expected key=value")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip()
