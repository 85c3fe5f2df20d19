"""Mappings and sets that a state takes one entry from, or gives one, with each of thousands of answers.

States are values: a call makes a new one and leaves the old one as it is. To copy a table of 10,000 children for each
of their answers costs more than all the rest of an answer. Here the versions of a table share what they have in common,
and a version is made in constant time; only who goes on from a version that others have gone on from already, makes a
copy. Of few entries copies are plain dicts and frozensets, which are faster then. A version may be read in one thread
while another thread goes on from it: what is shared only grows, and is listed at once before anybody walks through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

MANY = 256
"""Entries from which on versions share them."""
V = TypeVar("V")
Places = dict[str, int]
"""Name -> how many were there before it."""


def without(table: Mapping[str, V], name: str) -> Mapping[str, V]:
    """The table without one of its entries.

    Raises:
        KeyError: it has no such entry.
    """
    if isinstance(table, Shrinking):
        return table.without(name)
    if len(table) >= MANY:
        return Shrinking(dict(table), {}, 0).without(name)
    found = dict(table)
    del found[name]
    return found


def copied(table: Mapping[str, V]) -> dict[str, V]:
    """A plain table with the same entries."""
    return table.copied() if isinstance(table, Shrinking) else dict(table)


def with_entry(table: Mapping[str, V], name: str, value: V) -> Mapping[str, V]:
    """The table with one more entry, or with another value for one that it has."""
    if isinstance(table, Growing) and name not in table:
        return table.with_entry(name, value)
    if len(table) >= MANY and name not in table:
        return Growing({key: (at, some) for at, (key, some) in enumerate(table.items())}, len(table)).with_entry(
            name, value
        )
    return {**table, name: value}


def with_name(names: Set[str], name: str) -> Set[str]:
    """The names and one more."""
    if name in names:
        return names
    if isinstance(names, Names):
        return names.with_name(name)
    if len(names) >= MANY:
        return Names({each: at for at, each in enumerate(names)}, len(names)).with_name(name)
    return frozenset(names) | {name}


class Shrinking(Mapping[str, V]):
    """A version of a table from which entries are taken.

    Args:
        all: the table that the first version was; not changed any more.
        taken: in the order in which they were taken; shared with later versions, which add to it.
        count: how many of these this version is without.
    """

    __slots__ = ("all", "count", "taken")

    def __init__(self, all: Mapping[str, V], taken: Places, count: int) -> None:
        self.all, self.taken, self.count = all, taken, count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.all and self.taken.get(name, self.count) >= self.count

    def __getitem__(self, name: str) -> V:
        if self.taken.get(name, self.count) < self.count:
            raise KeyError(name)
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.all if self.taken.get(name, self.count) >= self.count)

    def __len__(self) -> int:
        return len(self.all) - self.count

    def __repr__(self) -> str:
        return repr(dict(self))

    def copied(self) -> dict[str, V]:
        """A plain table of this version."""
        found = dict(self.all)
        for name in list(self.taken)[: self.count]:
            del found[name]
        return found

    def without(self, name: str) -> Shrinking[V]:
        if name not in self:
            raise KeyError(name)
        is_newest = len(self.taken) == self.count
        taken = self.taken if is_newest else dict(list(self.taken.items())[: self.count])
        taken[name] = self.count
        return Shrinking(self.all, taken, self.count + 1)


class Growing(Mapping[str, V]):
    """A version of a table to which entries are added.

    Args:
        entries: name -> how many were there before it, and its value; shared with later versions, which add to it.
        count: how many of these this version has.
    """

    __slots__ = ("count", "entries")

    def __init__(self, entries: dict[str, tuple[int, V]], count: int) -> None:
        self.entries, self.count = entries, count

    def __getitem__(self, name: str) -> V:
        at, value = self.entries[name]
        if at >= self.count:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.entries)[: self.count])

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return repr(dict(self))

    def with_entry(self, name: str, value: V) -> Growing[V]:
        """With an entry that it has not."""
        is_newest = len(self.entries) == self.count
        entries = self.entries if is_newest else dict(list(self.entries.items())[: self.count])
        entries[name] = (self.count, value)
        return Growing(entries, self.count + 1)


class Names(Set[str]):
    """A version of a set to which names are added.

    Args:
        places: shared with later versions, which add to it.
        count: how many of these this version has.
    """

    __slots__ = ("count", "places")

    def __init__(self, places: Places, count: int) -> None:
        self.places, self.count = places, count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.places.get(name, self.count) < self.count

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.places)[: self.count])

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return repr(frozenset(self))

    @classmethod
    def _from_iterable(cls, names: Iterable[Any]) -> Any:
        """What set operators give: a plain set."""
        return frozenset(names)

    def with_name(self, name: str) -> Names:
        """With a name that it has not."""
        is_newest = len(self.places) == self.count
        places = self.places if is_newest else dict(list(self.places.items())[: self.count])
        places[name] = self.count
        return Names(places, self.count + 1)
