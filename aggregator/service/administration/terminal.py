"""Who types a command on the service's own machine, as the audit log names them.

All of these commands bring one token, that of the service, so the command says who it is and not the token. Whoever
can read that token may give any name, so for the rule of two people all who come with it are one.
"""

from __future__ import annotations

import getpass
import os

from aggregator.service.database.audit import SERVICE
from edge_sdk.contract.run import ID

HEADER = "x-auscult-user"
"""Of a request that a command on the service's machine makes: the user of the system who has typed it."""
SIGN = " (terminal)"
LONGEST = 64 - len(SIGN)  # characters that the tables take


def find_user() -> str:
    """User of the system who has typed this command; behind sudo the one who has called that."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = f"uid-{os.getuid()}"
    return user


def name_user(user: str) -> str:
    """Name in the audit log of somebody at the terminal; that of the service where what is said is no name."""
    return f"{user[:LONGEST]}{SIGN}" if ID.fullmatch(user) else SERVICE


def are_one(one: str, other: str) -> bool:
    """Two names in the audit log may be one person: they are the same, or both are of this machine's terminal."""
    return one == other or (is_at_terminal(one) and is_at_terminal(other))


def is_at_terminal(name: str) -> bool:
    """A command on the service's machine, also of a version that did not say whose."""
    return name == SERVICE or name.endswith(SIGN)
