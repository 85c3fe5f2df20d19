"""What a node trusts: its operator's key, and the number of the latest that it has taken with that key's signature.

With a trusted key a node takes no run that its operator's aggregator has not signed, whoever hands it out, and none
that is older than the latest that it has taken. A node without one takes what its parent offers.

    trust.json   fingerprint of a key -> number of the latest that was taken
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError

if TYPE_CHECKING:
    from edge_sdk.wire.signatures import Verifier

TRUST_FILE, NUMBER_FILE = "trust.json", "signed"


class Trust:
    """Whom a node trusts.

    Args:
        key: PEM file with the operator's public key; None: nothing is checked.
        directory: the node's, where it notes what it has taken.

    Raises:
        UsageError: the file cannot be used, or the package cryptography is missing.
    """

    def __init__(self, key: str | Path | None, directory: Path):
        self.path = directory / TRUST_FILE
        self.verifier = None if key is None else make_verifier(key)

    def check_run(self, run: Run) -> None:
        """Take a run, or raise SignatureError: it is unsigned, foreign, changed or old."""
        if self.verifier is not None:
            from edge_sdk.wire.signatures import check_run

            self.note(f"run {run.id}", check_run(run, self.verifier))

    def check_model(self, what: str, table: Mapping[str, Any], signed: Mapping[str, Any]) -> None:
        """Take what is said of a model, or raise SignatureError. Without a key everything is taken."""
        if self.verifier is not None:
            from edge_sdk.wire.signatures import state_model

            number = signed.get("number", 0)
            self.verifier.check(what, state_model(table, number if type(number) is int else 0), signed)

    def note(self, what: str, number: int) -> None:
        """Note a number, unless a later one was taken.

        Raises:
            SignatureError: one was.
        """
        from edge_sdk.wire.signatures import SignatureError

        assert self.verifier is not None
        numbers = self.read_numbers()
        latest = numbers.get(self.verifier.fingerprint, 0)
        if number < latest:
            raise SignatureError(f"{what} is an old one: it was signed as number {number}, taken was {latest} already")
        if number > latest:
            make_private_directory(self.path.parent)
            write_text(self.path, json.dumps({**numbers, self.verifier.fingerprint: number}) + "\n", lasting=True)

    def read_numbers(self) -> dict[str, int]:
        """What was noted.

        Raises:
            UsageError: the file is damaged.
        """
        if not self.path.exists():
            return {}
        try:
            found = json.loads(self.path.read_text())
            return {str(key): int(number) for key, number in found.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self.path}: is damaged ({error}); while it is there, no run is taken. Remove it to begin anew"
            ) from None


def make_verifier(key: str | Path) -> Verifier:
    """What checks signatures by the public key in a file."""
    from edge_sdk.wire.signatures import Verifier  # with an operator's key only

    return Verifier(read_key_file(Path(key), "trusted_key"))


def read_key_file(path: Path, what: str) -> bytes:
    """The content of a key's file. Raises UsageError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} = {str(path)!r}: cannot be read: {error.strerror}") from None


def draw_number(path: Path) -> int:
    """The next number: milliseconds since 1970, or one more than the last where the clock has not moved on."""
    try:
        last = int(path.read_text())
    except (FileNotFoundError, ValueError):
        last = 0
    number = max(time.time_ns() // 1_000_000, last + 1)
    write_text(path, f"{number}\n", lasting=True)
    return number


def signed_by(run: Run, key: Path | None, directory: Path) -> Run:
    """The run as its aggregator signs it; without a key as it is.

    Args:
        directory: the aggregator's, which notes the number.
    """
    from edge_sdk.wire.signatures import Signer, sign_run

    if key is None:
        return run
    make_private_directory(directory)
    return sign_run(run, Signer(read_key_file(key, "signing_key")), draw_number(directory / NUMBER_FILE))
