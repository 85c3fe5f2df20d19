"""Recorded sensor streams: read, cut into windows, split by recording, replayed and, for the demo, generated."""

from edge_sdk.traces.clock import ReplayClock, arrived
from edge_sdk.traces.folder import load_folder
from edge_sdk.traces.read import Trace, read_trace
from edge_sdk.traces.split import split
from edge_sdk.traces.synth import write_traces
from edge_sdk.traces.windows import Windows, recordings, windows

__all__ = [
    "ReplayClock",
    "Trace",
    "Windows",
    "arrived",
    "load_folder",
    "read_trace",
    "recordings",
    "split",
    "windows",
    "write_traces",
]
