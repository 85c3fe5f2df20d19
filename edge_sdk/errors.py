"""Two kinds of mistake, kept apart.

`UsageError`: the caller's. Raised before anything starts; names the thing, the value and what would have been right.
`PeerError`: a peer sent something bad. The node logs one line, counts it and goes on.
"""

from __future__ import annotations


def say_reason(error: Exception) -> str:
    """Why something could not be reached or opened, in the system's words: "Connection refused", without a number or
    the error inside of the error of a URL."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


class AuscultError(Exception):
    """Base of everything that this package raises on purpose."""


class UsageError(AuscultError):
    """The caller's mistake: a setting, a file or an argument that cannot be used as it is."""


class EncodeError(UsageError):
    """A message that cannot be written as bytes: it is not as it was declared. The text ends with the address."""


class PeerError(AuscultError):
    """A message that cannot be used as it is. Costs that message and nothing else."""


class Cancelled(AuscultError):
    """Work was given up because a newer question has come or the node is stopping. The state is the old one."""
