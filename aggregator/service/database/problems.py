"""Why something that somebody asks for is not done: it is not there, or is not possible now."""

from __future__ import annotations

from edge_sdk.errors import UsageError


class NotPossibleError(UsageError):
    """A change that is not possible from where a run, or another thing, stands."""


class NotFoundError(NotPossibleError):
    """A run, or another thing that was named, which is not there."""
