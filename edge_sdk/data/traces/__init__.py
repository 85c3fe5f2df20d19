"""Recorded sensor streams: read, cut into windows, split by recording, and replayed on a clock."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.data.traces.clock import ReplayClock as ReplayClock
    from edge_sdk.data.traces.clock import select_arrived as select_arrived
    from edge_sdk.data.traces.folder import TraceFolder as TraceFolder
    from edge_sdk.data.traces.folder import load_folder as load_folder
    from edge_sdk.data.traces.folder import load_traces as load_traces
    from edge_sdk.data.traces.rates import resample_trace as resample_trace
    from edge_sdk.data.traces.read import Trace as Trace
    from edge_sdk.data.traces.read import read_trace as read_trace
    from edge_sdk.data.traces.split import split_off_validation as split_off_validation
    from edge_sdk.data.traces.unlabelled import find_stretches as find_stretches
    from edge_sdk.data.traces.unlabelled import keep_labelled as keep_labelled
    from edge_sdk.data.traces.unlabelled import unlabelled_rows as unlabelled_rows
    from edge_sdk.data.traces.windows import Windows as Windows
    from edge_sdk.data.traces.windows import cut_windows as cut_windows
    from edge_sdk.data.traces.windows import find_recordings as find_recordings

HOMES = {
    "ReplayClock": "clock",
    "Trace": "read",
    "TraceFolder": "folder",
    "Windows": "windows",
    "cut_windows": "windows",
    "find_recordings": "windows",
    "find_stretches": "unlabelled",
    "keep_labelled": "unlabelled",
    "load_folder": "folder",
    "load_traces": "folder",
    "read_trace": "read",
    "resample_trace": "rates",
    "select_arrived": "clock",
    "split_off_validation": "split",
    "unlabelled_rows": "unlabelled",
}
"""Name -> the module here that it is loaded from when it is first used."""

__all__ = [
    "ReplayClock",
    "Trace",
    "TraceFolder",
    "Windows",
    "cut_windows",
    "find_recordings",
    "find_stretches",
    "keep_labelled",
    "load_folder",
    "load_traces",
    "read_trace",
    "resample_trace",
    "select_arrived",
    "split_off_validation",
    "unlabelled_rows",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    globals()[name] = found
    return found
