"""A workstation's tools: replays of traces and data sets through real nodes, data sets, reports, generated traces.

May import: nodes, model, data, wire.options, contract. No other room imports this one, and a device never loads it.
"""

from __future__ import annotations

from typing import Any

from edge_sdk.earlier_names import find_earlier

EARLIER = {"Replay": "edge_sdk.replay.planning.plan", "replay": "edge_sdk.replay.job"}


def __getattr__(name: str) -> Any:
    return find_earlier(__name__, name, EARLIER)
