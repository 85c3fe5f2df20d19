"""What a module's code can reach in Python and may keep something in: attributes, containers, classes, globals.

A snapshot has all of it and can put it back, so that a module may be run again from the state that it was in.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_sdk.models.frontend.kept.holders import (
    ARRAYS,
    CONTAINERS,
    NOT_THEIRS,
    NUMBERS,
    Attributes,
    Cells,
    Items,
    Storage,
    count_items,
    is_filled,
    is_theirs,
    make_holder,
    make_names,
    package_of,
    replace_all,
    unwrap_functions,
)

Path = tuple[Any, ...]
"""What leads to a value: the place that it begins at, then keys."""
ELEMENTS = 1000
"""What is looked at of a container, from its beginning; of the rest only how much there is."""
TORCHS = {*vars(nn.Module())} - {"_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks"}
BESIDE = {"__init__", "__new__", "__repr__", "__str__", "__init_subclass__", "__class_getitem__", "__post_init__"}
BESIDE |= {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__copy__", "__del__"}
"""Methods that no call of a module runs."""


@dataclass(frozen=True)
class Origin:
    """The place where code finds something: `where`, the path of a module or "", and what it is called there."""

    where: str
    words: str


@dataclass
class Snapshot:
    """The Python state of a module at one moment.

    Attributes:
        values: path -> a number, a text, a copy of an array, the length of a container as `Length`, or an object.
        places: path -> where it is. setters: path -> what has it, and under which key.
        holders: path of a container -> it. items: what each holder had. arrays: each with a copy.
        functions: all that the module's code may call.
    """

    values: dict[Path, Any] = field(default_factory=dict)
    places: dict[Path, Origin] = field(default_factory=dict)
    setters: dict[Path, tuple[Storage, Any]] = field(default_factory=dict)
    holders: dict[Path, Storage] = field(default_factory=dict)
    items: list[tuple[Storage, Items]] = field(default_factory=list)
    arrays: list[tuple[Any, Any]] = field(default_factory=list)
    functions: dict[int, types.FunctionType] = field(default_factory=dict)

    def restore(self) -> None:
        """Put everything back as it was; of arrays, where they were copied, their numbers."""
        for holder, items in self.items:
            if holder.write is not None:
                holder.write(items)
        for array, copy in self.arrays:
            if array is copy or is_alike(array.detach() if torch.is_tensor(array) else array, copy):
                continue
            if isinstance(array, np.ndarray):
                array[...] = copy
            else:
                array.detach().copy_(copy)

    def find_changes(self, after: Snapshot) -> list[Path]:
        """Paths of what is another value later; where a container has grown, that alone."""
        paths = [p for p, v in after.values.items() if p not in self.values or not is_alike(v, self.values[p])]
        grown = {p for p in paths if isinstance(after.values[p], Length)}
        return [p for p in paths if not any(p[:n] in grown for n in range(1, len(p)))]

    def write(self, path: Path, value: Any) -> bool:
        """Put another value in a place; False: that is in something that never changes."""
        holder, key = self.setters[path]
        if holder.write is None:
            return False
        holder.write({**holder.read(), key: value})
        return True


@dataclass(frozen=True)
class Length:
    """The number of elements of a container of some kind."""

    kind: type
    size: int


def is_alike(a: Any, b: Any) -> bool:
    """True for the same object, and for equal values of one type."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a != a) & (b != b)).all())
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.array_equal(a, b))
    return bool(a == b or (a != a and b != b)) if isinstance(a, (*NUMBERS, str, bytes, Length)) else False


def take_snapshot(net: nn.Module, known: Snapshot | None = None, copied: bool = True) -> Snapshot:
    """All that the code of a module and its parts can reach from `forward`.

    Args:
        known: an earlier one, whose copies of arrays are taken where they still hold. copied: arrays are copied.
    """
    layers = list(net.named_modules())
    walk = Walk(known.values if known else {}, copied, {package_of(type(layer)) for _, layer in layers})
    walk.seen |= {id(layer) for _, layer in layers}
    for path, layer in layers:
        walk.visit_fields(layer, path)
        walk.visit_class(type(layer), path)
    return walk.found


