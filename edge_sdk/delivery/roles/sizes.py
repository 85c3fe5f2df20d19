"""Sizes: how many devices there are behind each child of a node, where that changes while a run goes on.

Devices that come count at once. Devices that leave count until the question that was open when their hospital said so
is closed, and until the hospital has paid what it owed then: its answer may still have them in it, and a sum of more
devices than a hospital has is refused. So a run that is replayed with the same answers has the same numbers, and no
answer is lost for a change. What counts is saved, since a node that is started again hears its children's answers at
once, and of their numbers only when they come.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.run import ID
from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.store import Store

KEY = "sizes"


class Sizes:
    """Sizes of the children of one node's run.

    Args:
        given: child -> number of its devices, as the settings have it.

    Attributes:
        now: the same, as it counts; a new mapping after each change.
        told: child -> (number that it has said, number of the question that was the latest then).
        unsaved: `now` is not on the disk.
    """

    def __init__(self, store: Store, given: Mapping[str, int]):
        saved = {name: size for name, size in load_sizes(store).items() if name in given}
        self.store, self.now = store, given if not saved else {**given, **saved}
        self.told: dict[str, tuple[int, int]] = {}
        self.unsaved = False

    def note(self, child: str, size: int, question: int) -> None:
        """A child has said how many devices it has. `question`: number of this node's latest."""
        before = self.told.get(child, (self.now.get(child), 0))[0]
        if size != before:
            self.told[child] = size, question

    def apply(self, owed: Mapping[str, int], question: int, started: bool) -> None:
        """Let the numbers count that may by now.

        Args:
            owed: child -> question that it owes an answer to.
            question: number of the latest.
            started: this node's role has been started; before, nobody has been asked anything.
        """
        for child, (size, at) in list(self.told.items()):
            paid = not started or (question > at and owed.get(child, question) > at)
            if paid or size >= self.now.get(child, 0):
                del self.told[child]
                self.set({**self.now, child: size})

    def keep(self, given: Mapping[str, int]) -> None:
        """These are the children from now on: who stays keeps its number, and of the others nothing said counts."""
        self.told = {child: told for child, told in self.told.items() if child in given}
        self.set({child: self.now.get(child, size) for child, size in given.items()})

    def set(self, sizes: Mapping[str, int]) -> None:
        """Let these numbers count from now on."""
        if sizes != self.now:
            self.now, self.unsaved = sizes, True

    def save(self) -> None:
        """Save what counts; within a transaction."""
        if self.unsaved:
            self.store.put_value(KEY, msgpack.packb(dict(self.now)))
            self.unsaved = False


def load_sizes(store: Store) -> dict[str, int]:
    """Sizes as they were saved; none in a store of a run in which they have never changed.

    Raises:
        StoreDamaged: what was saved are no sizes.
    """
    saved = store.get_value(KEY)
    if saved is None:
        return {}
    try:
        found = msgpack.unpackb(saved)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise StoreDamaged(f"{store.path}: the sizes cannot be read ({e})") from None
    if type(found) is not dict or any(
        not isinstance(name, str) or not ID.fullmatch(name) or type(size) is not int or not 0 <= size < 2**53
        for name, size in found.items()
    ):
        raise StoreDamaged(f"{store.path}: the sizes are no table of names and numbers")
    return found
