"""Networks by name: those of the zoo, and those of other packages by the entry point `auscult.networks`."""

from __future__ import annotations

from inspect import signature
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.models.zoo import ZOO, Entry
from edge_sdk.models.zoo.split import SPLIT_ZOO
from edge_sdk.plugins import PlugIns


def check_offered(name: str, found: Any) -> Entry:
    """A network of another package. Raises UsageError if what is there builds none of a given size."""
    if isinstance(found, Entry):
        return found
    if not callable(found):
        raise UsageError(f"a {type(found).__name__}; expected a class or function that builds a torch module")
    try:
        signature(found).bind(input=(3, 64), classes=2)
    except TypeError as error:
        raise UsageError(f"{error}; it is called as {name}(input=(3, 64), classes=14)") from error
    return Entry(found, (), 0, 0)


PLUGINS = PlugIns("network", {*ZOO, *SPLIT_ZOO}, check_offered)


def find_entry(name: str) -> Entry | None:
    """The network of that name; None: there is none.

    Raises:
        UsageError: it is another package's, and cannot be loaded.
    """
    return PLUGINS.load(name) if name in PLUGINS else ZOO.get(name)


def is_network(name: str) -> bool:
    """Has some network this name, a split one included?"""
    return name in ZOO or name in SPLIT_ZOO or name in PLUGINS
