"""`auscult record`: writes what sensors give as traces that can be replayed."""

from __future__ import annotations

import argparse
import math
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.catalog import KINDS, make_sensor
from edge_sdk.hardware.sensors.record import UNLABELLED, Labels, Recorder


def add_record(commands: Any, parents: Sequence[argparse.ArgumentParser] = ()) -> None:
    """Adds `record` to the command line."""
    words = "write what sensors give as traces that can be replayed"
    more = f"{words}. A sensor is KIND:TARGET[,KEY=VALUE ...], with one of {', '.join(KINDS)}, "
    more += "or one of another package (auscult plugins); see docs/boards.md. "
    more += "Each line on standard input names what is done from then on. Ctrl-C ends the recording."
    command = commands.add_parser("record", help=words, description=more, parents=parents)
    command.add_argument("sensor", nargs="+", help="such as iio:lis3dh_accel or serial:/dev/ttyUSB0,channels=x y z")
    command.add_argument("directory", type=Path, help="new or empty")
    command.add_argument("--label", default=UNLABELLED, help=f"what is done at first ({UNLABELLED})")
    command.add_argument("--seconds", type=float, default=math.inf, help="how long (until it is interrupted)")
    command.add_argument("--root", type=Path, default=Path("/"), help="where Linux's files are (/)")
    command.set_defaults(do=do_record)


def do_record(options: argparse.Namespace) -> int:
    if not options.seconds > 0:
        raise UsageError(f"--seconds {options.seconds}: above 0")
    if len(set(options.sensor)) < len(options.sensor):
        raise UsageError(f"sensors: {' '.join(options.sensor)}; one of them is named twice")
    labels = Labels(options.label)
    recorder = Recorder(
        {text: make_sensor(text, options.root) for text in options.sensor}, options.directory, labels, options.root
    )
    threading.Thread(target=hear_labels, args=(sys.stdin, labels, recorder.now), daemon=True).start()
    try:
        recorder.run(options.seconds)
    except KeyboardInterrupt:
        pass  # the way to end a recording; all is written
    finally:
        print_recording(recorder)
    return 0


def hear_labels(lines: TextIO, labels: Labels, now: Callable[[], float]) -> None:
    """Takes each line as what is done from now on; one that cannot be a label is told and changes nothing."""
    for line in lines:
        try:
            labels.say(line.strip(), now())
        except UsageError as error:
            print(f"auscult: {error}", file=sys.stderr)


def print_recording(recorder: Recorder) -> None:
    for file in recorder.files.values():
        if not file.parts:
            print(f"{file.name}: nothing came, so there is no file")
            continue
        parts = f", in {file.parts} files as the clock went back" if file.parts > 1 else ""
        left = f", {file.left_out} left out (no number, or no later than the one before)" if file.left_out else ""
        print(f"{file.folder / file.name}.csv: {file.samples} samples{left}{parts}")
