"""The methods that a run can name. Each is one module: device, hospital and aggregator of one paper together.

A module is loaded when its method is first asked for: a device is in one run, and has no memory to spare for others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from edge_sdk.contract.method import Method

REPRODUCED = {
    "fedslr": "fedslr.method:FEDSLR",
    "fedbcd": "fedbcd.method:FEDBCD",
    "fedbcd-i": "fedbcd.method:FEDBCD_I",
    "hsgd": "hsgd.method:HSGD",
    "fedal": "fedal.method:FEDAL",
    "augfl": "augfl.method:AUGFL",
}
"""Name -> module and constant."""
NEIGHBOURS = {
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
"""Baselines by others, each a module that a new one can be written after."""
COMBINED = {
    "fedslr-b": "fedslr_consensus:FEDSLR_B",
    "fedslr+fedal": "companions.method:FEDSLR_FEDAL",
    "fedslr-b+fedal": "companions.method:FEDSLR_B_FEDAL",
}


class Catalogue(Mapping[str, Method]):
    """Methods by name.

    Args:
        places: name -> module below edge_sdk.methods, and the constant in it.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Method:
        module, _, constant = self.places[name].partition(":")
        found: Method = getattr(importlib.import_module(f"edge_sdk.methods.{module}"), constant)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.places  # the inherited one would load it

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


METHODS: Mapping[str, Method] = Catalogue({**REPRODUCED, **NEIGHBOURS, **COMBINED})
