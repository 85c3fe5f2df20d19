"""The files of earlier runs in one directory: put aside when another run begins, and back when theirs goes on.

An aggregator writes the files of its run under fixed names, for scripts and people who look for them there. A second
run in the directory must not overwrite what the first one has come to, so that goes to `earlier/<id of the run>/`.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

from edge_sdk.atomic import make_private_directory
from edge_sdk.nodes.daemon.device_file import LEDGER

RUN_FILE, RESULT_FILE, MODEL_FILE = "run.toml", "result.json", "model.npz"
MOVED = (MODEL_FILE, RESULT_FILE, LEDGER, RUN_FILE)
"""In this order: the last one says whose files they are, so a crash in between leaves that known."""
EARLIER = "earlier"


def switch_files(directory: Path, run: str) -> None:
    """Puts the files of another run aside, and those of this run back, if it was here before.

    May be called again at any moment, also after a crash in the middle of it. The caller has the directory's lock.
    """
    before = find_run(directory)
    if before is not None and before != run:
        move_files(directory, directory / EARLIER / before)
    if before != run and (directory / EARLIER / run).is_dir():
        move_files(directory / EARLIER / run, directory)


def find_run(directory: Path) -> str | None:
    """Id of the run whose files lie in a directory; None: nobody can tell, or there are none."""
    try:
        return str(tomllib.loads((directory / RUN_FILE).read_text())["run"]["id"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        return str(json.loads((directory / RESULT_FILE).read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def move_files(source: Path, target: Path) -> None:
    """Moves a run's files from one folder to another; those that are there already are replaced."""
    make_private_directory(target)
    for name in MOVED:
        if (source / name).exists():
            os.replace(source / name, target / name)
