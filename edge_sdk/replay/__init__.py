"""A workstation's tools: replays of traces and data sets through real nodes, data sets, reports, generated traces.

May import: nodes, model, data, wire.options, contract. No other room imports this one, and a device never loads it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.replay.job import replay as replay
    from edge_sdk.replay.planning.plan import Replay as Replay

__all__ = ["Replay", "replay"]
HOMES = {"Replay": "edge_sdk.replay.planning.plan", "replay": "edge_sdk.replay.job"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"edge_sdk.replay has no {name}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(HOMES[name]), name)
