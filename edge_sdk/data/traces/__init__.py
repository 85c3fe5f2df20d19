"""Recorded sensor streams: read, cut into windows, split by recording, and replayed on a clock."""

from edge_sdk.data.traces.clock import ReplayClock, select_arrived
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.labelled import keep_labelled
from edge_sdk.data.traces.read import Trace, read_trace
from edge_sdk.data.traces.split import split, split_off_validation
from edge_sdk.data.traces.unlabelled import find_stretches, unlabelled_rows
from edge_sdk.data.traces.windows import Windows, cut_windows, find_recordings

__all__ = [
    "ReplayClock",
    "Trace",
    "Windows",
    "cut_windows",
    "find_recordings",
    "find_stretches",
    "keep_labelled",
    "load_folder",
    "read_trace",
    "select_arrived",
    "split",
    "split_off_validation",
    "unlabelled_rows",
]
