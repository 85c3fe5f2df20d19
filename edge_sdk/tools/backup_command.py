"""`auscult backup` and `auscult restore`: a node's folder in one file, and back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BACK_UP = "write a node's folder into one file, while the node runs or not"
RESTORE = "put a backup into an empty folder, after everything in it was checked"


def add_backup(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add both commands."""
    command = commands.add_parser("backup", help=BACK_UP, description=BACK_UP, parents=parents)
    command.add_argument("folder", type=Path, help="directory of a device, a hospital or the aggregator")
    command.add_argument("file", type=Path, help="to be written; it holds personal models: keep it as safe as them")
    command.set_defaults(do=do_backup)
    command = commands.add_parser("restore", help=RESTORE, description=RESTORE, parents=parents)
    command.add_argument("file", type=Path)
    command.add_argument("folder", type=Path, help="empty, or not there yet")
    command.set_defaults(do=do_restore)


def do_backup(options: argparse.Namespace) -> None:
    from edge_sdk.tools.backup import back_up

    manifest = back_up(options.folder, options.file)
    size = sum(member.size for member in manifest.members)
    print(f"{options.file}: {len(manifest.members)} files of {options.folder}, {size / 1e6:.1f} MB")


def do_restore(options: argparse.Namespace) -> None:
    from edge_sdk.tools.restore import restore

    manifest = restore(options.file, options.folder)
    print(f"{options.folder}: {len(manifest.members)} files of {manifest.node} as it was at {manifest.made}")
    print("it goes on from there as another disk: its peers ask it anew, and what it did since is not counted twice")
    print("never start it beside the node that it is a copy of: both have one name")
