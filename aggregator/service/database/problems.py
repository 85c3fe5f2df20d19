"""Why something that somebody asks for is not done: it is not there, or is not possible now; and what the database says
when it does not answer."""

from __future__ import annotations

from edge_sdk.errors import AuscultError, UsageError


class NotPossibleError(UsageError):
    """A change that is not possible from where a run, or another thing, stands."""


class NotFoundError(NotPossibleError):
    """A run, or another thing that was named, which is not there."""


class DatabaseAwayError(AuscultError):
    """A database that does not answer now: nobody's mistake, so a service manager starts the service again."""


class ClaimedError(UsageError):
    """A database that another service works with."""


def say_cause(error: Exception) -> str:
    """The first line of what a database's driver has said, without the words of the library around it."""
    return (str(error.__cause__ or error).splitlines() or [type(error).__name__])[0]
