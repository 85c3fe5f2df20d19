"""The passphrase of an authority's key: from a file, from the environment, or from a person at a terminal."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from edge_sdk.errors import UsageError

VARIABLE = "AUSCULT_CA_PASSPHRASE"
SHORTEST = 8
SOURCES = f"--passphrase-file FILE, {VARIABLE} in the environment, or a terminal"


def read_passphrase(file: Path | None, new: bool) -> str:
    """The passphrase. `new`: it is chosen now, so a person types it twice, and a short one is refused.

    Raises:
        UsageError: nobody says it, or it cannot be used.
    """
    found = find_passphrase(file, new)
    if not found or "\n" in found or "\0" in found:
        raise UsageError("the passphrase is empty or has more than one line")
    if new and len(found) < SHORTEST:
        raise UsageError(f"the passphrase has {len(found)} characters, expected at least {SHORTEST}")
    return found


def find_passphrase(file: Path | None, new: bool) -> str:
    if file is not None:
        try:
            return file.read_text().rstrip("\n")
        except OSError as error:
            raise UsageError(f"--passphrase-file {file}: {error.strerror}") from None
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        without = " (or --no-passphrase, which leaves the key as plain text)" if new else ""
        raise UsageError(f"the authority's key has a passphrase; say it with {SOURCES}{without}")
    return ask(new)


def ask(new: bool) -> str:
    found = getpass.getpass("passphrase of the authority's key: ")
    if new and getpass.getpass("once more: ") != found:
        raise UsageError("the two passphrases differ")
    return found
