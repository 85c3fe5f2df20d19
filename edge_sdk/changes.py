"""A frozen record with some fields changed, for the core, which does this a dozen times per message."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def changed(record: T, /, **changes: Any) -> T:
    """As `dataclasses.replace` does it, in a tenth of its time. Only for classes without slots and `__post_init__`."""
    new: T = object.__new__(type(record))
    new.__dict__.update(record.__dict__)
    new.__dict__.update(changes)
    return new
