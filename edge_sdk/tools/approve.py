"""`auscult approve`: a person decides about runs, on the machine of the hospital or device that is asked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = "see which runs this node was offered, and approve or deny one of them by hand"


def add_approve(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("approve", help=WORDS, description=WORDS, parents=parents)
    command.add_argument("folder", type=Path, help="directory of the hospital or device")
    command.add_argument("run", nargs="?", help="its name; without one, all are listed")
    command.add_argument("--deny", action="store_true", help="the run does not take place here")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(do=do_approve)


def do_approve(options: argparse.Namespace) -> None:
    from edge_sdk.errors import UsageError
    from edge_sdk.nodes.policy.approvals import decide, list_asked, list_folders

    if not options.folder.is_dir():
        raise UsageError(f"{options.folder}: there is no such folder; name that of a hospital or a device")
    if options.run is None:
        asked = [about for folder in list_folders(options.folder) for about in list_asked(folder)]
        print(json.dumps(asked, indent=1) if options.json else "\n".join(map(to_line, asked)) or "no run was offered")
        return
    about = decide(find_folder(options.folder, options.run), options.run, not options.deny)
    said = "denied" if options.deny else "approved"
    print(json.dumps(about, indent=1) if options.json else f"{said}: {about['id']}, method {about['method']}")


def find_folder(folder: Path, run: str) -> Path:
    """Folder of the lane in which a node was offered a run of this name; its own, where it was offered none."""
    from edge_sdk.nodes.policy.approvals import list_asked, list_folders

    lanes = reversed(list_folders(folder))
    return next((lane for lane in lanes if any(about["id"] == run for about in list_asked(lane))), folder)


def to_line(about: dict[str, Any]) -> str:
    """A run that was offered, for a person."""
    tables = [f"{name} {json.dumps(about[name])}" for name in ("settings", "settle", "robust") if about.get(name)]
    said = {None: about["why"] or "begins by itself", True: "approved", False: "denied"}[about.get("decision")]
    parts = [f"{about['method']}, {about['rounds']} rounds, bundle {about['bundle'][:12]}", *tables]
    return f"{about['id']}: {'; '.join(parts)} ({said})"
