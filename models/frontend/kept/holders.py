"""What holds values in Python and lets them be replaced: tables, lists, objects, classes, globals, variables around."""

from __future__ import annotations

import io
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

Items = dict[Any, Any]
NUMBERS = (bool, int, float, complex)
ARRAYS = (torch.Tensor, np.ndarray)
SEQUENCES = (list, deque)
CONTAINERS = (dict, list, deque, set, tuple)
PLAIN = (OrderedDict, *CONTAINERS)
NOT_THEIRS = {"torch", "numpy", "builtins", "edge_sdk", *sys.stdlib_module_names} - {"__main__", "test"}


@dataclass(frozen=True)
class Storage:
    """Something that has items, and lets them be replaced; `write` is None for what never changes."""

    read: Callable[[], Items]
    write: Callable[[Items], None] | None = None


class Attributes(MutableMapping[str, Any]):
    """The own attributes of a class or a function as a table."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __getitem__(self, name: str) -> Any:
        return vars(self.owner)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter([n for n in vars(self.owner) if not n.startswith("__")])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Cells(MutableMapping[str, Any]):
    """The variables around a function as a table."""

    def __init__(self, cells: Mapping[str, types.CellType]) -> None:
        self.cells = cells

    def __getitem__(self, name: str) -> Any:
        return self.cells[name].cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self.cells[name].cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self.cells[name].cell_contents

    def __iter__(self) -> Iterator[str]:
        return iter([n for n, c in self.cells.items() if is_filled(c)])

    def __len__(self) -> int:
        return len(list(iter(self)))


def make_names(table: MutableMapping[str, Any], names: Collection[str] | None = None) -> Storage:
    """Entries of a table that state may be in, or that lead to it."""

    def read() -> Items:
        there = [n for n in table if names is None or n in names]
        return {n: table[n] for n in there if is_kept(table[n])}

    def write(items: Items) -> None:
        now = read()
        for name in [n for n in now if n not in items]:
            del table[name]
        for name, value in items.items():
            if name not in now or now[name] is not value:
                table[name] = value

    return Storage(read, write)


def make_holder(value: Any) -> Storage:
    """The items of a container or an object, by their keys or places."""
    if isinstance(value, CONTAINERS):
        return hold_container(value, find_plain(value))
    slots = {
        name: slot
        for base in type(value).__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType)
    }

    def read() -> Items:  # by the slots themselves: an object's own __getattr__ may do anything
        return {**getattr(value, "__dict__", {}), **read_slots(value, slots)}

    def write(items: Items) -> None:
        for name in [n for n in getattr(value, "__dict__", {}) if n not in items]:
            del vars(value)[name]
        for name, item in items.items():
            if read().get(name, write) is not item:
                object.__setattr__(value, name, item)

    return Storage(read, write)


def find_plain(value: Any) -> Any:
    """The class of Python's own that a container is of: a subclass may make something at each reading."""
    return next(kind for kind in PLAIN if isinstance(value, kind))


def hold_container(value: Any, kind: Any) -> Storage:
    """The items of a container as its plain class has them, by their keys or places."""
    if isinstance(value, dict):
        return Storage(lambda: dict(kind.items(value)), partial(replace_all, value))
    if isinstance(value, tuple):
        return Storage(lambda: dict(enumerate(kind.__iter__(value))))
    add = kind.update if kind is set else kind.extend
    return Storage(lambda: dict(enumerate(kind.__iter__(value))), partial(refill, value, kind, add))


def count_items(value: Any) -> int:
    """The number of items of a container."""
    return int(find_plain(value).__len__(value))


def refill(value: Any, kind: Any, add: Callable[[Any, Any], None], items: Items) -> None:
    """Give a container these items and no others."""
    kind.clear(value)
    add(value, items.values())


def read_slots(value: Any, slots: Mapping[str, types.MemberDescriptorType]) -> Items:
    """The slots of an object that are filled."""
    found = Items()
    for name, slot in slots.items():
        with suppress(AttributeError):
            found[name] = slot.__get__(value)
    return found


def replace_all(table: Items, items: Items) -> None:
    """Give a table these items and no others."""
    kind = find_plain(table)
    kind.clear(table)
    for key, value in items.items():
        kind.__setitem__(table, key, value)


def package_of(value: Any) -> str:
    """The package of a class or a function, such as "torch"."""
    return str(getattr(value, "__module__", "builtins") or "builtins").partition(".")[0]


def is_theirs(value: Any) -> bool:
    """True for a class or function of the module's author or of a library of networks."""
    return package_of(value) not in NOT_THEIRS


def is_kept(value: Any) -> bool:
    """True for a value that state may be in, or that leads to it."""
    if isinstance(value, (*NUMBERS, *ARRAYS, *CONTAINERS, str, bytes, type(None), types.SimpleNamespace)):
        return True
    if isinstance(value, (types.FunctionType, type)):
        return is_theirs(value)
    if isinstance(value, (types.MethodType, partial)):
        return True
    return is_iterator(value) or (is_theirs(type(value)) and not isinstance(value, nn.Module))


def is_iterator(value: Any) -> bool:
    """True for what gives something else each time that it is asked, like itertools.count(); not for files."""
    return isinstance(value, Iterator) and not isinstance(value, io.IOBase) and not isinstance(value, nn.Module)


def unwrap_functions(value: Any) -> list[types.FunctionType]:
    """The functions of an entry of a class."""
    parts = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    parts = [getattr(p, "__wrapped__", p) for p in parts] + parts
    return [p for p in parts if isinstance(p, types.FunctionType)]


def is_filled(cell: types.CellType) -> bool:
    """True for a variable around a function that has a value."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
