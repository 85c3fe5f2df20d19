"""`auscult mask-key FILE`: a device's own key for secret sums, which then nobody else has ever had."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = "draw a key for secret sums on the device that is to have it, and print its public half"


def add_mask_key(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("mask-key", help=WORDS, description=WORDS, parents=parents)
    command.add_argument("file", type=Path, help="for the private key; it must not be there yet")
    command.set_defaults(do=do_mask_key)


def do_mask_key(options: argparse.Namespace) -> None:
    from edge_sdk.errors import UsageError
    from edge_sdk.nodes.secrets.mask_keys import make_key

    if options.file.exists():
        raise UsageError(f"{options.file}: is there already; what was masked with it could not be opened with another")
    print(make_key(options.file))
