"""`auscult plugins`: what other packages bring along."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.plugins import HOMES, entries_of, torn_lists

WORDS = "see which methods, networks, readers, sensors and tasks other packages bring, and whether they work"


def add_plugins(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("plugins", help=WORDS, description=WORDS, parents=parents)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(do=do_plugins)


def do_plugins(options: argparse.Namespace) -> int:
    """Prints a line for each, and returns 1 if one cannot be used."""
    found = list(list_plugins())
    if options.json:
        print(json.dumps(found, indent=1))
    elif not found:
        print("no other package brings anything along (docs/plugins.md says how one does)")
    for one in () if options.json else found:
        of = f"{one['place']} of {one['package']} {one['version']}".rstrip()
        print(f"{one['kind']} {one['name']}, {of}: works" if not one["fault"] else f"cannot be used: {one['fault']}")
    return int(any(one["fault"] for one in found))


def list_plugins() -> Iterator[dict[str, str]]:
    """Kind, name, place, package and version of each plug-in, and why it cannot be used ("": it can)."""
    for kind in HOMES:
        for name, entries in entries_of(kind).items():
            fault = fault_of(kind, name)
            for entry in entries:
                of = {"package": "", "version": ""}
                if entry.dist is not None:
                    of = {"package": entry.dist.name, "version": entry.dist.version}
                yield {"kind": kind, "name": name, "place": entry.value, **of, "fault": fault}
    for package, fault in torn_lists().items():
        yield {"kind": "package", "name": package, "place": "", "package": package, "version": "", "fault": fault}


def fault_of(kind: str, name: str) -> str:
    """Why a plug-in cannot be used; "": it can."""
    try:
        home = importlib.import_module(HOMES[kind])
    except ModuleNotFoundError as error:
        return f"{kind} {name}: {error.name} is missing here: pip install 'auscult[replay]'"
    try:
        home.PLUGINS.load(name)
    except UsageError as error:
        return str(error)
    return ""
