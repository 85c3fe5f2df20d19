"""Recorded sensor streams: read, cut into windows, and split by recording."""

from __future__ import annotations

from typing import Any

from edge_sdk.earlier_names import find_earlier

EARLIER = {"load_folder": "edge_sdk.data.traces.folder", "read_trace": "edge_sdk.data.traces.read"}


def __getattr__(name: str) -> Any:
    return find_earlier(__name__, name, EARLIER)
