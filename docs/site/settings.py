"""The page of all settings: keys of the services' files, and of the methods."""

from __future__ import annotations

import re
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from aggregator.service.administration.settings_file import FleetFile
from edge_sdk.contract.search import flattened
from edge_sdk.methods import METHODS
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile

FILES = {"device": DeviceFile, "hospital": HospitalFile, "aggregator": AggregatorFile, "serve": FleetFile}
"""Command -> what its settings file holds."""
NAMES = {str: "text", Path: "path", int: "whole number", float: "number", bool: "true or false", Any: "anything"}
HEAD = """# Settings

For whoever writes a settings file. Every key of the TOML files of the services, and every setting of the methods, as
the code has them. [Operate](operate.md) and [Methods](methods.md) say which to choose. A key in bold must be there;
paths are relative to the file.
"""
ITEM = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {6,}.*)*)", re.MULTILINE)


def settings_page() -> str:
    """A heading for each file and each method."""
    parts = [HEAD, "## Files\n"]
    shown: set[type] = set()
    for command, kind in FILES.items():
        parts += [f"### auscult {command}\n", *tables(kind, "", shown)]
    parts.append(
        "## Methods\n\nThey stand in `[run.settings]` of an aggregator's file, and after `--set` of a command.\n"
    )
    for name, method in METHODS.items():
        parts += [f"### {name}\n", *method_table(method)]
    return "\n".join(parts)


def tables(kind: type, above: str, shown: set[type]) -> list[str]:
    """The table of one settings class, and those of the tables in it that were not shown yet."""
    hints, about = get_type_hints(kind), descriptions(kind)
    rows, below = ["| key | what may stand there | default | what it is |", "|---|---|---|---|"], []
    for one in fields(kind):
        hint = hints[one.name]
        key = f"**`{one.name}`**" if is_required(one) else f"`{one.name}`"
        rows.append(f"| {key} | {type_name(hint)} | {default_of(one)} | {about.get(one.name, '')} |")
        below += [(one.name, each) for each in inner(hint) if is_dataclass(each) and each not in shown]
    found = ["\n".join(rows), ""]
    for name, each in below:
        if each not in shown:
            shown.add(each)
            found += [f"`[{above}{name}]`, a table ({each.__name__}):\n", *tables(each, f"{above}{name}.", shown)]
    return found


def method_table(method: Any) -> list[str]:
    """Default, the paper's value and the recommended one of each setting."""
    settings = method.settings()
    about = descriptions(type(settings))
    rows = ["| setting | default | paper | recommended | what it is |", "|---|---|---|---|---|"]
    paper, recommended = flattened(method.paper), flattened(method.recommended)
    for one in fields(settings):
        value = getattr(settings, one.name)
        keys = [f"{one.name}.{f.name}" for f in fields(value)] if is_dataclass(value) else [one.name]
        for key in keys:
            default = value if key == one.name else getattr(value, key.partition(".")[2])
            others = [f"`{found[key]}`" if key in found else "" for found in (paper, recommended)]
            default = str(default).lower() if isinstance(default, bool) else default
            rows.append(f"| `{key}` | `{default}` | {' | '.join(others)} | {about.get(one.name, '')} |")
    return ["\n".join(rows), ""] if len(rows) > 2 else ["It has none.\n"]


def descriptions(kind: type) -> dict[str, str]:
    """Field -> what the docstrings of its class, and of those that it is made of, say of it."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        text = re.sub(r"^ {4}", "", each.__doc__ or "", flags=re.MULTILINE)
        for names, words in ITEM.findall(text):
            found |= {name: " ".join(words.split()).replace("|", "\\|") for name in names.split(", ")}
    return found


def type_name(hint: Any) -> str:
    """What may stand in TOML for a type."""
    if hint in NAMES:
        return NAMES[hint]
    arguments = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_name, arguments)))
    if get_origin(hint) is dict:
        return f"table: name = {type_name(arguments[1])}"
    if get_origin(hint) in (tuple, list):
        return f"list of {type_name(arguments[0])}s".replace("anythings", "anything")
    return "table" if is_dataclass(hint) else getattr(hint, "__name__", str(hint))


def inner(hint: Any) -> list[Any]:
    """The types that a type is made of, itself among them."""
    return [hint, *(each for argument in get_args(hint) for each in inner(argument))]


def is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def default_of(one: Field[Any]) -> str:
    """The default as TOML has it; "": there is none, or it is a table of defaults."""
    if is_required(one) or one.default is None:
        return ""
    value = one.default if one.default is not MISSING else one.default_factory()  # type: ignore[misc]
    if is_dataclass(value) or value in ({}, ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value!r}`".replace("'", '"')
