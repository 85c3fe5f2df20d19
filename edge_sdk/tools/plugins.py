"""`auscult plugins`: what other packages bring along."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

WORDS = "see which methods other packages bring along, and whether they can be used"


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
        print("no other package brings a method along (docs/python.md says how one does)")
    for one in () if options.json else found:
        print(f"method {one['name']}: {one['place']}, of {one['package']} {one['version']}; {one['fault'] or 'works'}")
    return int(any(one["fault"] for one in found))


def list_plugins() -> Iterator[dict[str, str]]:
    """Name, place, package and version of each method of another package, and why it cannot be used ("": it can)."""
    from edge_sdk.methods import METHODS

    for name, entry in METHODS.plugins.items():
        of = entry.dist
        told = {"package": "", "version": ""} if of is None else {"package": of.name, "version": of.version}
        try:
            METHODS[name]
            fault = ""
        except Exception as error:  # whatever a module of other people's raises
            fault = f"cannot be used: {error}"
        yield {"name": name, "place": entry.value, **told, "fault": fault}
