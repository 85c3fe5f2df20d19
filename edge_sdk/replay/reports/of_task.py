"""Tables on a terminal of what is no class: those of values or of anomalies, by what a result has."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from edge_sdk.replay.anomalies import tables as anomalies
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.values import tables as values

ROOMS: Mapping[str, ModuleType] = {"values": values, ANOMALIES: anomalies}
"""Key of a result -> the module with its `verdict`, `device_table` and `model_table`."""


def tables_of(result: Mapping[str, Any]) -> ModuleType | None:
    """The tables of a result; None: its models predict classes or sets of labels."""
    return next((room for key, room in ROOMS.items() if key in result), None)
