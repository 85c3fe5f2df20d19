"""Auscult in the cloud: the global steps of the methods, with torch.

`Aggregator` and what it is made with are loaded when they are first used, so that a command that only pretrains does
not wait for a node.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator.aggregator import Aggregator as Aggregator
    from aggregator.options import HospitalList as HospitalList
    from aggregator.options import PreparedRun as PreparedRun
    from aggregator.options import Process as Process

HOMES = {"Aggregator": "aggregator", "HospitalList": "options", "PreparedRun": "options", "Process": "options"}

__all__ = ["Aggregator", "HospitalList", "PreparedRun", "Process"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"aggregator has no {name}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"aggregator.{HOMES[name]}"), name)
