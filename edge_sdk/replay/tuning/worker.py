"""Process that plays the trials of one method: `python -m edge_sdk.replay.tuning.worker`, one JSON object a line.

In:  the job (`as_job` writes it), perhaps with {"numpy": true}: its aggregator goes without torch, which takes a second
     to load; then for each trial its settings; or {"--neighbours": true}, see alone.py.
Out: {"say": sentence} at any time; {"ready": true} or {"refused": why} once; for each trial {"accuracy", "shown",
     "score", "devices", "seconds"} or {"error": why}.

It is a process of its own so that it can be ended in the middle of a trial, and because its libraries must add up with
one thread, as those of a replay do: otherwise sums would differ in their last bits. It ends with its standard input,
also in the middle of a trial: whoever has asked for that may have been killed.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning.memory import Kernels, TuningFleet, own_accuracy, play, prepare
from edge_sdk.replay.tuning.scores import in_words, name_of

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
LOOK = "--neighbours"
"""In place of settings: what is asked for are the neighbours."""
NUMPY = "numpy"
"""In a job: the aggregator thresholds with numpy, as it does without kernels of its own."""
PATHS = ("out", "bundle", "private", "boards", "link")
"""Fields of a job that JSON has no form for, or that no trial needs."""


def as_job(job: Replay) -> dict[str, Any]:
    """A job in JSON's types. Its settings are not part of it: each trial has its own."""
    kept = {f.name: getattr(job, f.name) for f in fields(job) if f.name not in (*PATHS, "settings")}
    return {**kept, "data": str(job.data), "out": str(job.out), "bundle": [str(path.resolve()) for path in job.bundle]}


def read_job(table: Mapping[str, Any]) -> Replay:
    """The job that `as_job` has written."""
    bundle = tuple(Path(path) for path in table["bundle"])
    more = {
        "out": Path(table["out"]),
        "bundle": bundle,
        "newcomers": tuple(table["newcomers"]),
        "stated": tuple(table["stated"]),
    }
    return Replay(**{**table, **more})


def find_kernels() -> Kernels:
    """The aggregator's kernels, which need torch; by name, so that this package imports nothing above it.

    Raises:
        UsageError: they are not installed.
    """
    try:
        importlib.import_module("torch").set_num_threads(1)
        found: Kernels = importlib.import_module("aggregator.kernels").kernels_for
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing here: pip install 'auscult[replay]'") from error
    return found


def no_kernels(env: type) -> Mapping[str, Any]:
    """In the place of kernels on torch: an env's own are numpy's."""
    return {}


def reply(**found: Any) -> None:
    """Writes one line."""
    print(json.dumps(found), flush=True)


def play_trial(fleet: TuningFleet, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One trial. Whatever goes wrong in it is its result: other settings may be better."""
    began = time.monotonic()
    try:
        judged = play(fleet, settings)
    except Exception as error:
        return {"error": str(error) if isinstance(error, AuscultError) else f"{type(error).__name__}: {error}"}
    own = {name: own_accuracy(found) for name, found in judged.devices.items() if found}
    said = {"shown": in_words(fleet.task, judged.accuracy), "score": name_of(fleet.task)}
    return {"accuracy": judged.accuracy, **said, "devices": own, "seconds": round(time.monotonic() - began, 1)}


def end_with_input() -> None:
    """Ends this process as soon as nobody can write to its standard input any more."""
    ended = select.poll()
    ended.register(sys.stdin.fileno(), 0)  # asks for nothing but its end
    ended.poll()
    os._exit(1)


def main() -> int:
    """Reads a job, then plays trials until there are no more."""
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        asked = json.loads(sys.stdin.readline())
        kernels = no_kernels if asked.pop(NUMPY, False) else find_kernels()
        job = read_job(asked)
        fleet = prepare(job, kernels, lambda text: reply(say=text))
    except AuscultError as error:
        reply(refused=str(error))
        return 2
    reply(ready=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if LOOK in asked:
            looked = importlib.import_module("edge_sdk.replay.tuning.alone").look_on_validation
            reply(**looked(fleet, job.neighbours, job.seed, lambda text: reply(say=text)))
        else:
            reply(**play_trial(fleet, asked))
    return 0


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())
