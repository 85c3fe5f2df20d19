"""The operator's key, with which the service signs runs and models. It never leaves the service's directory.

signing.key   the private key, PEM, for its owner alone
trusted.pem   the public one: what a hospital's and a device's `trusted_key` names
signed        number of what was signed last; each number is above the one before
"""

from __future__ import annotations

from pathlib import Path

from edge_sdk.atomic import close_to_others, replace_file
from edge_sdk.nodes.policy.trust import NUMBER_FILE, draw_number
from edge_sdk.wire.signatures import Signer, make_private_key

PRIVATE_FILE, PUBLIC_FILE = "signing.key", "trusted.pem"


def load_signer(directory: Path) -> Signer:
    """The operator's key, which is made when it is first wanted.

    Raises:
        UsageError: the file is no such key, or the package cryptography is missing.
    """
    path = directory / PRIVATE_FILE
    if not path.exists():
        with replace_file(path, lasting=True) as file:
            file.write(make_private_key())
    close_to_others(path)
    return Signer(path.read_bytes())


def public_key_pem(directory: Path) -> bytes:
    """The public half, PEM, which is kept beside the private one for people to hand out. Errors as `load_signer`."""
    pem, path = load_signer(directory).public_pem, directory / PUBLIC_FILE
    if not path.exists() or path.read_bytes() != pem:
        with replace_file(path) as file:
            file.write(pem)
    return pem


def next_number(directory: Path) -> int:
    """The number of the next thing to be signed."""
    return draw_number(directory / NUMBER_FILE)
