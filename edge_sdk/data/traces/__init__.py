"""Recorded sensor streams: read, cut into windows, split by recording, and replayed on a clock."""

from edge_sdk.data.traces.clock import ReplayClock, select_arrived
from edge_sdk.data.traces.folder import TraceFolder, load_folder, load_traces
from edge_sdk.data.traces.rates import resample_trace
from edge_sdk.data.traces.read import Trace, read_trace
from edge_sdk.data.traces.split import split, split_off_validation
from edge_sdk.data.traces.unlabelled import find_stretches, keep_labelled, unlabelled_rows
from edge_sdk.data.traces.windows import Windows, cut_windows, find_recordings

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
    "split",
    "split_off_validation",
    "unlabelled_rows",
]
