"""Curves and final figures as TensorBoard event files: `auscult replay --tensorboard DIR`, `auscult runs export`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.replay.reports.scalars import Scalar, scalars
from edge_sdk.replay.reports.terminal import Result


def check_installed() -> None:
    """Raises UsageError if event files cannot be written here: better before a run than after it."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the package tensorboard: pip install 'auscult[tensorboard]'")


def write_events(result: Result, directory: Path) -> None:
    """Writes an event file of one replay into a directory, which TensorBoard takes for one run."""
    write_points(scalars(result), directory)


def write_points(points: Iterable[Scalar], directory: Path) -> None:
    """Writes points of curves into an event file of a directory."""
    check_installed()
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    directory.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(directory))
    for tag, step, time, value in points:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(wall_time=time, step=step, summary=summary))
    writer.close()
