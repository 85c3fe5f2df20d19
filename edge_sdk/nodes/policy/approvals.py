"""What a person has said of runs, and what each has cost so far: files in a node's directory.

A decision is about a run as it was described then: its digest covers everything but how long is waited. So whoever
changes a run under the name of an approved one has to ask again.

    runs-asked.json      written by the node: runs that it was offered, and what became of that
    runs-decided.json    written by `auscult approve`: digest -> true or false
    runs-bytes.json      written by the node: digest -> bytes
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import as_decoded

ASKED, DECIDED, SPENT = "runs-asked.json", "runs-decided.json", "runs-bytes.json"
MOST = 100
"""Runs that are remembered in each file."""


def digest_of(run: Run) -> str:
    """sha256 of a run's description, without how long is waited in it, which may change while it goes on."""
    alike = replace(run, deadline=1.0, measured=False, quorum=0)
    return hashlib.sha256(msgpack.packb(as_decoded(alike))).hexdigest()


def read_table(path: Path) -> dict[str, Any]:
    """The table of a file; an empty one where there is no file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: is no table")
    return found


def write_table(path: Path, table: dict[str, Any]) -> None:
    """Write the latest MOST entries; half a file after a power cut would keep the node from every run."""
    write_text(path, json.dumps(dict(list(table.items())[-MOST:]), indent=1) + "\n", lasting=True)


def describe(run: Run) -> dict[str, Any]:
    """What a person should know of a run to decide about it."""
    tables = {name: getattr(run, name) for name in ("settings", "settle", "augment", "robust", "uploads", "privacy")}
    about = {"id": run.id, "method": run.method, "rounds": run.rounds, "bundle": run.bundle, "seed": run.seed}
    return about | {"classes": list(run.classes)} | {name: as_plain(table) for name, table in tables.items() if table}


def as_plain(table: Any) -> Any:
    """A table as JSON has it."""
    return json.loads(json.dumps(table, default=str))


def note_asked(directory: Path, run: Run, why: str) -> None:
    """Note that a run was offered. `why`: it may not begin; "": it may."""
    table, digest = read_table(directory / ASKED), digest_of(run)
    since = table.pop(digest, {}).get("since", time.time())
    table[digest] = {**describe(run), "why": why, "since": since}
    write_table(directory / ASKED, table)


def decide(directory: Path, id: str, approve: bool) -> dict[str, Any]:
    """Note what a person says of the latest run of a name, and return its description.

    Raises:
        UsageError: the node was offered no such run.
    """
    asked = read_table(directory / ASKED)
    found = [digest for digest, about in asked.items() if about.get("id") == id]
    if not found:
        names = sorted({str(about.get("id")) for about in asked.values()})
        raise UsageError(f"run {id!r} was not offered to this node; runs that were: {', '.join(names) or 'none'}")
    table = read_table(directory / DECIDED)
    table.pop(found[-1], None)
    write_table(directory / DECIDED, {**table, found[-1]: approve})
    about: dict[str, Any] = asked[found[-1]]
    return about


def list_folders(directory: Path) -> list[Path]:
    """A node's directory and the folders of its lanes: runs are offered and decided about in each."""
    return [directory, *sorted(path for path in directory.glob("lane-*") if path.is_dir())]


def list_asked(directory: Path) -> list[dict[str, Any]]:
    """Runs that a node was offered, each with what was decided about it: True, False, or None for nothing."""
    decided = read_table(directory / DECIDED)
    return [{**about, "decision": decided.get(digest)} for digest, about in read_table(directory / ASKED).items()]
