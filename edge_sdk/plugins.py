"""Plug-ins: what other installed packages bring along, by entry points; each is loaded when its name is asked for.

    [project.entry-points."auscult.sensors"]    of methods, networks, ..., tasks: see docs/plugins.md
    ruler = "their_package:make_ruler"

Names of our own cannot be taken, and a name can be one package's only. To find what is ours none of this is looked at.
Whatever a module of other people's does, short of killing the process, is an error that names it: it ends no command,
and prints nothing among results.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edge_sdk.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
HOMES = {
    "method": "edge_sdk.methods",
    "network": "edge_sdk.models.zoo.plugged",
    "reader": "edge_sdk.replay.imports.readers",
    "sensor": "edge_sdk.hardware.sensors.catalog",
    "task": "edge_sdk.model.tasks.plugged",
}
"""Kind of plug-in -> the module whose `PLUGINS` loads them. Its group of entry points is auscult.KINDs."""


@cache
def entries_of(kind: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Name -> the entry points of that name. Nothing that they name is loaded."""
    from importlib.metadata import entry_points

    group = f"auscult.{kind}s"
    found: dict[str, tuple[EntryPoint, ...]] = {}
    entries: Iterable[EntryPoint]
    try:
        entries = entry_points(group=group)
    except Exception:  # one package's list cannot be read, and the library then gives nobody's
        entries = [entry for entry in look_at_each()[0] if entry.group == group]
    for entry in sorted(entries, key=lambda one: (one.name, one.value)):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def look_at_each() -> tuple[list[EntryPoint], dict[str, str]]:
    """The entry points of each installed package that has a list which can be read; and package -> what is wrong with
    the list of the others."""
    from importlib.metadata import distributions

    found: dict[str, list[EntryPoint]] = {}
    torn: dict[str, str] = {}
    for package in distributions():
        name = str(package.name)
        if name in found or name in torn:  # another one of the name lies behind it on the path
            continue
        try:
            found[name] = [*package.entry_points]
        except Exception as error:
            torn[name] = f"the entry points of {name} cannot be read: {type(error).__name__}: {error}"
    return [entry for entries in found.values() for entry in entries], torn


def torn_lists() -> dict[str, str]:
    """Package -> why its entry points cannot be read, of those where they cannot."""
    from importlib.metadata import entry_points

    try:
        entry_points()
    except Exception:
        return look_at_each()[1]
    return {}


class PlugIns(Generic[T]):
    """The plug-ins of one kind, by name.

    Args:
        kind: a key of HOMES.
        ours: names that this package has itself.
        use: (name, what the entry point names) -> what is used of it; raises UsageError with what was expected.
    """

    def __init__(self, kind: str, ours: Container[str], use: Callable[[str, Any], T]) -> None:
        self.kind, self.ours, self.use = kind, ours, use
        self.given: dict[str, Any] = {}
        """Name -> what this process was given, as if an entry point named it."""

    def __contains__(self, name: object) -> bool:
        return name not in self.ours and (name in self.given or name in entries_of(self.kind))

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys([*entries_of(self.kind), *self.given]) if name not in self.ours)

    def give(self, name: str, found: Any) -> None:
        """Makes one known in this process alone; what it was given under this name before goes.

        Raises:
            UsageError: the name is taken, or it cannot be used.
        """
        if name in self.ours or name in entries_of(self.kind):
            whose = "one of Auscult's own" if name in self.ours else self.place_of(name)
            by_name = "" if name in self.ours else f", or take that one by its name, {name!r}"
            raise UsageError(f"{self.kind} {name}: there is one of that name, {whose}; choose another{by_name}")
        before = self.given.get(name)
        self.given[name] = found
        try:
            self.load(name)
        except UsageError:
            self.given.pop(name) if before is None else self.given.update({name: before})
            raise

    def load(self, name: str) -> T:
        """Loads one.

        Raises:
            UsageError: none has this name, the name is taken, or it cannot be loaded or used; with its package.
        """
        if name in self.given:
            with self.blamed(name):
                return self.use(name, self.given[name])
        entries = entries_of(self.kind).get(name, ())
        if not entries:
            raise UsageError(f"{self.kind} {name}: no installed package has one of this name")
        if name in self.ours:
            raise self.blame(name, "the name is one of Auscult's own; the package has to choose another")
        if len(entries) > 1:
            raise self.blame(name, f"{len(entries)} packages have one of this name; keep one of them")
        if not module_of(entries[0]):
            raise self.blame(name, f"{entries[0].value!r} is no module:object")
        with self.blamed(name), redirect_stdout(sys.stderr):
            return self.use(name, entries[0].load())

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """Makes whatever is raised within a UsageError as of `blame`; Ctrl-C stays what it is."""
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit, too: other people's modules end no command
            raise self.blame(name, error) from error

    def blame(self, name: str, why: str | BaseException) -> UsageError:
        """An error that says whose a plug-in is, and what is wrong with it."""
        known = isinstance(why, (str, UsageError))
        return UsageError(
            f"{self.kind} {name}, {self.place_of(name)}: {why if known else f'{type(why).__name__}: {why}'}"
        )

    def place_of(self, name: str) -> str:
        """Where a plug-in is from: module:object of PACKAGE VERSION."""
        if name in self.given:
            return "which this program has given"
        return " and ".join(f"{entry.value} of {package_of(entry)}" for entry in entries_of(self.kind)[name])


def package_of(entry: EntryPoint) -> str:
    """Name and version of the package that an entry point is of."""
    return "a package without a name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


# What a result of theirs depends on -----------------------------------------------------------------------------
def hash_plugin(kind: str, name: str) -> str:
    """SHA-256 of the sources of the packages that have such a plug-in; "": none has."""
    tops = {module_of(entry).partition(".")[0] for entry in entries_of(kind).get(name, ())}
    return "".join(hash_package(top) for top in sorted(filter(None, tops)))


def module_of(entry: EntryPoint) -> str:
    """The module that an entry point names; "": it names none."""
    try:
        return str(entry.module)
    except AttributeError:  # of a text that is not as entry points are written
        return ""


def hash_package(name: str) -> str:
    """SHA-256 of the sources of a package, or of a module that is one file; of nothing where there is none."""
    from importlib.util import find_spec

    found, spec = hashlib.sha256(), find_spec(name)
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
    for place in map(Path, places):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.is_file() else []:
            found.update(file.read_bytes())
    return found.hexdigest()
