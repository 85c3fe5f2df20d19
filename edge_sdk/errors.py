"""Two kinds of mistake, kept apart.

`UsageError`: the caller's. Raised before anything starts; names the thing, the value and what would have been right.
`PeerError`: a peer sent something bad. The node logs one line, counts it and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable


def say_reason(error: Exception) -> str:
    """Why something could not be reached or opened, in the system's words: "Connection refused", without a number or
    the error inside of the error of a URL."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


def nearest(word: str, known: Iterable[str]) -> str:
    """The word that was perhaps meant, as the end of a sentence; "": none is near."""
    from difflib import get_close_matches  # for an error only

    found = get_close_matches(word, list(known), 1)
    return f"; perhaps {found[0]}" if found else ""


def say_failure(error: Exception, function: object) -> str:
    """What a function of somebody else has raised, and where in its file, for people."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    at, lines = error.__traceback__, list[int]()
    while at is not None:
        lines += [at.tb_lineno] if at.tb_frame.f_code.co_filename == file else []
        at = at.tb_next
    return f"{type(error).__name__}: {error}{f' ({file}, line {lines[-1]})' if lines else ''}"


class AuscultError(Exception):
    """Base of everything that this package raises on purpose.

    >>> issubclass(UsageError, AuscultError), issubclass(PeerError, AuscultError)
    (True, True)
    """


class UsageError(AuscultError):
    """The caller's mistake: a setting, a file or an argument that cannot be used as it is.

    >>> from edge_sdk import TrainingBudget
    >>> try:
    ...     TrainingBudget(min_battery=70.0)
    ... except UsageError as error:
    ...     print(error)
    min_battery = 70.0: a share, from 0 to 1
    """


class SamplesMissing(UsageError):
    """A device's samples are too few for a run as yet: with so many more (`missing`, from 1 up), which have a label
    where the run needs labels, the device takes part by itself. `told`: the reason as its hospital hears it."""

    def __init__(self, why: str, missing: int, told: str):
        super().__init__(why)
        self.missing, self.told = missing, told


class EncodeError(UsageError):
    """A message that cannot be written as bytes: it is not as it was declared. The text ends with the address."""


class PeerError(AuscultError):
    """A message that cannot be used as it is. Costs that message and nothing else.

    >>> from edge_sdk.wire.codec.codec import Codec
    >>> try:
    ...     Codec([]).decode(b"")
    ... except PeerError as error:
    ...     print("one message less")
    one message less
    """


class Cancelled(AuscultError):
    """Work was given up because a newer question has come or the node is stopping. The state is the old one."""
