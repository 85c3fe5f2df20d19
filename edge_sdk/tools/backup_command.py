"""`auscult backup` and `auscult restore`: a node's folder in one file, and back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BACK_UP = "write a node's folder into one file, while the node runs or not"
PLAIN = "it is not encrypted: keep it as safe as what it is of, or say --passphrase-file FILE"
ENCRYPTED = "it is encrypted: without its passphrase nobody can read it, you neither"
RESTORE = "put a backup into an empty folder, after everything in it was checked"


def add_backup(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("backup", help=BACK_UP, description=BACK_UP, parents=parents)
    command.add_argument("folder", type=Path, help="directory of a device, a hospital or the aggregator")
    command.add_argument("file", type=Path, help="to be written; it holds personal models: keep it as safe as them")
    add_passphrase(command, "encrypt it with the passphrase in the first line of this file")
    command.set_defaults(do=do_backup)


def add_restore(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("restore", help=RESTORE, description=RESTORE, parents=parents)
    command.add_argument("file", type=Path)
    command.add_argument("folder", type=Path, help="empty, or not there yet")
    add_passphrase(command, "of an encrypted backup: its passphrase is the first line of this file")
    command.set_defaults(do=do_restore)


def add_passphrase(command: argparse.ArgumentParser, words: str) -> None:
    command.add_argument("--passphrase-file", type=Path, metavar="FILE", help=words)


def do_backup(options: argparse.Namespace) -> None:
    from edge_sdk.tools.backups.backup import back_up
    from edge_sdk.tools.backups.sealed_file import read_passphrase

    passphrase = read_passphrase(options.passphrase_file)
    manifest = back_up(options.folder, options.file, passphrase)
    size = sum(member.size for member in manifest.members)
    print(f"{options.file}: {len(manifest.members)} files of {options.folder}, {size / 1e6:.1f} MB")
    print(ENCRYPTED if passphrase else PLAIN)


def do_restore(options: argparse.Namespace) -> None:
    from edge_sdk.tools.backups.restore import restore
    from edge_sdk.tools.backups.sealed_file import read_passphrase

    manifest = restore(options.file, options.folder, read_passphrase(options.passphrase_file))
    print(f"{options.folder}: {len(manifest.members)} files of {manifest.node} as it was at {manifest.made}")
    print("it goes on from there as another disk: its peers ask it anew, and what it did since is not counted twice")
    print("never start it beside the node that it is a copy of: both have one name")