class Walk:
    """One walk through objects, each of them once.

    Attributes:
        known, copied: as of `take_snapshot`. seen: ids of what was walked through. names: all that code names.
        waiting: methods that no code has named, by their names.
        packages: of the module and its parts. near: what is walked through is of these, or was called from there.
            Code of another package is followed no further than that: behind it may be anything, a database's session
            or a test's runner, which nobody has to look at and nobody may put back.
    """

    def __init__(self, known: Mapping[Path, Any], copied: bool, packages: set[str]) -> None:
        self.found = Snapshot()
        self.known, self.copied = known, copied
        self.seen: set[int] = set()
        self.names: set[str] = {"forward"}
        self.waiting: dict[str, list[tuple[types.FunctionType, str]]] = {}
        self.packages, self.near = packages, True

    @contextmanager
    def step_into(self, owner: Any) -> Iterator[bool]:
        """A step into the code or the attributes of a class, a function or an object: is it followed?"""
        before, is_own = self.near, package_of(owner) in self.packages
        self.near = is_own
        try:
            yield is_own or before
        finally:
            self.near = before

    def visit_fields(self, layer: nn.Module, where: str) -> None:
        """The attributes of a module, without what torch itself keeps of its parts and hooks."""
        holder = Storage(lambda: dict(vars(layer)), partial(replace_all, vars(layer)))
        self.found.items.append((holder, holder.read()))
        for name, value in holder.read().items():
            if name not in TORCHS:
                self.visit(value, (where, name), Origin(where, f"self.{name}"), (holder, name))
        for kind in ("_parameters", "_buffers"):
            for name in vars(layer)[kind]:
                self.found.places[where, kind, name] = Origin(where, f"self.{name}")

    def visit(self, value: Any, path: Path, place: Origin, setter: tuple[Storage, Any]) -> None:
        """A value, and all in it."""
        self.found.places[path], self.found.setters[path] = place, setter
        if isinstance(value, ARRAYS):
            self.found.values[path] = copy = self.copy(value, path)
            self.found.arrays.append((value, copy))
        elif isinstance(value, CONTAINERS):
            self.found.values[path] = Length(type(value), count_items(value))
            self.visit_items(value, path, place)
        elif isinstance(value, types.FunctionType):
            self.visit_function(value, place.where)
        elif isinstance(value, types.MethodType | partial):
            inner = (value.func, value.args, value.keywords) if isinstance(value, partial) else (value.__func__,)
            for i, item in enumerate(inner):
                self.visit(item, (*path, i), place, (Storage(dict), i))
        elif isinstance(value, type):
            self.visit_class(value, place.where)
        else:
            self.found.values[path] = value
            if isinstance(value, types.SimpleNamespace):
                self.visit_items(value, path, place)
            elif is_theirs(type(value)):
                self.visit_class(type(value), place.where)
                with self.step_into(type(value)) as is_followed:
                    if is_followed:
                        self.visit_items(value, path, place)

    def copy(self, array: Any, path: Path) -> Any:
        """A copy of an array, or the one that is there and equal."""
        if not self.copied:
            return array
        if path in self.known and is_alike(self.known[path], array.detach() if torch.is_tensor(array) else array):
            return self.known[path]
        return array.copy() if isinstance(array, np.ndarray) else array.detach().clone()

    def visit_items(self, value: Any, path: Path, place: Origin) -> None:
        """The items of a container or an object."""
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        holder = self.found.holders[path] = make_holder(value)
        items = holder.read()
        self.found.items.append((holder, items))
        for key, item in list(items.items())[:ELEMENTS]:
            self.visit(item, (*path, key), place, (holder, key))

    def visit_class(self, kind: type, where: str) -> None:
        """The methods of a class, and what it has for all of its objects."""
        for base in kind.__mro__:
            if id(base) in self.seen or not is_theirs(base):
                continue
            with self.step_into(base) as is_followed:
                if is_followed:
                    self.seen.add(id(base))
                    self.visit_entries(base, where)

    def visit_entries(self, base: type, where: str) -> None:
        """The methods of a class itself, and what it has for all of its objects."""
        self.visit_names(make_names(Attributes(base)), f"{base.__name__}.", where)
        for name, value in list(vars(base).items()):
            for function in unwrap_functions(value):
                if name in self.names or (name.startswith("__") and name not in BESIDE):
                    self.visit_function(function, where)
                elif not name.startswith("__"):
                    self.waiting.setdefault(name, []).append((function, where))

    def visit_names(self, holder: Storage, of: str, where: str) -> None:
        """Some names of a class, a file or a function, each once."""
        items = holder.read()
        self.found.items.append((holder, items))
        for name, value in items.items():
            if ("", of, name) not in self.found.places:
                self.visit(value, ("", of, name), Origin(where, f"{of}{name}"), (holder, name))

    def visit_function(self, function: types.FunctionType, where: str) -> None:
        """What a function reads that outlives its call: globals, variables around it, defaults, attributes."""
        if id(function) in self.seen or not is_theirs(function):
            return
        with self.step_into(function) as is_followed:
            if is_followed:
                self.seen.add(id(function))
                self.visit_code(function, where)

    def visit_code(self, function: types.FunctionType, where: str) -> None:
        """What the code of a function reads."""
        self.found.functions[id(function)] = function
        of, names = function.__qualname__, list_names(function.__code__)
        self.visit_space(function.__globals__, names, function.__module__, where)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        around = {name: cell for name, cell in cells if is_filled(cell)}
        self.visit_names(make_names(Cells(around)), f"{of}, from around it: ", where)
        self.visit_files([cell.cell_contents for cell in around.values()], function.__globals__, names, where)
        self.visit_names(make_names(Attributes(function)), f"{of}.", where)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for i, value in enumerate(defaults):
            self.visit(value, ("", of, "default", i), Origin(where, f"a default of {of}"), (Storage(dict), i))
        self.names |= names
        for name in names & self.waiting.keys():
            for method, owner in self.waiting.pop(name):
                self.visit_function(method, owner)

    def visit_space(self, space: Items, names: set[str], of: str, where: str) -> None:
        """The globals of a file that code names, and those of files that it names."""
        self.visit_names(make_names(space, names), f"{of}.", where)
        self.visit_files([space[n] for n in names if n in space], space, names, where)

    def visit_files(self, values: Iterable[Any], space: Items, names: set[str], where: str) -> None:
        """What code names of those values that are files; `space`: of its own file."""
        for other in [value for value in values if isinstance(value, types.ModuleType)]:
            if other.__name__.partition(".")[0] not in NOT_THEIRS and vars(other) is not space:
                self.visit_names(make_names(vars(other), names), f"{other.__name__}.", where)


def list_names(code: types.CodeType) -> set[str]:
    """The names of globals and attributes in a function and in those within it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    own = {name for name in code.co_names if not name.startswith("@")}  # not what a test's runner writes into asserts
    return own.union(*(list_names(c) for c in inner))


def list_constants(code: types.CodeType) -> set[int]:
    """The whole numbers in a function and in those within it."""
    own = {c for c in code.co_consts if type(c) is int}
    return own.union(*(list_constants(c) for c in code.co_consts if isinstance(c, types.CodeType)))
