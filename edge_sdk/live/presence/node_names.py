"""Names of a node and of those around it: each may become a topic, and each is another one."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.contract.run import RESERVED_NAMES, checked_name
from edge_sdk.errors import UsageError


def check_names(name: str, parent: str | None, children: Sequence[str], wait_for: int | None = None) -> None:
    """Raises UsageError for a name that cannot be used or that two of them have, or for more to wait for than these."""
    for each in (name, *([parent] if parent is not None else []), *children):
        checked_name(each, "name")
        if each in RESERVED_NAMES:
            raise UsageError(f"name = {each!r} has a meaning of its own; choose another")
    if len({name, parent, *children}) < 2 + len(children):
        raise UsageError(f"{name}, its parent and its children must have different names")
    if wait_for is not None and not 0 <= wait_for <= len(children):
        raise UsageError(f"wait_for = {wait_for}, there are {len(children)} children")
