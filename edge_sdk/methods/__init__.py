"""The methods that a run can name. Each is one module: device, hospital and aggregator of one paper together.

A module is loaded when its method is first asked for: a device is in one run, and has no memory to spare for others.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from edge_sdk.errors import UsageError, nearest
from edge_sdk.plugins import PlugIns

if TYPE_CHECKING:
    from edge_sdk.contract.method import Method

NAME = re.compile(r"[a-z][a-z0-9+-]*")
NAMED = "small letters, digits, - and + are expected, a letter first"
REPRODUCED = {
    "fedslr": "fedslr.method:FEDSLR",
    "fedbcd": "fedbcd.method:FEDBCD",
    "fedbcd-i": "fedbcd.method:FEDBCD_I",
    "hsgd": "hsgd.method:HSGD",
    "fedal": "fedal.method:FEDAL",
    "augfl": "augfl.method:AUGFL",
}
"""Name -> module and constant."""
BASELINES = {
    "fedavg": "fedavg:FEDAVG",
    "perfedavg": "perfedavg:PERFEDAVG",
    "ditto": "ditto:DITTO",
    "scaffold": "scaffold:SCAFFOLD",
    "fedper": "fedper:FEDPER",
    "fedrep": "fedrep:FEDREP",
    "fedbabu": "fedbabu:FEDBABU",
    "apfl": "apfl:APFL",
    "feddyn": "feddyn:FEDDYN",
    "fedbn": "fedbn:FEDBN",
    "fedala": "fedala:FEDALA",
}
"""Methods to compare with, by others, each a module that a new one can be written after."""
COMBINED = {
    "fedslr-b": "fedslr_consensus:FEDSLR_B",
    "fedslr+fedal": "companions.method:FEDSLR_FEDAL",
    "fedslr-b+fedal": "companions.method:FEDSLR_B_FEDAL",
}


def check_offered(name: str, found: Any) -> Method:
    """A method of another package. Raises UsageError if what is there is none, or one of another name."""
    from edge_sdk.contract.method import Method  # which it has loaded

    if not isinstance(found, Method):
        raise UsageError(f"a {type(found).__name__}; expected a Method, as edge_sdk.method makes it")
    if found.name != name:
        raise UsageError(f"the method calls itself {found.name}; both must be one name")
    if not NAME.fullmatch(name):
        raise UsageError(f"{NAMED}")
    if not (isinstance(found.settings, type) and is_dataclass(found.settings)):
        raise UsageError(f"its settings are a {type(found.settings).__name__}, expected a dataclass")
    return found


PLUGINS = PlugIns("method", {*REPRODUCED, *BASELINES, *COMBINED}, check_offered)


class Catalogue(Mapping[str, "Method"]):
    """Methods by name: those of this package, of packages that are installed beside it, and of this process alone.

    Args:
        places: name -> module below edge_sdk.methods, and the constant in it.

    >>> METHODS["ditto"].settings(nearness=0.5).nearness
    0.5
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places
        self.added: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name in self.added:
            return self.added[name]
        if name in PLUGINS:
            return PLUGINS.load(name)
        module, _, constant = self.places[name].partition(":")
        found: Method = getattr(importlib.import_module(f"edge_sdk.methods.{module}"), constant)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.places or name in self.added or name in PLUGINS  # the inherited one would load it

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.places, *PLUGINS, *self.added]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{len(self)} methods: {', '.join(self)}"

    def check_name(self, name: str) -> None:
        """Raises UsageError for a name that is taken, or none that a run can have."""
        if name in self.places or name in PLUGINS:
            raise UsageError(f"method {name}: there is one of that name; choose another")
        if not NAME.fullmatch(name):
            raise UsageError(f"method {name!r}: {NAMED}")

    def check(self, name: str) -> None:
        """Raises UsageError where there is no such method, with the one that was perhaps meant."""
        if name not in self:
            raise UsageError(f"method = {name!r}{nearest(name, self)}; there are: {', '.join(sorted(self))}")

    def add(self, method: Method) -> None:
        """Makes a method known in this process; one of the same name that was added before goes.

        Raises:
            UsageError: the name cannot be used.
        """
        self.check_name(method.name)
        self.added[method.name] = method


METHODS = Catalogue({**REPRODUCED, **BASELINES, **COMBINED})
